//! Packets for parked machines.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use hivekeep_kernel::WorkspaceId;
use hivekeep_network::NetworkModeChoice;
use hivekeep_network::selftest::talk::PATIENCE;
use hivekeep_network::selftest::test_guest::TestGuest;
use hivekeep_ports::{
    ForwardedPort, Network as _, NetworkRequest, ReachPolicy, Transport, WorkspacePorts,
};

use super::super::needs_root;
use super::flow::plug;
use super::guests::Guests;
use super::{Daemon, ids, on_stage, options, request, said, taps, until};

/// A daemon with a member whose port 80 is forwarded.
async fn begin(folder: &std::path::Path) -> (Daemon, Arc<Guests>, WorkspaceId, ForwardedPort) {
    let daemon = Daemon::start(folder, options(NetworkModeChoice::Bridge)).await;
    let [id] = ids();
    daemon.network.join(id, NetworkRequest::default()).await.unwrap();
    daemon.network.settled(id).await.unwrap();
    let forward = daemon.network.add_forward(id, Transport::Udp, 80, None).await.unwrap();
    (daemon, Arc::default(), id, forward)
}

/// The tap of the only member is held by somebody.
fn is_held() -> bool {
    said("ip -o link show type tun").contains("LOWER_UP")
}

async fn sleeps(daemon: &Daemon, id: WorkspaceId, guest: Option<TestGuest>) {
    daemon.network.set_parked(id, true).await.unwrap();
    tokio::task::spawn_blocking(move || drop(guest)).await.unwrap();
    until("its tap is held", is_held).await;
}

fn client(forward: &ForwardedPort) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(forward.host()).unwrap();
    socket
}

fn server(guest: &TestGuest) -> UdpSocket {
    let socket = guest.inside.run(|| UdpSocket::bind("0.0.0.0:80")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

const FIRST: &[u8] = b"first";

/// Sends until something is heard: what comes before a guest's interface is up is lost.
fn reach(client: &UdpSocket, server: &UdpSocket) {
    server.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut tries = (0..50).map(|_| client.send(FIRST).unwrap());
    assert!(tries.any(|_| server.recv(&mut [0; 64]).is_ok()), "the guest is not reached");
    server.set_read_timeout(Some(PATIENCE)).unwrap();
}

#[track_caller]
fn heard(server: &UdpSocket) -> String {
    let mut buffer = [0; 64];
    loop {
        let (len, from) = server.recv_from(&mut buffer).expect("a datagram comes");
        if buffer[..len] != *FIRST {
            server.send_to(&buffer[..len], from).unwrap();
            return String::from_utf8_lossy(&buffer[..len]).into_owned();
        }
    }
}

#[track_caller]
fn answered(client: &UdpSocket) -> String {
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = [0; 64];
    let len = client.recv(&mut buffer).expect("an answer comes");
    String::from_utf8_lossy(&buffer[..len]).into_owned()
}

#[test]
fn datagrams_wake_a_parked_machine_once_and_reach_it() {
    needs_root!();
    on_stage(|folder| async move {
        let (daemon, wakes, id, forward) = begin(&folder).await;
        daemon.ports.offer::<dyn WorkspacePorts>(wakes.clone());
        wakes.wake.store(true, SeqCst);
        let guest = plug(&daemon, id).await;
        let old = client(&forward);
        let inside = server(&guest);
        reach(&old, &inside);
        old.send(b"before").unwrap();
        assert_eq!((heard(&inside), answered(&old)), ("before".into(), "before".into()));
        sleeps(&daemon, id, Some(guest)).await;

        // Of a flow that the kernel led before, and of a new one.
        old.send(b"one").unwrap();
        until("it is woken", || wakes.asked() == 1).await;
        let new = client(&forward);
        new.send(b"two").unwrap();
        old.send(b"three").unwrap();
        let guest = plug(&daemon, id).await;
        let inside = server(&guest);
        daemon.network.set_parked(id, false).await.unwrap();
        for expected in ["one", "two", "three"] {
            assert_eq!(heard(&inside), expected);
        }
        assert_eq!((answered(&old), answered(&new)), ("one".into(), "two".into()));
        assert_eq!(answered(&old), "three");
        new.send(b"after").unwrap();
        assert_eq!(heard(&inside), "after");
        assert_eq!(wakes.asked(), 1);
        tokio::task::spawn_blocking(move || drop(guest)).await.unwrap();
        daemon.stop().await;
    });
}

#[test]
fn a_machine_that_is_not_woken_is_tried_again_and_leaves_its_tap() {
    needs_root!();
    on_stage(|folder| async move {
        let (daemon, wakes, id, forward) = begin(&folder).await;
        daemon.ports.offer::<dyn WorkspacePorts>(wakes.clone());
        sleeps(&daemon, id, None).await;
        let client = client(&forward);
        client.send(b"lost").unwrap();
        until("it is asked for", || wakes.asked() == 1).await;
        daemon.stop().await;
        until("nobody has its tap", || !is_held()).await;

        // The next daemon, and one whose machine did not go on.
        let daemon = Daemon::start(&folder, options(NetworkModeChoice::Bridge)).await;
        daemon.ports.offer::<dyn WorkspacePorts>(wakes.clone());
        until("its tap is held again", is_held).await;
        until("it is asked for again", || {
            client.send(b"lost").unwrap();
            wakes.asked() == 2
        })
        .await;
        tokio::task::spawn_blocking({
            let guest = plug(&daemon, id).await;
            move || drop(guest)
        })
        .await
        .unwrap();
        until("its tap is held after it", is_held).await;
        until("it is asked for after a pause", || {
            client.send(b"lost").unwrap();
            wakes.asked() >= 3
        })
        .await;
        daemon.network.leave(id).await.unwrap();
        until("its tap is gone", || taps().is_empty()).await;

        // One that sleeps holds up no stop.
        let [other] = ids();
        daemon.network.join(other, NetworkRequest::default()).await.unwrap();
        daemon.network.settled(other).await.unwrap();
        sleeps(&daemon, other, None).await;
        daemon.network.take_down().await;
        assert_eq!((said("nft list tables"), taps()), (String::new(), Vec::new()));
        daemon.stop().await;
    });
}

#[test]
fn another_member_wakes_it_where_it_may_reach_it() {
    needs_root!();
    on_stage(|folder| async move {
        let daemon = Daemon::start(&folder, options(NetworkModeChoice::Bridge)).await;
        let wakes = Arc::<Guests>::default();
        daemon.ports.offer::<dyn WorkspacePorts>(wakes.clone());
        let [id, peer] = ids();
        for member in [id, peer] {
            daemon.network.join(member, NetworkRequest::default()).await.unwrap();
            daemon.network.settled(member).await.unwrap();
        }
        let guest = plug(&daemon, peer).await;
        daemon.network.set_parked(id, true).await.unwrap();
        let held = || said("ip -o link show type tun").matches("LOWER_UP").count();
        until("both taps are held", || held() == 2).await;
        let socket = guest.inside.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        let to = (daemon.network.view(id).unwrap().attachment.address, 80);
        for _ in 0..20 {
            // The host refuses it.
            let _ = socket.send_to(b"hello", to);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(wakes.asked(), 0, "one that may not reach it");
        let open = ReachPolicy { allow_inter_vm: true, ..ReachPolicy::default() };
        for member in [id, peer] {
            daemon.network.set_policy(member, request(&open)).await.unwrap();
        }
        until("it is woken", || {
            let _ = socket.send_to(b"hello", to);
            wakes.asked() == 1
        })
        .await;
        tokio::task::spawn_blocking(move || drop(guest)).await.unwrap();
        daemon.stop().await;
    });
}
