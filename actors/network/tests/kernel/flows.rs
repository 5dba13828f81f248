//! What goes on while the network changes.

use std::net::{SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use hivekeep_kernel::WorkspaceId;
use hivekeep_network::plan::{
    AddressLease, Egress, MemberPolicy, NetworkMember, NetworkPlan, Subnet,
};
use hivekeep_network::rules::{self, name_set};
use hivekeep_network::selftest::frames;
use hivekeep_network::selftest::talk::{self, PATIENCE, QUIET, TestServer};
use hivekeep_network::selftest::test_network::{PUBLIC, TestNetwork};
use hivekeep_network::{Enforcer, HostAccess, ResolvedAddresses};

use super::needs_root;

fn internet() -> MemberPolicy {
    MemberPolicy { allow_internet: true, ..MemberPolicy::default() }
}

fn network(members: usize) -> (NetworkPlan, Vec<WorkspaceId>) {
    let mut network = NetworkPlan::new("test".parse().unwrap(), Subnet::default());
    let ids: Vec<_> = (0..members).map(|_| WorkspaceId::new()).collect();
    for id in &ids {
        let lease = network.allot(*id).unwrap();
        network
            .admit(
                *id,
                NetworkMember { lease, policy: internet(), forwards: Vec::new(), parked: false },
            )
            .unwrap();
    }
    (network, ids)
}

#[test]
fn no_packet_of_an_allowed_flow_is_lost_in_changes() {
    needs_root!();
    let (mut network, ids) = network(2);
    let mut stage = TestNetwork::new(HostAccess::default()).unwrap();
    stage.ensure(&network).unwrap();
    stage.plug(&network, ids[0]).unwrap();
    let to = SocketAddrV4::new(PUBLIC, 7070);
    let server = TestServer::start(&stage.world, to).unwrap();
    talk::udp(&stage.guest(ids[0]).inside, to, PATIENCE).unwrap();
    let socket = stage.guest(ids[0]).inside.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    let sender = std::thread::spawn(move || {
        for number in 0..800 {
            socket.send_to(format!("packet {number}.").as_bytes(), to).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let mut changes = 0;
    let began = Instant::now();
    while !sender.is_finished() {
        // Of another member, and of its own where that stays allowed.
        let mut other = network.member(ids[1]).unwrap().clone();
        other.policy.allow_internet ^= true;
        network.admit(ids[1], other).unwrap();
        let mut own = network.member(ids[0]).unwrap().clone();
        own.policy.allow_inter_vm ^= true;
        network.admit(ids[0], own).unwrap();
        stage.ensure(&network).unwrap();
        changes += 1;
    }
    let each = began.elapsed() / changes;
    println!("{changes} changes while packets went, {} ms each", each.as_millis());
    sender.join().unwrap();
    let end = Instant::now() + PATIENCE;
    while server.received("packet") < 800 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.received("packet"), 800);
    assert!(changes >= 3, "{changes}");
}

#[test]
fn hundreds_of_members_are_brought_up_and_changed() {
    needs_root!();
    let (mut network, ids) = network(200);
    let stage = TestNetwork::new(HostAccess::default()).unwrap();
    let began = Instant::now();
    assert_eq!(stage.ensure(&network).unwrap().made.len(), 200);
    println!("200 members in {} ms", began.elapsed().as_millis());
    let began = Instant::now();
    let mut one = network.member(ids[0]).unwrap().clone();
    one.policy = MemberPolicy::default();
    network.admit(ids[0], one).unwrap();
    let applied = stage.ensure(&network).unwrap();
    println!("one changed among them in {} ms", began.elapsed().as_millis());
    assert!(!applied.rebuilt && applied.made.is_empty());
}

#[test]
fn a_connection_outlives_the_name_that_opened_it_and_ends_with_the_entry() {
    needs_root!();
    let (mut network, ids) = network(1);
    let mut member = network.member(ids[0]).unwrap().clone();
    let entry: Egress = "good.example:7070/tcp".parse().unwrap();
    member.policy = MemberPolicy { egress_allow: vec![entry.clone()], ..MemberPolicy::default() };
    network.admit(ids[0], member.clone()).unwrap();
    let mut stage = TestNetwork::new(HostAccess::default()).unwrap();
    stage.ensure(&network).unwrap();
    stage.plug(&network, ids[0]).unwrap();
    let to = SocketAddrV4::new(PUBLIC, 7070);
    let server = TestServer::start(&stage.world, to).unwrap();
    let inside = &stage.guest(ids[0]).inside;
    assert!(talk::tcp(inside, to, QUIET).is_err());
    let tag = network.tag().clone();
    let opening =
        ResolvedAddresses { set: name_set(ids[0], &entry), addresses: vec![PUBLIC], secs: 4 };
    let work =
        move |mut enforcer: Enforcer| async move { enforcer.open_names(&tag, &[opening]).await };
    stage.enforcer(work).unwrap();
    assert!(talk::udp(inside, to, QUIET).is_err(), "only TCP is allowed");
    let (mut open, _) = talk::open(inside, to, PATIENCE).unwrap();
    let end = Instant::now() + PATIENCE;
    while talk::tcp(inside, to, QUIET).is_ok() {
        assert!(Instant::now() < end, "the address stays open");
    }
    assert!(talk::carries(&mut open, PATIENCE));
    stage.ensure(&network).unwrap();
    assert!(talk::carries(&mut open, PATIENCE));
    member.policy.egress_allow = vec!["other.example".parse().unwrap()];
    network.admit(ids[0], member).unwrap();
    stage.ensure(&network).unwrap();
    assert!(!talk::carries(&mut open, QUIET));
    drop(server);
}

#[test]
fn one_guest_does_not_fill_the_hosts_table_of_connections() {
    needs_root!();
    let (mut network, ids) = network(2);
    network.serve_names(true);
    let mut stage = TestNetwork::new(HostAccess::default()).unwrap();
    stage.ensure(&network).unwrap();
    ids.iter().for_each(|id| stage.plug(&network, *id).unwrap());
    let to = SocketAddrV4::new(PUBLIC, 7070);
    let server = TestServer::start(&stage.world, to).unwrap();
    let guest = stage.guest(ids[0]);
    let bridge = AddressLease::at(network.subnet().gateway()).mac;
    let resolver = SocketAddrV4::new(network.subnet().gateway(), 53);
    for (to, ports) in [(to, 10_000..16_000), (resolver, 10_000..12_000)] {
        for port in ports {
            let from = SocketAddrV4::new(guest.lease.address, port);
            let frame = frames::udp(bridge, guest.lease.mac, [from, to], b"one of many");
            // A full queue refuses a frame; the next ones find room.
            let _ = guest.send(&frame);
        }
    }
    let count = "/proc/sys/net/netfilter/nf_conntrack_count";
    let count = stage.host.run(move || std::fs::read_to_string(count)).unwrap();
    let count: u32 = count.trim().parse().unwrap();
    println!("{count} connections");
    assert!((1000..=rules::MAX_CONNECTIONS + 600).contains(&count), "{count}");
    talk::udp(&stage.guest(ids[1]).inside, to, PATIENCE).unwrap();
    drop(server);
}
