//! The sockets of the forwarder.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use hickory_proto::op::{Message, MessageType, ResponseCode};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

use super::query::{Decision, accept, ask, decide};
use super::{AddressOpener, Buckets, ResolverControl, ResolverSettings};
use crate::Error;
use crate::plan::Protocol;

/// A query is never longer than this; what is, is cut and so no query.
const QUERY_BYTES: usize = 1232;
/// Time that a TCP connection may be silent.
const SILENCE: Duration = Duration::from_secs(5);

/// The forwarder. Dropped, it stops and answers nothing that is still open.
pub struct Resolver {
    udp: Arc<UdpSocket>,
    tcp: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    permits: Arc<ArcSwap<super::Permits>>,
    buckets: Buckets,
    upstreams: Vec<SocketAddr>,
    opens: Arc<dyn AddressOpener>,
}

impl Resolver {
    /// Takes its sockets. The bridge must have its address.
    ///
    /// # Errors
    /// [`Error::PortTaken`] if another program serves names there.
    pub async fn bind(settings: ResolverSettings) -> Result<Self, Error> {
        let at = settings.listen;
        let failed = |protocol| {
            move |error: std::io::Error| match error.kind() {
                std::io::ErrorKind::AddrInUse => Error::PortTaken { protocol, at },
                _ => Error::io_with("CAP_NET_BIND_SERVICE", format!("serve names at {at}"))(error),
            }
        };
        let udp = UdpSocket::bind(at).await.map_err(failed(Protocol::Udp))?;
        let tcp = TcpListener::bind(at).await.map_err(failed(Protocol::Tcp))?;
        if let Some(mark) = settings.mark {
            let marked = SockRef::from(&udp).set_mark(mark);
            let marked = marked.and_then(|()| SockRef::from(&tcp).set_mark(mark));
            marked.map_err(Error::io("mark the sockets for names"))?;
        }
        let shared = Shared {
            permits: Arc::new(ArcSwap::from_pointee(settings.permits)),
            buckets: Buckets::new(settings.limits),
            upstreams: settings.upstreams,
            opens: settings.opens,
        };
        Ok(Self { udp: Arc::new(udp), tcp, shared: Arc::new(shared) })
    }

    /// Control that changes the permits while the resolver runs.
    pub fn control(&self) -> ResolverControl {
        ResolverControl(self.shared.permits.clone())
    }

    /// Serves until it fails or the future is dropped.
    ///
    /// # Errors
    /// When a socket breaks.
    pub async fn run(self) -> Result<(), Error> {
        // Bounded by the places in the buckets.
        let mut tasks = JoinSet::new();
        let mut buffer = [0; QUERY_BYTES + 1];
        let mut sweep = tokio::time::interval(Duration::from_secs(60));
        loop {
            tokio::select! {
                received = self.udp.recv_from(&mut buffer) => match received {
                    Ok((len, from)) => self.datagram(&buffer[..len], from, &mut tasks),
                    // An ICMP error about an earlier answer.
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
                    Err(error) => return Err(Error::io("serve names")(error)),
                },
                accepted = self.tcp.accept() => match accepted {
                    Ok((stream, from)) => self.connection(stream, from, &mut tasks),
                    Err(error) => {
                        tracing::debug!(%error, "a connection was not taken");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
                Some(_) = tasks.join_next() => {}
                _ = sweep.tick() => {
                    let permits = self.shared.permits.load_full();
                    self.shared.buckets.retain(|guest| permits.guests.contains_key(guest));
                }
            }
        }
    }

    fn datagram(&self, bytes: &[u8], from: SocketAddr, tasks: &mut JoinSet<()>) {
        let Some(guest) = self.shared.guest(from).filter(|_| bytes.len() <= QUERY_BYTES) else {
            return;
        };
        let Some(place) = self.shared.buckets.admit(guest, Instant::now()) else { return };
        let (shared, socket, bytes) = (self.shared.clone(), self.udp.clone(), bytes.to_vec());
        tasks.spawn(async move {
            let _place = place;
            let Some((answer, limit)) = shared.answer(guest, &bytes).await else { return };
            if let Some(bytes) = encode(answer, limit) {
                // A guest that is gone wants no answer.
                let _ = socket.send_to(&bytes, from).await;
            }
        });
    }

    fn connection(&self, mut stream: TcpStream, from: SocketAddr, tasks: &mut JoinSet<()>) {
        let Some(guest) = self.shared.guest(from) else { return };
        let Some(place) = self.shared.buckets.admit(guest, Instant::now()) else { return };
        let shared = self.shared.clone();
        tasks.spawn(async move {
            let _place = place;
            // The end of the connection, a silent or a broken guest: nothing is left to do.
            while let Ok(Some(())) = converse(&shared, guest, &mut stream).await {}
        });
    }
}

/// Reads a question and answers it; `None` when the guest is done or asks too often.
async fn converse(
    shared: &Shared,
    guest: Ipv4Addr,
    stream: &mut TcpStream,
) -> std::io::Result<Option<()>> {
    let read = async {
        let len = usize::from(stream.read_u16().await?);
        if len > QUERY_BYTES {
            return Err(std::io::Error::other("too long for a query"));
        }
        let mut bytes = vec![0; len];
        stream.read_exact(&mut bytes).await.map(|_| bytes)
    };
    let bytes = tokio::time::timeout(SILENCE, read).await??;
    let Some(_place) = shared.buckets.admit(guest, Instant::now()) else { return Ok(None) };
    let Some((answer, _)) = shared.answer(guest, &bytes).await else { return Ok(None) };
    let Some(bytes) = encode(answer, u16::MAX) else { return Ok(None) };
    let len = u16::try_from(bytes.len()).map_err(std::io::Error::other)?;
    let framed = [&len.to_be_bytes(), bytes.as_slice()].concat();
    tokio::time::timeout(SILENCE, stream.write_all(&framed)).await??;
    Ok(Some(()))
}

/// Within a limit: what is longer says so and carries no records.
fn encode(answer: Message, limit: u16) -> Option<Vec<u8>> {
    let bytes = answer.to_vec().ok()?;
    match bytes.len() <= limit.into() {
        true => Some(bytes),
        false => answer.truncate().to_vec().ok().filter(|bytes| bytes.len() <= limit.into()),
    }
}

impl Shared {
    /// The member that an address is. Rules in the kernel see to it that no other guest has it.
    fn guest(&self, from: SocketAddr) -> Option<Ipv4Addr> {
        match from.ip() {
            IpAddr::V4(address) => {
                self.permits.load().guests.contains_key(&address).then_some(address)
            }
            IpAddr::V6(_) => None,
        }
    }

    /// The answer, and how long it may be in a datagram.
    async fn answer(&self, guest: Ipv4Addr, bytes: &[u8]) -> Option<(Message, u16)> {
        let permits = self.permits.load_full();
        let permit = permits.guests.get(&guest)?;
        let question = Message::from_vec(bytes).ok()?;
        let decision = decide(permit, &question)?;
        let limit = question.max_payload().clamp(512, QUERY_BYTES as u16);
        let mut reply =
            Message::new(question.metadata.id, MessageType::Response, question.metadata.op_code);
        reply.metadata.recursion_desired = question.metadata.recursion_desired;
        reply.metadata.recursion_available = true;
        reply.queries = question.queries.iter().take(1).cloned().collect();
        reply.metadata.response_code = match decision {
            Decision::Say(code) => code,
            Decision::Ask(query) => match ask(&self.upstreams, &query).await {
                None => ResponseCode::ServFail,
                Some(answer) => {
                    let code = answer.metadata.response_code;
                    let (openings, records) =
                        accept(permit, permits.subnet, &query, answer.answers);
                    match self.open(openings).await {
                        true => {
                            reply.add_answers(records);
                            code
                        }
                        false => ResponseCode::ServFail,
                    }
                }
            },
        };
        Some((reply, limit))
    }

    /// True when everything is open.
    async fn open(&self, openings: Vec<crate::ResolvedAddresses>) -> bool {
        if openings.is_empty() {
            return true;
        }
        let opened = self.opens.open(openings).await;
        opened.inspect_err(|error| tracing::warn!(%error, "a name could not be opened")).is_ok()
    }
}
