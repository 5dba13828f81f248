//! The frames of the self-test do arrive where a rule is missing: each wall is what stops them,
//! not a mistake in the frame.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;
use std::time::{Duration, Instant};

use hivekeep_kernel::WorkspaceId;
use hivekeep_network::plan::{
    AddressLease, Forward, MemberPolicy, NetworkMember, NetworkPlan, Protocol, Subnet,
};
use hivekeep_network::selftest::talk::{PATIENCE, QUIET, TestServer};
use hivekeep_network::selftest::test_network::{HOST, PUBLIC, TestNetwork};
use hivekeep_network::selftest::{frames, talk};
use hivekeep_network::{Enforcer, HostAccess, Namespace};

use super::needs_root;

/// Takes the second wall away.
const NO_WALL: &str = "tc qdisc del dev test-br clsact";

/// Has the host's loopback lead to a guest, so that the kernel takes packets to loopback.
fn forward_loopback(stage: &TestNetwork, network: &mut NetworkPlan, id: WorkspaceId) {
    let mut member = network.member(id).unwrap().clone();
    let (host_ip, protocol) = (Ipv4Addr::LOCALHOST, Protocol::Tcp);
    member.forwards = vec![Forward { host_ip, host_port: 8080, guest_port: 80, protocol }];
    network.admit(id, member).unwrap();
    stage.ensure(network).unwrap();
}

/// Two guests with the internet, on a stage.
fn scene() -> (TestNetwork, NetworkPlan, [WorkspaceId; 2]) {
    let mut network = NetworkPlan::new("test".parse().unwrap(), Subnet::default());
    let ids = [(); 2].map(|()| WorkspaceId::new());
    for id in ids {
        let policy = MemberPolicy { allow_internet: true, ..MemberPolicy::default() };
        let lease = network.allot(id).unwrap();
        network
            .admit(id, NetworkMember { lease, policy, forwards: Vec::new(), parked: false })
            .unwrap();
    }
    let mut stage = TestNetwork::new(HostAccess::default()).unwrap();
    stage.ensure(&network).unwrap();
    ids.iter().for_each(|id| stage.plug(&network, *id).unwrap());
    (stage, network, ids)
}

fn run(namespace: &Namespace, line: &str) {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let done = namespace.run(move || Command::new(&words[0]).args(&words[1..]).status());
    assert!(done.unwrap().success(), "{line}");
}

/// Sends until something is heard, for as long as patience lasts.
fn arrives(send: impl Fn(), heard: impl Fn() -> usize, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    while heard() == 0 && Instant::now() < end {
        send();
        std::thread::sleep(Duration::from_millis(20));
    }
    heard() > 0
}

#[test]
fn false_senders_are_stopped_by_the_bridge_table() {
    needs_root!();
    let (stage, network, [a, b]) = scene();
    let to = SocketAddrV4::new(PUBLIC, 7070);
    let server = TestServer::start(&stage.world, to).unwrap();
    let bridge = AddressLease::at(network.subnet().gateway()).mac;
    let path = [SocketAddrV4::new(stage.guest(b).lease.address, 7070), to];
    let frame = frames::udp(bridge, stage.guest(a).lease.mac, path, b"a lie");
    let send = || stage.guest(a).send(&frame).unwrap();
    assert!(!arrives(send, || server.received("a lie"), QUIET));
    run(&stage.host, &format!("nft delete table bridge {}", network.tag().table()));
    // Behind it stands the wall, which misses its mark.
    assert!(!arrives(send, || server.received("a lie"), QUIET));
    run(&stage.host, NO_WALL);
    assert!(arrives(send, || server.received("a lie"), PATIENCE));
}

#[test]
fn guests_are_kept_apart_by_the_bridge_table_and_by_the_ports() {
    needs_root!();
    let (stage, network, [a, b]) = scene();
    let (from, to) = (stage.guest(a).lease.mac, stage.guest(b).lease.mac);
    let frame = frames::ethernet(to, from, 0x88b5, b"from a stranger");
    let send = || stage.guest(a).send(&frame).unwrap();
    let heard = || stage.guest(b).received(b"from a stranger");
    assert!(!arrives(send, heard, QUIET));
    let unisolate = |id| {
        let tap = network.tap(stage.guest(id).lease);
        run(&stage.host, &format!("bridge link set dev {tap} isolated off"));
    };
    // Either wall is enough.
    [a, b].into_iter().for_each(unisolate);
    assert!(!arrives(send, heard, QUIET));
    run(&stage.host, &format!("nft delete table bridge {}", network.tag().table()));
    assert!(arrives(send, heard, PATIENCE));
}

#[test]
fn the_ports_alone_keep_guests_apart() {
    needs_root!();
    let (stage, network, [a, b]) = scene();
    run(&stage.host, &format!("nft delete table bridge {}", network.tag().table()));
    let (from, to) = (stage.guest(a).lease.mac, stage.guest(b).lease.mac);
    for to in [to, frames::BROADCAST] {
        let frame = frames::ethernet(to, from, 0x88b5, b"from a stranger");
        let send = || stage.guest(a).send(&frame).unwrap();
        assert!(!arrives(send, || stage.guest(b).received(b"from a stranger"), QUIET), "{to}");
    }
}

#[test]
fn the_hosts_loopback_and_services_are_closed_by_the_inet_table() {
    needs_root!();
    let (stage, mut network, [a, _]) = scene();
    forward_loopback(&stage, &mut network, a);
    let lease = stage.guest(a).lease;
    let loopback = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7070);
    let service = SocketAddrV4::new(network.subnet().gateway(), 7071);
    let servers = [loopback, service].map(|at| TestServer::start(&stage.host, at).unwrap());
    let bridge = AddressLease::at(network.subnet().gateway()).mac;
    let path = [SocketAddrV4::new(lease.address, 7070), loopback];
    let frame = frames::udp(bridge, lease.mac, path, b"to loopback");
    let send = || stage.guest(a).send(&frame).unwrap();
    assert!(!arrives(send, || servers[0].received("to loopback"), QUIET));
    assert!(talk::tcp(&stage.guest(a).inside, service, QUIET).is_err());
    run(&stage.host, &format!("nft delete table inet {}", network.tag().table()));
    assert!(arrives(send, || servers[0].received("to loopback"), PATIENCE));
    // What comes back is stopped by the wall.
    assert!(talk::tcp(&stage.guest(a).inside, service, QUIET).is_err());
    run(&stage.host, NO_WALL);
    assert!(talk::tcp(&stage.guest(a).inside, service, PATIENCE).is_ok());
}

#[test]
fn an_emptied_packet_filter_is_made_up_for_by_the_second_wall() {
    needs_root!();
    let (stage, mut network, [a, b]) = scene();
    forward_loopback(&stage, &mut network, a);
    let lease = stage.guest(a).lease;
    let bridge = AddressLease::at(network.subnet().gateway()).mac;
    let at = |address| SocketAddrV4::new(address, 7070);
    let host = TestServer::start(&stage.host, at(Ipv4Addr::UNSPECIFIED)).unwrap();
    let in_b = TestServer::start(&stage.guest(b).inside, at(stage.guest(b).lease.address)).unwrap();
    let public = TestServer::start(&stage.world, at(PUBLIC)).unwrap();
    let ways = [
        (Ipv4Addr::LOCALHOST, &host),
        (network.subnet().gateway(), &host),
        (HOST, &host),
        (Ipv4Addr::BROADCAST, &host),
        (stage.guest(b).lease.address, &in_b),
        (PUBLIC, &public),
    ];
    let passes = |patience| {
        ways.map(|(to, server)| {
            let path = [at(lease.address), at(to)];
            let frame = frames::udp(bridge, lease.mac, path, to.to_string().as_bytes());
            let send = || stage.guest(a).send(&frame).unwrap();
            arrives(send, || server.received(&format!(" {to}")), patience)
        })
    };
    stage.lose_rules().unwrap();
    assert_eq!(passes(QUIET), [false; 6]);
    run(&stage.host, NO_WALL);
    assert_eq!(passes(PATIENCE), [true; 6]);
}

#[test]
fn loopback_is_routed_only_while_a_forward_leads_from_it() {
    needs_root!();
    let (stage, network, [a, _]) = scene();
    let mut member = network.member(a).unwrap().clone();
    let forward = |host_ip| {
        let protocol = Protocol::Tcp;
        vec![Forward { host_ip, host_port: 8080, guest_port: 80, protocol }]
    };
    let some = [Ipv4Addr::LOCALHOST, HOST, Ipv4Addr::UNSPECIFIED].map(forward);
    let mut plans = vec![network.clone()];
    for forwards in [vec![some[0].clone()], vec![Vec::new()], some[1..].to_vec()].concat() {
        member.forwards = forwards;
        plans.push(plans[0].clone());
        plans.last_mut().unwrap().admit(a, member.clone()).unwrap();
    }
    let seen = |whole: bool| {
        let plans = plans.clone();
        let work = move |mut enforcer: Enforcer| async move {
            let mut seen = Vec::new();
            for plan in &plans {
                match whole {
                    true => enforcer.ensure(plan).await?,
                    false => enforcer.apply(plan).await?,
                };
                let key = "/proc/sys/net/ipv4/conf/test-br/route_localnet";
                seen.push(std::fs::read_to_string(key).unwrap().trim() == "1");
            }
            Ok(seen)
        };
        stage.enforcer(work).unwrap()
    };
    assert_eq!(seen(true), [false, true, false, false, true]);
    assert_eq!(seen(false), [false, true, false, false, true]);
}

#[test]
fn the_port_for_names_is_closed_to_other_programs_by_the_mark() {
    needs_root!();
    let (stage, mut network, [a, _]) = scene();
    // As the rules are while the daemon is down.
    network.serve_names(true);
    stage.ensure(&network).unwrap();
    let at = SocketAddrV4::new(network.subnet().gateway(), 53);
    let stranger = TestServer::start(&stage.host, at).unwrap();
    let inside = &stage.guest(a).inside;
    assert!(talk::tcp(inside, at, QUIET).is_err() && talk::udp(inside, at, QUIET).is_err());
    assert_eq!(stranger.received(""), 0);
    let table = network.tag().table();
    run(&stage.host, &format!("nft insert rule inet {table} names goto served"));
    assert!(talk::tcp(inside, at, PATIENCE).is_ok() && talk::udp(inside, at, PATIENCE).is_ok());
}
