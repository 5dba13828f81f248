//! Packets go on while policies change, and while the daemon is killed.

use std::collections::BTreeSet;
use std::net::{SocketAddrV4, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hivekeep_kernel::WorkspaceId;
use hivekeep_network::plan::{AddressLease, Subnet};
use hivekeep_network::selftest::talk::{self, PATIENCE, TestServer};
use hivekeep_network::selftest::test_guest::TestGuest;
use hivekeep_network::selftest::test_network::{PUBLIC, TestNetwork};
use hivekeep_network::{HostAccess, NetworkModeChoice};
use hivekeep_ports::{GroupChange, Netdev, Network as _, NetworkRequest, ReachPolicy};

use super::super::needs_root;
use super::{Daemon, ids, on_stage, options, request, said, taps};

fn internet() -> ReachPolicy {
    ReachPolicy { allow_internet: true, ..ReachPolicy::default() }
}

/// Puts a stand-in where a member's machine would be.
pub(super) async fn plug(daemon: &Daemon, id: WorkspaceId) -> TestGuest {
    let address = daemon.network.view(id).unwrap().attachment.address;
    let Netdev::Tap(cable) = daemon.network.cable(id).await.unwrap() else { panic!("no tap") };
    let cable = cable.try_clone().unwrap();
    TestGuest::plug(cable, AddressLease::at(address), Subnet::default()).unwrap()
}

const PACKETS: usize = 800;

/// Sends packets from a guest, one each 2 ms, after one that was answered.
async fn send(guest: TestGuest, to: SocketAddrV4) -> (TestGuest, std::thread::JoinHandle<()>) {
    let prepared = tokio::task::spawn_blocking(move || {
        talk::udp(&guest.inside, to, PATIENCE).unwrap();
        let socket = guest.inside.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        (guest, socket)
    });
    let (guest, socket) = prepared.await.unwrap();
    let sender = std::thread::spawn(move || {
        for number in 0..PACKETS {
            socket.send_to(format!("packet {number}.").as_bytes(), to).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    (guest, sender)
}

/// Runs work on a host while a guest sends to a server of the world; none may be lost.
fn without_loss<T: Send + 'static, F: Future<Output = T>>(
    work: impl FnOnce(PathBuf, SocketAddrV4) -> F + Send + 'static,
) -> T {
    let stage = TestNetwork::new(HostAccess::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let to = SocketAddrV4::new(PUBLIC, 7070);
    let server = TestServer::start(&stage.world, to).unwrap();
    let path = folder.path().to_owned();
    let outcome = stage.host.block_on(move || work(path, to));
    let end = Instant::now() + PATIENCE;
    while server.received("packet") < PACKETS && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.received("packet"), PACKETS);
    outcome
}

/// The cable ends with the guest, so what it sent has to be taken first.
async fn unplug(guest: TestGuest, sender: std::thread::JoinHandle<()>) {
    sender.join().unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(guest);
}

#[test]
fn no_packet_of_an_allowed_flow_is_lost_while_policies_change() {
    needs_root!();
    let mut took = without_loss(|path, to| async move {
        let daemon = Daemon::start(&path, options(NetworkModeChoice::Bridge)).await;
        let network = &daemon.network;
        let [id, other] = ids();
        for id in [id, other] {
            network.join(id, request(&internet())).await.unwrap();
            network.settled(id).await.unwrap();
        }
        let (guest, sender) = send(plug(&daemon, id).await, to).await;
        let mut took = Vec::new();
        let mut on = false;
        while !sender.is_finished() {
            on = !on;
            // Another member's, and its own where that stays allowed.
            for (id, request) in [
                (other, NetworkRequest { allow_internet: Some(!on), ..NetworkRequest::default() }),
                (id, NetworkRequest { allow_inter_vm: Some(on), ..NetworkRequest::default() }),
            ] {
                let began = Instant::now();
                network.set_policy(id, request).await.unwrap();
                took.push(began.elapsed());
            }
        }
        unplug(guest, sender).await;
        daemon.stop().await;
        took
    });
    took.sort_unstable();
    let (middle, most) = (took[took.len() / 2], took[took.len() - 1]);
    println!("{} changes, {middle:?} at the middle, {most:?} at most", took.len());
    assert!(took.len() >= 6, "{}", took.len());
}

#[test]
fn a_restart_of_the_daemon_loses_no_packet() {
    needs_root!();
    let starts = without_loss(|path, to| async move {
        let daemon = Daemon::start(&path, options(NetworkModeChoice::Bridge)).await;
        let [id] = ids();
        daemon.network.join(id, request(&internet())).await.unwrap();
        daemon.network.settled(id).await.unwrap();
        let (guest, sender) = send(plug(&daemon, id).await, to).await;
        daemon.stop().await;
        let mut starts = 0;
        while !sender.is_finished() {
            let daemon = Daemon::start(&path, options(NetworkModeChoice::Bridge)).await;
            daemon.network.settled(id).await.unwrap();
            daemon.stop().await;
            starts += 1;
        }
        unplug(guest, sender).await;
        starts
    });
    assert!(starts > 0);
}

/// The folder of a daemon that is going to be killed.
const HAMMER: &str = "TEST_HIVEKEEP_KEEPER_HAMMER";

#[test]
#[ignore = "a helper process, started by killed_in_the_middle"]
fn hammer() {
    let folder = PathBuf::from(std::env::var_os(HAMMER).expect("killed_in_the_middle sets it"));
    super::super::block_on(async {
        let daemon = Daemon::start(&folder, options(NetworkModeChoice::Bridge)).await;
        let note = |line: String| {
            use std::io::Write;
            let mut options = std::fs::OpenOptions::new();
            options.append(true).create(true);
            let mut file = options.open(folder.join("acknowledged")).unwrap();
            // One write: it is killed between any two.
            file.write_all(format!("{line}\n").as_bytes()).unwrap();
        };
        let mut members: Vec<WorkspaceId> = Vec::new();
        for turn in 0.. {
            let joining = ids::<3>();
            for id in joining {
                daemon.network.join(id, request(&internet())).await.unwrap();
                note(format!("join {id}"));
                members.push(id);
            }
            // Two are mates until the third change.
            let joins = |name: &str| Some(GroupChange::Join(name.parse().unwrap()));
            for (id, group) in [
                (joining[0], joins("a")),
                (joining[1], joins("a")),
                (joining[0], if turn % 2 == 0 { joins("a-b") } else { Some(GroupChange::Leave) }),
            ] {
                let allow_inter_vm = Some(turn % 2 == 0);
                let request = NetworkRequest { allow_inter_vm, group, ..NetworkRequest::default() };
                daemon.network.set_policy(id, request).await.unwrap();
            }
            while members.len() > 6 {
                let id = members.remove(0);
                note(format!("leaving {id}"));
                daemon.network.leave(id).await.unwrap();
                note(format!("leave {id}"));
            }
        }
    });
}

#[test]
fn killed_in_the_middle_it_has_what_it_acknowledged_and_nothing_else() {
    needs_root!();
    let stage = TestNetwork::new(HostAccess::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for round in 0..5u64 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "actor::flow::hammer", "--ignored", "--nocapture"])
            .env(HAMMER, folder.path());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let acknowledged = folder.path().join("acknowledged");
        let lines = |path: &PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let before = lines(&acknowledged).len();
        let mut child = stage.host.run(move || command.spawn()).unwrap();
        let end = Instant::now() + super::PATIENCE;
        while lines(&acknowledged).len() == before {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            assert!(Instant::now() < end, "it acknowledges nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(70 + 53 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        super::super::killed::settle(&stage);

        let (mut there, mut open) = (BTreeSet::new(), BTreeSet::new());
        for line in lines(&acknowledged).lines() {
            let (what, id) = line.split_once(' ').unwrap();
            let id: WorkspaceId = id.parse().unwrap();
            match what {
                "join" => _ = there.insert(id),
                "leaving" => _ = open.insert(id),
                _ => _ = there.remove(&id) | open.remove(&id),
            }
        }
        let path = folder.path().to_owned();
        stage.host.block_on(move || async move {
            let daemon = Daemon::start(&path, options(NetworkModeChoice::Bridge)).await;
            let mut planned = Vec::new();
            for id in &there {
                match daemon.network.view(*id) {
                    Some(view) => planned.push(view.attachment.address),
                    None => assert!(open.contains(id), "{id} was acknowledged and is gone"),
                }
            }
            if let Some(id) = there.iter().find(|id| daemon.network.view(**id).is_some()) {
                daemon.network.settled(*id).await.unwrap();
            }
            // Each killed daemon had at most one more on its way in.
            let taps = taps();
            let at_most = planned.len() + 1 + usize::try_from(round).unwrap();
            assert!((planned.len()..=at_most).contains(&taps.len()), "{taps:?} for {planned:?}");
            let rules = said("nft list set inet hivekeep-test members");
            for address in &planned {
                assert!(rules.contains(&address.to_string()), "{address}: {rules}");
            }
            assert_eq!(rules.matches("10.213.").count(), taps.len(), "{rules}");
            daemon.stop().await;
        });
    }
    // And nothing, where there is nobody any more.
    let path = folder.path().to_owned();
    stage.host.block_on(move || async move {
        let daemon = Daemon::start(&path, options(NetworkModeChoice::Bridge)).await;
        daemon.network.retain(Vec::new()).await.unwrap();
        daemon.network.take_down().await;
        assert_eq!(said("nft list tables"), "");
        assert_eq!(taps(), Vec::<String>::new());
        assert!(!said("ip link show").contains("test-br"));
        daemon.stop().await;
    });
}

#[test]
fn a_guest_is_answered_by_the_resolver_and_told_no() {
    needs_root!();
    on_stage(|folder| async move {
        let daemon = Daemon::start(&folder, options(NetworkModeChoice::Bridge)).await;
        let [id] = ids();
        let attachment = daemon.network.join(id, NetworkRequest::default()).await.unwrap();
        daemon.network.settled(id).await.unwrap();
        let guest = plug(&daemon, id).await;
        // `a.example`, class IN, type A, in a query with the id 7.
        let query = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x01a\x07example\0\0\x01\0\x01".to_vec();
        let to = SocketAddrV4::new(attachment.dns.unwrap(), 53);
        let answer = tokio::task::spawn_blocking(move || {
            let socket = guest.inside.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            let end = Instant::now() + PATIENCE;
            let mut buffer = [0; 512];
            loop {
                socket.send_to(&query, to).unwrap();
                if let Ok((len, _)) = socket.recv_from(&mut buffer) {
                    return buffer[..len].to_vec();
                }
                assert!(Instant::now() < end, "no answer");
            }
        })
        .await
        .unwrap();
        assert_eq!(answer[..2], [0, 7]);
        assert_eq!(answer[3] & 0xf, 5, "it was not refused: {answer:?}");
        daemon.stop().await;
    });
}
