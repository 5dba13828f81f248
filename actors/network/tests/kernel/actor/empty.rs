//! A host whose packet filter is emptied again and again, with guests that try everything.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use hivekeep_network::plan::{AddressLease, Subnet};
use hivekeep_network::selftest::frames;
use hivekeep_network::selftest::talk::{self, PATIENCE, QUIET, TestServer};
use hivekeep_network::selftest::test_guest::TestGuest;
use hivekeep_network::selftest::test_network::{HOST, PUBLIC, TestNetwork};
use hivekeep_network::{HostAccess, NetworkModeChoice};
use hivekeep_ports::{Netdev, Network as _, ReachPolicy, Transport};

use super::super::needs_root;
use super::{Daemon, ids, options, request, said};

const PORT: u16 = 7070;

/// What the daemon's side is told to do.
#[derive(Clone, Copy)]
enum Turn {
    Empty,
    Down,
    Up,
}

/// The daemon's side, in its namespace: members with every right, then turns until nobody is
/// there to give them. Says what it made, and that a turn is over.
async fn daemon(turns: mpsc::Receiver<Turn>, made: mpsc::Sender<Option<(AddressLease, Netdev)>>) {
    let folder = tempfile::tempdir().unwrap();
    let start = || Daemon::start(folder.path(), options(NetworkModeChoice::Bridge));
    let mut daemon = Some(start().await);
    let all = ReachPolicy { allow_internet: true, allow_inter_vm: true, ..Default::default() };
    for id in ids::<2>() {
        let network = &daemon.as_ref().unwrap().network;
        let attachment = network.join(id, request(&all)).await.unwrap();
        let cable = network.cable(id).await.unwrap();
        network.settled(id).await.unwrap();
        network.add_forward(id, Transport::Tcp, PORT, None).await.unwrap();
        made.send(Some((AddressLease::at(attachment.address), cable))).unwrap();
    }
    let turns = Arc::new(Mutex::new(turns));
    loop {
        let turns = turns.clone();
        // Beside the daemon's own work.
        let turn = tokio::task::spawn_blocking(move || turns.lock().unwrap().recv()).await;
        match turn.unwrap() {
            Ok(Turn::Empty) => _ = said("nft flush ruleset"),
            Ok(Turn::Down) => daemon.take().unwrap().stop().await,
            Ok(Turn::Up) => daemon = Some(start().await),
            Err(_) => break,
        }
        made.send(None).unwrap();
    }
    daemon.take().unwrap().stop().await;
}

/// Sends to everybody whom no rule lets it reach, until it is told to end; each time from another
/// port, for what the host answers it may answer.
fn knock(guest: &TestGuest, gateway: Ipv4Addr, end: &AtomicBool) {
    let targets = [Ipv4Addr::LOCALHOST, gateway, HOST, Ipv4Addr::BROADCAST];
    for port in (20_000..60_000).cycle() {
        if end.load(SeqCst) {
            break;
        }
        for to in targets {
            let path = [SocketAddrV4::new(guest.lease.address, port), SocketAddrV4::new(to, PORT)];
            let frame = frames::udp(AddressLease::at(gateway).mac, guest.lease.mac, path, b"knock");
            // A tap that is full or down for a moment.
            let _ = guest.send(&frame);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends who knocks, also when an assertion fails.
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn nothing_opens_with_the_daemon_up_or_down_and_what_is_allowed_comes_back() {
    needs_root!();
    let stage = TestNetwork::new(HostAccess::default()).unwrap();
    let at = |address| SocketAddrV4::new(address, PORT);
    let host = TestServer::start(&stage.host, at(Ipv4Addr::UNSPECIFIED)).unwrap();
    let _public = TestServer::start(&stage.world, at(PUBLIC)).unwrap();
    let subnet = Subnet::default();
    std::thread::scope(|scope| {
        let stage = &stage;
        let (give, turns) = mpsc::channel();
        let (made, results) = mpsc::channel();
        scope.spawn(move || stage.host.block_on(move || daemon(turns, made)));
        let [a, b] = [(); 2].map(|()| {
            let (lease, cable) = results.recv().unwrap().expect("a member");
            let Netdev::Tap(cable) = cable else { panic!("no tap") };
            TestGuest::plug(cable.try_clone().unwrap(), lease, subnet).unwrap()
        });
        let _in_b = TestServer::start(&b.inside, at(b.lease.address)).unwrap();
        let ends = Ends(Arc::default());
        let (a, end) = (Arc::new(a), ends.0.clone());
        let knocks = a.clone();
        std::thread::spawn(move || knock(&knocks, subnet.gateway(), &end));
        let turn = |turn| {
            give.send(turn).unwrap();
            assert!(results.recv().unwrap().is_none());
        };
        let allowed = |patience| {
            [PUBLIC, b.lease.address].map(|to| talk::tcp(&a.inside, at(to), patience).is_ok())
        };
        assert_eq!(allowed(PATIENCE), [true; 2]);
        // The one packet that is between the bridge's rules and the host's goes on.
        let open = |flushes| host.received("knock") > flushes;
        assert!(host.received("knock") == 0, "the rules were there");
        for _ in 0..5 {
            turn(Turn::Empty);
            assert_eq!(allowed(PATIENCE), [true; 2]);
        }
        assert!(!open(5), "the daemon was up: {host:?}");
        turn(Turn::Down);
        turn(Turn::Empty);
        assert_eq!(allowed(QUIET * 4), [false; 2]);
        assert!(!open(6), "the daemon was down: {host:?}");
        turn(Turn::Up);
        assert_eq!(allowed(PATIENCE), [true; 2]);
        assert!(!open(6), "the daemon came up: {host:?}");
    });
}
