//! Plans hold together, whatever is asked of them.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use hivekeep_kernel::WorkspaceId;
use proptest::prelude::*;

use super::*;

fn network(subnet: &str) -> NetworkPlan {
    NetworkPlan::new("hk".parse().unwrap(), subnet.parse().unwrap())
}

fn member(lease: AddressLease) -> NetworkMember {
    NetworkMember { lease, policy: MemberPolicy::default(), forwards: Vec::new(), parked: false }
}

fn forward(host_ip: [u8; 4], host_port: u16) -> Forward {
    Forward { host_ip: host_ip.into(), host_port, guest_port: 80, protocol: Protocol::Tcp }
}

#[test]
fn every_place_of_a_subnet_is_given_once_and_then_it_is_full() {
    let mut network = network("10.1.2.0/28");
    for _ in 0..13 {
        let id = WorkspaceId::new();
        let lease = network.allot(id).unwrap();
        assert!(network.subnet().is_guest(lease.address), "{lease:?}");
        network.admit(id, member(lease)).unwrap();
    }
    let taken: BTreeSet<_> = network.members().map(|(_, member)| member.lease.mac).collect();
    assert_eq!(taken.len(), 13);
    let full = network.allot(WorkspaceId::new()).unwrap_err();
    assert_eq!(full, PlanError::SubnetFull(network.subnet()));
    for reserved in [0, 1, 15] {
        assert!(!network.subnet().is_guest(Ipv4Addr::new(10, 1, 2, reserved)));
    }
}

#[test]
fn a_workspace_finds_its_place_again_while_it_is_free() {
    let mut network = network("10.0.0.0/8");
    let [one, other] = [WorkspaceId::new(), WorkspaceId::new()];
    let lease = network.allot(one).unwrap();
    assert_eq!(network.allot(one).unwrap(), lease);
    network.admit(other, member(lease)).unwrap();
    assert_ne!(network.allot(one).unwrap(), lease);
    let refused = network.admit(one, member(lease)).unwrap_err();
    assert!(matches!(refused, PlanError::LeaseTaken { by, .. } if by == other), "{refused}");
    assert!(network.member(one).is_none());
    network.dismiss(other);
    network.admit(one, member(lease)).unwrap();
}

#[test]
fn leases_of_another_subnet_are_refused() {
    let mut network = network("10.1.0.0/16");
    for foreign in [[10, 2, 0, 5], [10, 1, 0, 1], [10, 1, 0, 0], [10, 1, 255, 255]] {
        let refused = network.admit(WorkspaceId::new(), member(AddressLease::at(foreign.into())));
        assert!(matches!(refused, Err(PlanError::LeaseElsewhere { .. })), "{foreign:?}");
    }
}

#[test]
fn a_port_of_the_host_leads_to_one_place() {
    let mut network = network("10.1.0.0/16");
    let [one, other] = [WorkspaceId::new(), WorkspaceId::new()];
    let mut first = member(network.allot(one).unwrap());
    first.forwards = vec![forward([127, 0, 0, 1], 8080), forward([127, 0, 0, 2], 8080)];
    network.admit(one, first.clone()).unwrap();
    // Its own forwards are no conflict when it is admitted again.
    network.admit(one, first.clone()).unwrap();
    let mut second = member(network.allot(other).unwrap());
    for (taken, ip) in [(true, [127, 0, 0, 1]), (true, [0, 0, 0, 0]), (false, [127, 0, 0, 3])] {
        second.forwards = vec![forward(ip, 8080)];
        let refused = network.admit(other, second.clone());
        let port = matches!(refused, Err(PlanError::PortTaken { by, .. }) if by == one);
        assert_eq!(port, taken, "{ip:?}: {refused:?}");
    }
    second.forwards = vec![Forward { protocol: Protocol::Udp, ..forward([0; 4], 8080) }];
    network.admit(other, second.clone()).unwrap();
    second.forwards.push(second.forwards[0]);
    let twice = network.admit(other, second);
    assert!(matches!(twice, Err(PlanError::PortTaken { by, .. }) if by == other), "{twice:?}");
}

#[test]
fn forwards_that_lead_nowhere_and_endless_lists_are_refused() {
    let mut network = network("10.1.0.0/16");
    let id = WorkspaceId::new();
    let lease = network.allot(id).unwrap();
    for bad in [forward([127, 0, 0, 1], 0), forward([10, 1, 0, 1], 80), forward([224, 0, 0, 1], 80)]
    {
        let refused = network.admit(id, NetworkMember { forwards: vec![bad], ..member(lease) });
        assert!(matches!(refused, Err(PlanError::BadForward(..))), "{bad:?}");
    }
    let many = (1..=65).map(|port| forward([127, 0, 0, 1], port)).collect();
    let refused = network.admit(id, NetworkMember { forwards: many, ..member(lease) });
    assert!(matches!(refused, Err(PlanError::TooMany { .. })));
    let destination: Egress = "example.org".parse().unwrap();
    let policy = MemberPolicy { egress_allow: vec![destination; 65], ..MemberPolicy::default() };
    let refused = network.admit(id, NetworkMember { policy, ..member(lease) });
    assert!(matches!(refused, Err(PlanError::TooMany { .. })));
}

#[test]
fn names_of_interfaces_fit_and_belong_to_one_tag() {
    let tag: Tag = "hk1234".parse().unwrap();
    let mut network = NetworkPlan::new(tag.clone(), "10.0.0.0/8".parse().unwrap());
    let lease = AddressLease::at(Ipv4Addr::new(10, 255, 255, 254));
    network.admit(WorkspaceId::new(), member(lease)).unwrap();
    let tap = network.tap(lease);
    assert!(tap.len() <= 15 && tag.bridge().len() <= 15, "{tap}");
    assert!(tag.owns(&tap) && tag.owns(&tag.bridge()));
    let other: Tag = "hk123".parse().unwrap();
    assert!(!other.owns(&tap));
    for foreign in ["hk1234", "hk1234-", "hk1234-t", "hk1234-tap0", "hk1234-br0", "hk1234-t00g0"] {
        assert!(!tag.owns(foreign), "{foreign}");
    }
    for bad in ["", "1a", "toolong", "Hk", "a-b", "a_b", "ä"] {
        assert!(bad.parse::<Tag>().is_err(), "{bad}");
    }
}

#[test]
fn subnets_are_private_and_of_a_sensible_size() {
    for good in ["10.0.0.0/8", "172.16.0.0/12", "192.168.8.0/29", "10.213.0.0/16"] {
        assert_eq!(good.parse::<Subnet>().unwrap().to_string(), good);
    }
    for bad in [
        "10.0.0.0",
        "10.0.0.0/7",
        "10.0.0.0/30",
        "10.0.0.1/8",
        "8.8.0.0/16",
        "172.0.0.0/8",
        "192.168.0.0/15",
        "fd00::/8",
        "",
    ] {
        assert!(bad.parse::<Subnet>().is_err(), "{bad}");
    }
}

#[test]
fn a_destination_admits_its_hosts_and_tcp_ports() {
    let admits =
        |entry: &str, host: &str, port| entry.parse::<Egress>().unwrap().admits_tcp(host, port);
    for (entry, host, port) in [
        ("example.org", "example.org", 1),
        ("*.example.org:443", "a.example.org", 443),
        ("example.org:80-90/tcp", "example.org", 85),
        ("10.0.0.0/8", "10.1.2.3", 443),
        ("93.184.216.34:443", "93.184.216.34", 443),
    ] {
        assert!(admits(entry, host, port), "{entry} {host} {port}");
    }
    for (entry, host, port) in [
        ("example.org", "a.example.org", 443),
        ("*.example.org", "example.org", 443),
        ("example.org", "notexample.org", 443),
        ("example.org:443", "example.org", 80),
        ("example.org:443/udp", "example.org", 443),
        ("10.0.0.0/8", "11.0.0.1", 443),
        ("0.0.0.0/0", "example.org", 443),
    ] {
        assert!(!admits(entry, host, port), "{entry} {host} {port}");
    }
}

#[test]
fn destinations_read_back_as_written() {
    for good in [
        "example.org",
        "*.example.org",
        "example.org:443",
        "example.org:443/tcp",
        "10.1.2.3",
        "*.example.org:1-65535/udp",
        "10.0.0.0/8:5000-5010",
        "0.0.0.0/0",
        "a_b.example:53/udp",
    ] {
        assert_eq!(good.parse::<Egress>().unwrap().to_string(), good);
    }
    assert_eq!("Example.ORG.".parse::<Egress>().unwrap().to_string(), "example.org");
    for bad in [
        "",
        "*",
        "*.",
        ".",
        "a..b",
        "*.*.example.org",
        "ex ample.org",
        "example.org:",
        "a:0",
        "a:5-4",
        "a:70000",
        "a:1/icmp",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "1.2.3",
        "::1",
        "a.123",
        "example.org/24",
        "a:1-2-3",
    ] {
        assert!(bad.parse::<Egress>().is_err(), "{bad}");
    }
}

#[test]
fn a_member_reads_back_from_the_journal_whole() {
    let mut all = member(AddressLease::at(Ipv4Addr::new(10, 1, 2, 3)));
    all.policy.allowed_ports = [80, 443].into();
    all.policy.egress_allow = vec!["*.example.org:443/tcp".parse().unwrap()];
    all.forwards = vec![forward([127, 0, 0, 1], 8080)];
    let json = serde_json::to_string(&all).unwrap();
    assert_eq!(serde_json::from_str::<NetworkMember>(&json).unwrap(), all);
    let bad = json.replace("*.example.org", "not a name");
    assert!(serde_json::from_str::<NetworkMember>(&bad).is_err());
    // As it was written before there were groups.
    assert!(!json.contains("group"), "{json}");
    all.policy.group = Some("a-b".parse().unwrap());
    let json = serde_json::to_string(&all).unwrap();
    assert_eq!(serde_json::from_str::<NetworkMember>(&json).unwrap(), all);
    assert!(serde_json::from_str::<NetworkMember>(&json.replace("a-b", "a_b")).is_err());
}

#[test]
fn a_wildcard_means_what_is_below_a_name_and_nothing_beside_it() {
    let name = |text: &str| match text.parse::<Egress>().unwrap().to {
        Destination::Name(name) => name,
        Destination::Block(_) => panic!("{text} is a block"),
    };
    let below = name("*.example.org");
    assert!(below.covers("a.example.org") && below.covers("a.b.example.org"));
    for other in ["example.org", "badexample.org", ".example.org", "a.example.org.evil", ""] {
        assert!(!below.covers(other), "{other}");
    }
    let exact = name("example.org");
    assert!(exact.covers("example.org") && !exact.covers("a.example.org"));
}

proptest! {
    #[test]
    fn blocks_contain_what_shares_their_bits(base: u32, bits in 0u8..=32, other: u32) {
        let block = AddressBlock::around(Ipv4Addr::from_bits(base), bits);
        prop_assert!(block.contains(Ipv4Addr::from_bits(base)));
        prop_assert_eq!(block.to_string().parse::<AddressBlock>(), Ok(block));
        let same = bits == 0 || (base ^ other) >> (32 - u32::from(bits)) == 0;
        prop_assert_eq!(block.contains(Ipv4Addr::from_bits(other)), same);
    }

    #[test]
    fn no_text_breaks_the_parsers(text in "\\PC{0,80}") {
        let _ = (text.parse::<Egress>(), text.parse::<Subnet>(), text.parse::<Tag>());
    }

    #[test]
    fn a_destination_that_parses_reads_back(
        text in "(\\*\\.)?[a-z]{1,5}(\\.[a-z]{1,5}){0,2}(:[1-9][0-9]{0,3})?"
    ) {
        let parsed: Egress = text.parse().unwrap();
        prop_assert_eq!(parsed.to_string().parse::<Egress>(), Ok(parsed));
    }
}
