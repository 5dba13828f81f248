//! Acceptor: connections to a forward of a parked machine, carried over the link to its guest. Where
//! no tap is, datagrams to one are accepted too, and wake the machine.
//!
//! ```text
//! parked ──► listens ──► accepted ──► dial_forward, which wakes it ──► bytes both ways
//!                │ awake, and the kernel leads connections again
//!                └─► for a moment still, then quiet; what was accepted goes on to its end
//! ```
//! One task for each forward. It ends, with all that it carries, when its sender is dropped: with
//! the forward, whose connections the kernel ends too.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hivekeep_kernel::WorkspaceId;
use hivekeep_ports::WorkspacePorts;
use hivekeep_runtime::Ports;
use socket2::SockRef;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::wake_on_lan;
use crate::Error;
use crate::plan::Protocol;
use crate::ports::{HeldSocket, PortReservation};

/// Connections of one forward that are carried at a time. More wait in the kernel's backlog.
const MAX_CARRIED: usize = 64;
/// Time for a machine to be awake and its guest to answer.
const WAKE_PATIENCE: Duration = Duration::from_secs(120);
/// For connections that had begun before the kernel led them to the machine again.
const LINGER: Duration = Duration::from_secs(1);
/// After a failure to accept, as without file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Where connections go.
#[derive(Clone)]
pub(super) struct ForwardTarget {
    pub(super) workspace: WorkspaceId,
    pub(super) protocol: Protocol,
    pub(super) guest_port: u16,
    pub(super) ports: Ports,
}

/// Hold on the task of one forward.
#[derive(Debug)]
pub(super) struct Acceptor(watch::Sender<Option<Arc<HeldSocket>>>);

impl Acceptor {
    /// The hold, and the work of the task, which does not listen yet.
    pub(super) fn new(to: ForwardTarget) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (socket, told) = watch::channel(None);
        let work = async move {
            match to.protocol {
                Protocol::Tcp => run(told, to).await,
                Protocol::Udp => wake_by_datagrams(told, to).await,
            }
        };
        (Self(socket), work)
    }

    /// Listens on a port that is held, from now on.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn listen(&self, on: &PortReservation) -> Result<(), Error> {
        let listens = self.0.borrow().as_ref().is_some_and(|now| Arc::ptr_eq(now, on.socket()));
        if !listens {
            if on.protocol() == Protocol::Tcp {
                on.socket().listen()?;
            }
            self.0.send_replace(Some(on.socket().clone()));
        }
        Ok(())
    }

    /// Stops listening, soon. What was accepted goes on.
    pub(super) fn rest(&self) {
        self.0.send_if_modified(|socket| socket.take().is_some());
    }
}

type Told = watch::Receiver<Option<Arc<HeldSocket>>>;

async fn run(mut told: Told, to: ForwardTarget) {
    let mut carried = JoinSet::new();
    loop {
        let socket = told.borrow_and_update().clone();
        let listener = socket.as_ref().map(|socket| socket.listener());
        match listener {
            Some(Ok(listener)) => {
                if accept(listener, &mut told, &mut carried, &to).await.is_none() {
                    return;
                }
                continue;
            }
            Some(Err(error)) => tracing::warn!(workspace = %to.workspace, %error,
                "connections to a forward do not wake its machine"),
            None => {}
        }
        drop(socket);
        tokio::select! {
            changed = told.changed() => if changed.is_err() { return },
            Some(_) = carried.join_next() => {}
        }
    }
}

/// Has the machine woken when a datagram comes, until it has its port itself. What comes before that
/// is lost: nobody else could answer it from that port.
async fn wake_by_datagrams(mut told: Told, to: ForwardTarget) {
    let mut wake = JoinSet::new();
    loop {
        let socket = told.borrow_and_update().as_ref().map(|socket| socket.datagrams());
        let heard = async {
            match &socket {
                Some(Ok(socket)) => socket.recv(&mut [0]).await.map(drop),
                Some(Err(error)) => Err(io::Error::other(error.to_string())),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // A port that is let go of reads as an empty datagram.
            biased;
            changed = told.changed() => if changed.is_err() { return },
            Some(_) = wake.join_next() => {}
            heard = heard, if wake.is_empty() => match heard {
                Ok(()) => drop(wake.spawn(wake_on_lan::wake(to.workspace, to.ports.clone()))),
                Err(error) => {
                    tracing::debug!(%error, "a datagram to a forward was not heard");
                    sleep(PAUSE).await;
                }
            },
        }
    }
}

/// Accepts until it is told to rest, and a moment longer; `None`: the forward is gone.
async fn accept(
    listener: TcpListener,
    told: &mut Told,
    carried: &mut JoinSet<()>,
    to: &ForwardTarget,
) -> Option<()> {
    let mut rests_at = None;
    loop {
        tokio::select! {
            changed = told.changed() => {
                changed.ok()?;
                rests_at = told.borrow().is_none().then(|| Instant::now() + LINGER);
            }
            () = sleep_until(rests_at.unwrap_or_else(Instant::now)), if rests_at.is_some() => break,
            Some(_) = carried.join_next() => {}
            accepted = listener.accept(), if carried.len() < MAX_CARRIED => match accepted {
                Ok((client, _)) => drop(carried.spawn(carry(client, to.clone()))),
                // Its port was given to the machine itself.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
                Err(error) => {
                    tracing::debug!(%error, "a connection to a forward was not accepted");
                    sleep(PAUSE).await;
                }
            },
        }
    }
    HeldSocket::end_listening(&listener);
    Some(())
}

/// Carries one connection to its end. One that leads nowhere, or breaks, is reset.
async fn carry(mut client: TcpStream, to: ForwardTarget) {
    let ForwardTarget { workspace, guest_port, ports, .. } = to;
    // Without it only small answers are late.
    let _ = client.set_nodelay(true);
    // A client that is gone without a word holds its place until the kernel finds out.
    let _ = SockRef::from(&client).set_keepalive(true);
    let carried = async {
        let ports = ports.need::<dyn WorkspacePorts>()?;
        let mut guest = ports.dial_forward(workspace, guest_port, WAKE_PATIENCE).await?;
        let copied = copy_bidirectional(&mut client, &mut guest).await;
        copied.map(drop).map_err(|error| hivekeep_kernel::ToolError::internal(error.to_string()))
    };
    if let Err(error) = carried.await {
        tracing::debug!(%workspace, guest_port, %error, "a connection to a forward is reset");
        // Where that fails, it ends as if it had been answered with nothing.
        let _ = SockRef::from(&client).set_linger(Some(Duration::ZERO));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use hivekeep_kernel::{CallCx, ToolError};
    use hivekeep_ports::ByteStream;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
    use tokio::net::UdpSocket;
    use tokio::sync::Notify;

    use super::*;

    /// Port 80 echoes; nothing answers on others.
    #[derive(Default)]
    struct Guest {
        wakes: Notify,
    }

    #[async_trait::async_trait]
    impl WorkspacePorts for Guest {
        async fn dial(
            &self,
            _: &CallCx,
            _: WorkspaceId,
            _: u16,
        ) -> Result<Box<dyn ByteStream>, ToolError> {
            Err(ToolError::internal("forwards have no caller"))
        }

        async fn dial_forward(
            &self,
            _: WorkspaceId,
            port: u16,
            _: Duration,
        ) -> Result<Box<dyn ByteStream>, ToolError> {
            let (ours, theirs) = tokio::io::duplex(1024);
            let (mut reader, mut writer) = split(theirs);
            tokio::spawn(async move {
                tokio::io::copy(&mut reader, &mut writer).await?;
                writer.write_all(b"end").await?;
                writer.shutdown().await
            });
            match port {
                80 => Ok(Box::new(ours)),
                _ => Err(ToolError::internal("nothing listens")),
            }
        }

        async fn wake(&self, _: WorkspaceId, _: Duration) -> Result<(), ToolError> {
            self.wakes.notify_one();
            Ok(())
        }
    }

    fn begin(guest_port: u16) -> (Acceptor, PortReservation, SocketAddrV4) {
        begin_of(Protocol::Tcp, guest_port, Arc::default())
    }

    fn begin_of(
        protocol: Protocol,
        guest_port: u16,
        guest: Arc<Guest>,
    ) -> (Acceptor, PortReservation, SocketAddrV4) {
        let range = crate::ports::AUTOMATIC;
        let here = Ipv4Addr::LOCALHOST;
        let held = PortReservation::automatic(here, protocol, range, |_| false).unwrap();
        let ports = Ports::default();
        ports.offer::<dyn WorkspacePorts>(guest);
        let to = ForwardTarget { workspace: WorkspaceId::new(), protocol, guest_port, ports };
        let (acceptor, work) = Acceptor::new(to);
        tokio::spawn(work);
        acceptor.listen(&held).unwrap();
        let at = held.at();
        (acceptor, held, at)
    }

    async fn told(client: &mut TcpStream, what: &[u8]) {
        client.write_all(what).await.unwrap();
        let mut echo = vec![0; what.len()];
        client.read_exact(&mut echo).await.unwrap();
        assert_eq!(echo, what);
    }

    #[tokio::test]
    async fn connections_are_carried_to_their_end_and_none_is_taken_at_rest() {
        let (acceptor, held, at) = begin(80);
        for _ in 0..2 {
            let mut client = TcpStream::connect(at).await.unwrap();
            told(&mut client, b"before").await;
            acceptor.rest();
            while TcpStream::connect(at).await.is_ok() {
                sleep(Duration::from_millis(50)).await;
            }
            told(&mut client, b"behind").await;
            client.shutdown().await.unwrap();
            let mut rest = String::new();
            client.read_to_string(&mut rest).await.unwrap();
            assert_eq!(rest, "end", "a half-closed connection still answers");
            acceptor.listen(&held).unwrap();
        }
        // With the forward its connections end.
        let mut client = TcpStream::connect(at).await.unwrap();
        told(&mut client, b"x").await;
        drop(acceptor);
        assert!(!matches!(client.read(&mut [0; 8]).await, Ok(1..)), "it outlives its forward");
    }

    #[tokio::test]
    async fn datagrams_wake_it_until_it_has_its_port_again() {
        let guest = Arc::<Guest>::default();
        let (acceptor, held, at) = begin_of(Protocol::Udp, 80, guest.clone());
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        for _ in 0..2 {
            client.send_to(b"wake", at).await.unwrap();
            guest.wakes.notified().await;
        }
        acceptor.rest();
        drop(held);
        while UdpSocket::bind(at).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn one_that_leads_nowhere_is_reset() {
        let (_acceptor, _held, at) = begin(81);
        let mut client = TcpStream::connect(at).await.unwrap();
        let ended = client.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::ConnectionReset);
    }
}
