//! The allow-list by name, with the resolver on the gateway and another one in the world.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::talk::{PATIENCE, TestServer};
use super::test_network::{METADATA, PUBLIC, WORLD};
use super::{PORT, Scene, Side};
use crate::plan::{MemberPolicy, Protocol, Tag};
use crate::resolver::{AddressOpener, Permits, Resolver, ResolverLimits, ResolverSettings};
use crate::rules::NAMES_MARK;
use crate::{Enforcer, Error, HostAccess, ResolvedAddresses};

/// Opens by an enforcer of its own.
struct Opener(tokio::sync::Mutex<Enforcer>, Tag);

#[async_trait]
impl AddressOpener for Opener {
    async fn open(&self, openings: Vec<ResolvedAddresses>) -> Result<(), Error> {
        self.0.lock().await.open_names(&self.1, &openings).await
    }
}

pub(super) fn names(scene: &mut Scene) -> Result<(), Error> {
    let to = SocketAddrV4::new(PUBLIC, PORT);
    let server = TestServer::start(&scene.stage.world, to)?;
    let metadata = TestServer::start(&scene.stage.world, SocketAddrV4::new(METADATA, PORT))?;
    let allowed = ["good.example".to_owned(), format!("*.bad.example:{PORT}")];
    let allowed = allowed.iter().map(|text| text.parse().expect("a destination"));
    scene.policy(
        scene.a,
        MemberPolicy { egress_allow: allowed.collect(), ..MemberPolicy::default() },
    )?;
    let upstream = SocketAddrV4::new(WORLD, 53);
    let socket = scene.stage.world.run(move || UdpSocket::bind(upstream));
    let socket = socket.map_err(Error::io("serve names in the world"))?;
    let end = Arc::new(AtomicBool::new(false));
    let stop = end.clone();
    let answering = std::thread::spawn(move || answer_all(&socket, &stop));
    let outcome = with_resolver(scene, upstream, |scene, gateway| {
        scene.closed("a to the server, by its address", Side::A, to, &server);
        let (code, found) = ask(scene, Side::A, Protocol::Udp, gateway, "good.example.")?;
        let known = found == [PUBLIC];
        scene.expect("a asks for its name", known, format!("{code}: {found:?}"));
        scene.open("a to the server, after asking", Side::A, to);
        let (code, found) = ask(scene, Side::A, Protocol::Tcp, gateway, "good.example.")?;
        let known = found == [PUBLIC];
        scene.expect("a asks for its name over TCP", known, format!("{code}: {found:?}"));
        scene.closed("b to the server", Side::B, to, &server);
        let (code, found) = ask(scene, Side::A, Protocol::Udp, gateway, "other.example.")?;
        let refused = code == ResponseCode::Refused && found.is_empty();
        scene.expect("a asks for another name", refused, format!("{code}: {found:?}"));
        let (code, found) = ask(scene, Side::B, Protocol::Udp, gateway, "good.example.")?;
        let refused = code == ResponseCode::Refused && found.is_empty();
        scene.expect("b asks for it", refused, format!("{code}: {found:?}"));
        let (code, found) = ask(scene, Side::A, Protocol::Udp, gateway, "metadata.bad.example.")?;
        scene.expect("a name of metadata", found == [METADATA], format!("{code}: {found:?}"));
        let at = SocketAddrV4::new(METADATA, PORT);
        scene.closed("a to metadata, by that name", Side::A, at, &metadata);
        // A change elsewhere does not close what was opened.
        scene.policy(scene.b, MemberPolicy { allow_internet: true, ..MemberPolicy::default() })?;
        scene.open("a to the server, after a change of b", Side::A, to);
        scene.policy(scene.a, MemberPolicy::default())?;
        scene.closed("a to the server, name no longer allowed", Side::A, to, &server);
        Ok(())
    });
    end.store(true, Ordering::Relaxed);
    // The thread ends within its read timeout.
    let _ = answering.join();
    outcome
}

/// Runs the resolver on the gateway in a thread of the host while the work goes on.
fn with_resolver(
    scene: &mut Scene,
    upstream: SocketAddrV4,
    work: impl FnOnce(&mut Scene, SocketAddrV4) -> Result<(), Error>,
) -> Result<(), Error> {
    let gateway = SocketAddrV4::new(scene.network.subnet().gateway(), 53);
    let (permits, tag) = (Permits::of(&scene.network), scene.network.tag().clone());
    let (ready, started) = std::sync::mpsc::sync_channel(1);
    let (end, mut ended) = tokio::sync::oneshot::channel::<()>();
    let serve = move || async move {
        let bound = async {
            let opener = Opener(Enforcer::open(HostAccess::default())?.into(), tag);
            let (limits, opens) = (ResolverLimits::default(), Arc::new(opener));
            let upstreams = vec![upstream.into()];
            let mark = Some(NAMES_MARK);
            let settings =
                ResolverSettings { listen: gateway, upstreams, limits, permits, opens, mark };
            Resolver::bind(settings).await
        };
        let resolver = match bound.await {
            Ok(resolver) => resolver,
            Err(error) => return drop(ready.send(Err(error))),
        };
        // The receiver waits below.
        let _ = ready.send(Ok(()));
        tokio::select! { _ = resolver.run() => {}, _ = &mut ended => {} }
    };
    // In the host's namespace, since threads are where their parent is.
    let thread = scene.stage.host.run(move || {
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime takes some descriptors only").block_on(serve());
        })
    });
    let started = started.recv().expect("the thread answers before it ends");
    let outcome = started.and_then(|()| {
        scene.network.serve_names(true);
        scene.stage.ensure(&scene.network)?;
        work(scene, gateway)
    });
    drop(end);
    // The thread ends because `end` was dropped.
    let _ = thread.join();
    outcome?;
    // The rules still let guests ask, as they do while the daemon is down.
    let stranger = TestServer::start(&scene.stage.host, gateway)?;
    scene.closed("a to another program on the port for names", Side::A, gateway, &stranger);
    Ok(())
}

/// Asks the gateway as a guest does.
fn ask(
    scene: &Scene,
    side: Side,
    by: Protocol,
    gateway: SocketAddrV4,
    name: &'static str,
) -> Result<(ResponseCode, Vec<Ipv4Addr>), Error> {
    let asked = scene.side(side).run(move || -> std::io::Result<Message> {
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        let name = Name::from_ascii(name).map_err(std::io::Error::other)?;
        message.add_query(Query::query(name, RecordType::A));
        let question = message.to_vec().map_err(std::io::Error::other)?;
        let answer = match by {
            Protocol::Udp => by_datagram(gateway, &question),
            Protocol::Tcp => by_stream(gateway, &question),
        };
        Message::from_vec(&answer?).map_err(std::io::Error::other)
    });
    let answer = asked.map_err(Error::io(format!("ask the gateway for {name}")))?;
    let found = answer.answers.iter().filter_map(|record| match &record.data {
        RData::A(address) => Some(address.0),
        _ => None,
    });
    Ok((answer.metadata.response_code, found.collect()))
}

fn by_datagram(gateway: SocketAddrV4, question: &[u8]) -> std::io::Result<Vec<u8>> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(gateway)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(question)?;
    let mut buffer = vec![0; 2048];
    let len = socket.recv(&mut buffer)?;
    buffer.truncate(len);
    Ok(buffer)
}

fn by_stream(gateway: SocketAddrV4, question: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&gateway.into(), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let len = u16::try_from(question.len()).map_err(std::io::Error::other)?;
    stream.write_all(&[&len.to_be_bytes(), question].concat())?;
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut answer = vec![0; u16::from_be_bytes(len).into()];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// A resolver that knows every name: those of metadata, and all others at the public server.
fn answer_all(socket: &UdpSocket, end: &AtomicBool) {
    let mut buffer = [0; 2048];
    // Without a timeout the thread could not end; then it does not begin.
    if socket.set_read_timeout(Some(Duration::from_millis(50))).is_err() {
        return;
    }
    while !end.load(Ordering::Relaxed) {
        let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
        let Ok(question) = Message::from_vec(&buffer[..len]) else { continue };
        let Some(query) = question.queries.first() else { continue };
        let is_metadata = query.name().to_ascii().starts_with("metadata.");
        let address = if is_metadata { METADATA } else { PUBLIC };
        let mut answer = Message::new(question.metadata.id, MessageType::Response, OpCode::Query);
        answer.add_query(query.clone());
        answer.add_answer(Record::from_rdata(query.name().clone(), 60, RData::A(A(address))));
        if let Ok(bytes) = answer.to_vec() {
            // The asker waits or asks again.
            let _ = socket.send_to(&bytes, from);
        }
    }
}
