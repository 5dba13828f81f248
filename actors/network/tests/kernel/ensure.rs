//! From whatever is there to the plan, and back to nothing.

use std::net::Ipv4Addr;
use std::process::Command;

use hivekeep_kernel::WorkspaceId;
use hivekeep_network::plan::{Forward, MemberPolicy, NetworkMember, NetworkPlan, Protocol, Subnet};
use hivekeep_network::selftest::test_network::{HOST, TestNetwork, UPLINK};
use hivekeep_network::{Error, HostAccess, Owner, ResolvedAddresses, rules};

use super::needs_root;

const FOREIGN: &str = "
table inet other {
    set blocked {
        type ipv4_addr
        elements = { 192.0.2.1, 192.0.2.2 }
    }
    chain forward {
        type filter hook forward priority 5; policy drop;
        ip saddr @blocked counter drop
    }
}
table bridge other {
    chain forward {
        type filter hook forward priority 0;
        ether type arp accept
    }
}
table ip hivekeep {
    chain mine {
        ip daddr 192.0.2.9 drop
    }
}
";

pub(super) fn internet() -> MemberPolicy {
    MemberPolicy { allow_internet: true, ..MemberPolicy::default() }
}

/// A plan with members of these policies.
pub(super) fn plan(
    policies: impl IntoIterator<Item = MemberPolicy>,
) -> (NetworkPlan, Vec<WorkspaceId>) {
    let mut network = NetworkPlan::new("test".parse().unwrap(), Subnet::default());
    let mut ids = Vec::new();
    for policy in policies {
        let id = WorkspaceId::new();
        let lease = network.allot(id).unwrap();
        network
            .admit(id, NetworkMember { lease, policy, forwards: Vec::new(), parked: false })
            .unwrap();
        ids.push(id);
    }
    (network, ids)
}

/// What a program says in the stage's host.
pub(super) fn said(stage: &TestNetwork, line: &str) -> String {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let output = stage.host.run(move || Command::new(&words[0]).args(&words[1..]).output());
    let output = output.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn foreign(stage: &TestNetwork) {
    let file = std::env::temp_dir().join(format!("hivekeep-foreign-{}", std::process::id()));
    std::fs::write(&file, FOREIGN).unwrap();
    said(stage, &format!("nft -f {}", file.display()));
    std::fs::remove_file(file).unwrap();
}

fn foreign_tables(stage: &TestNetwork) -> String {
    let tables = ["inet other", "bridge other", "ip hivekeep"];
    tables.map(|table| said(stage, &format!("nft -a list table {table}"))).concat()
}

/// Of interfaces: what stays the same when nothing is done.
pub(super) fn links(stage: &TestNetwork) -> String {
    let lines = said(stage, "ip -o link show");
    lines.lines().map(|line| format!("{}\n", line.split(" state ").next().unwrap())).collect()
}

pub(super) fn remove_all(stage: &TestNetwork, network: &NetworkPlan) {
    let tag = network.tag().clone();
    stage.enforcer(move |mut enforcer| async move { enforcer.remove_all(&tag).await }).unwrap();
}

#[test]
fn what_is_the_hosts_stays_byte_for_byte_and_nothing_of_ours_does() {
    needs_root!();
    let stage = TestNetwork::new(HostAccess::default()).unwrap();
    foreign(&stage);
    let (rules, interfaces) = (foreign_tables(&stage), links(&stage));
    let everything = said(&stage, "nft list ruleset");
    let (mut network, ids) = plan([internet(), MemberPolicy::default()]);
    let applied = stage.ensure(&network).unwrap();
    assert_eq!(applied.made.len(), 2);
    assert_eq!(applied.uplinks, [UPLINK]);
    let obstacles: Vec<_> = applied.obstacles.iter().map(|o| o.chain.as_str()).collect();
    assert_eq!(obstacles, ["inet other forward"]);
    assert_eq!(foreign_tables(&stage), rules);
    network.dismiss(ids[0]);
    let applied = stage.ensure(&network).unwrap();
    assert_eq!((applied.made.len(), applied.removed.len()), (0, 1));
    assert_eq!(foreign_tables(&stage), rules);
    remove_all(&stage, &network);
    assert_eq!(said(&stage, "nft list ruleset"), everything);
    assert_eq!(links(&stage), interfaces);
    remove_all(&stage, &network);
}

#[test]
fn again_is_the_same() {
    needs_root!();
    let stage = TestNetwork::new(HostAccess::default()).unwrap();
    let (network, _) = plan([internet(), MemberPolicy::default()]);
    stage.ensure(&network).unwrap();
    let state = |stage: &TestNetwork| {
        let neighbours = said(stage, "ip neigh show nud permanent dev test-br");
        let places = said(stage, "bridge fdb show br test-br");
        [said(stage, "nft list ruleset"), links(stage), neighbours, places]
    };
    let before = state(&stage);
    assert_eq!(before[2].lines().count(), 2, "{}", before[2]);
    let applied = stage.ensure(&network).unwrap();
    assert!(!applied.rebuilt && applied.made.is_empty() && applied.removed.is_empty());
    assert_eq!(state(&stage), before);
    // What others may do to the kernel's tables.
    said(&stage, "ip neigh flush nud permanent dev test-br");
    assert_ne!(state(&stage), before);
    stage.ensure(&network).unwrap();
    assert_eq!(state(&stage), before);
}

#[test]
fn remains_of_any_kind_are_brought_to_the_plan() {
    needs_root!();
    let (network, ids) = plan([internet(), MemberPolicy::default()]);
    let lease = network.member(ids[0]).unwrap().lease;
    let tap = network.tap(lease);
    let clean = TestNetwork::new(HostAccess::default()).unwrap();
    clean.ensure(&network).unwrap();
    let (rules, table) = (said(&clean, "nft list ruleset"), network.tag().table());
    for remains in [
        // Of another plan, of another version, and of a start that was killed half-way.
        vec![
            "ip tuntap add test-t00aa mode tap".to_owned(),
            "ip link add test-br type bridge".into(),
        ],
        vec![format!("ip tuntap add {tap} mode tap")],
        vec![
            "ip link add test-br type bridge".to_owned(),
            "ip addr add 10.77.0.1/24 dev test-br".into(),
            format!("ip tuntap add {tap} mode tap"),
            format!("ip link set {tap} master test-br"),
        ],
        vec![format!("nft add table inet {table}"), format!("nft add chain inet {table} out_gone")],
        vec![
            format!("nft add table inet {table}"),
            format!(
                "nft add chain inet {table} forward {{ type filter hook output priority 7 ; }}"
            ),
            format!("nft add set inet {table} members {{ type ether_addr ; }}"),
        ],
    ] {
        let stage = TestNetwork::new(HostAccess::default()).unwrap();
        remains.iter().for_each(|line| _ = said(&stage, line));
        let applied = stage.ensure(&network).unwrap();
        assert_eq!(said(&stage, "nft list ruleset"), rules, "{remains:?}: {applied:?}");
        let seen = links(&stage);
        assert!(!seen.contains("test-t00aa") && seen.contains(&tap), "{seen}");
        let port = said(&stage, &format!("ip -d link show {tap}"));
        assert!(port.contains("isolated on") && port.contains("master test-br"), "{port}");
        let addresses = said(&stage, "ip -o -4 addr show dev test-br");
        assert_eq!(addresses.lines().count(), 1, "{addresses}");
    }
}

#[test]
fn what_names_opened_outlives_other_changes_and_ends_by_itself() {
    needs_root!();
    let stage = TestNetwork::new(HostAccess::default()).unwrap();
    let entry: hivekeep_network::plan::Egress = "good.example".parse().unwrap();
    let named = MemberPolicy { egress_allow: vec![entry.clone()], ..MemberPolicy::default() };
    let (mut network, ids) = plan([named, MemberPolicy::default()]);
    stage.ensure(&network).unwrap();
    let set = rules::name_set(ids[0], &entry);
    let open = |secs| {
        let addresses = vec![Ipv4Addr::new(203, 0, 113, 9)];
        let (tag, opening) =
            (network.tag().clone(), ResolvedAddresses { set: set.clone(), addresses, secs });
        let work = move |mut enforcer: hivekeep_network::Enforcer| async move {
            enforcer.open_names(&tag, &[opening]).await
        };
        stage.enforcer(work)
    };
    let line = format!("nft list set inet {} {set}", network.tag().table());
    open(1).unwrap();
    // Opened again before its end, it lives for the new time.
    open(100).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(said(&stage, &line).contains("203.0.113.9"));
    let mut other = network.member(ids[1]).unwrap().clone();
    other.policy = internet();
    network.admit(ids[1], other).unwrap();
    assert!(!stage.ensure(&network).unwrap().rebuilt);
    assert!(said(&stage, &line).contains("203.0.113.9"));
    let tag = network.tag().clone();
    let gone = ResolvedAddresses {
        set: "names_gone".into(),
        addresses: vec![Ipv4Addr::LOCALHOST],
        secs: 9,
    };
    let refused =
        stage.enforcer(move |mut enforcer| async move { enforcer.open_names(&tag, &[gone]).await });
    assert!(matches!(refused, Err(Error::NftRefused { .. })), "{refused:?}");
}

#[test]
fn an_uplink_forwards_only_while_someone_needs_it() {
    needs_root!();
    let stage = TestNetwork::new(HostAccess::default()).unwrap();
    let switch = format!("cat /proc/sys/net/ipv4/conf/{UPLINK}/forwarding");
    let forwards = |stage: &TestNetwork| said(stage, &switch).trim() == "1";
    let (mut network, ids) = plan([MemberPolicy::default()]);
    assert!(stage.ensure(&network).unwrap().uplinks.is_empty());
    assert!(!forwards(&stage));
    let mut member = network.member(ids[0]).unwrap().clone();
    let (host_ip, protocol) = (HOST, Protocol::Tcp);
    member.forwards = vec![Forward { host_ip, host_port: 8080, guest_port: 80, protocol }];
    network.admit(ids[0], member.clone()).unwrap();
    assert_eq!(stage.ensure(&network).unwrap().uplinks, [UPLINK]);
    assert!(forwards(&stage));
    member.forwards.clear();
    network.admit(ids[0], member.clone()).unwrap();
    stage.ensure(&network).unwrap();
    assert!(!forwards(&stage));
    member.policy = internet();
    network.admit(ids[0], member).unwrap();
    stage.ensure(&network).unwrap();
    assert!(forwards(&stage));
    remove_all(&stage, &network);
    assert!(!forwards(&stage));
    // A host that is a router stays one.
    stage.host.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap();
    stage.ensure(&network).unwrap();
    remove_all(&stage, &network);
    assert!(forwards(&stage));
}

#[test]
fn an_uplink_that_forwards_for_guests_leads_nobody_else_on_with_the_rules_gone() {
    needs_root!();
    let stage = TestNetwork::new(HostAccess::default()).unwrap();
    // Another network of the host's.
    said(&stage, "ip link add other0 type bridge");
    said(&stage, "ip addr add 192.0.2.1/24 dev other0");
    said(&stage, "ip link set other0 up");
    let leads = |stage: &TestNetwork, mark: &str| {
        let line = format!("ip route get 192.0.2.77 from 198.51.100.1 iif {UPLINK} mark {mark}");
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let run = move || Command::new(&words[0]).args(&words[1..]).output();
        stage.host.run(run).unwrap().status.success()
    };
    let guarded = |stage: &TestNetwork| {
        said(stage, "nft list set inet hivekeep-test guarded").contains(UPLINK)
    };
    let switch = format!("cat /proc/sys/net/ipv4/conf/{UPLINK}/forwarding");
    let (mut network, ids) = plan([internet()]);
    stage.ensure(&network).unwrap();
    assert!(guarded(&stage) && !leads(&stage, "0") && leads(&stage, "0x40"));
    stage.lose_rules().unwrap();
    assert!(!leads(&stage, "0"));
    // It is known whose doing it is, though the table that said so is gone.
    stage.ensure(&network).unwrap();
    assert!(guarded(&stage) && !leads(&stage, "0"));
    assert_eq!(said(&stage, &switch).trim(), "1");
    let mut member = network.member(ids[0]).unwrap().clone();
    member.policy = MemberPolicy::default();
    network.admit(ids[0], member).unwrap();
    stage.ensure(&network).unwrap();
    assert_eq!(said(&stage, &switch).trim(), "0");
    assert_eq!(said(&stage, "ip rule").lines().count(), 3);
}

#[test]
fn foreign_interfaces_and_networks_are_refused_by_name() {
    needs_root!();
    let (network, ids) = plan([MemberPolicy::default()]);
    let tap = network.tap(network.member(ids[0]).unwrap().lease);
    for (line, expected) in [
        ("ip link add test-br type veth peer name other0".to_owned(), "bridge"),
        (format!("ip link add {tap} type veth peer name other0"), "tap"),
    ] {
        let stage = TestNetwork::new(HostAccess::default()).unwrap();
        said(&stage, &line);
        let refused = stage.ensure(&network).unwrap_err();
        let right =
            matches!(&refused, Error::ForeignInterface { expected: e, .. } if *e == expected);
        assert!(right, "{refused}");
    }
    let stage = TestNetwork::new(HostAccess::default()).unwrap();
    said(&stage, &format!("ip addr add 10.213.9.1/24 dev {UPLINK}"));
    let refused = stage.ensure(&network).unwrap_err();
    assert!(matches!(refused, Error::SubnetInUse { .. }), "{refused}");
}

#[test]
fn a_tap_has_one_holder_and_the_owner_it_was_given() {
    needs_root!();
    let tap_owner = Some(Owner { uid: 65_534, gid: 65_534 });
    let mut stage = TestNetwork::new(HostAccess { tap_owner, ..HostAccess::default() }).unwrap();
    let (network, ids) = plan([MemberPolicy::default()]);
    stage.ensure(&network).unwrap();
    let tap = network.tap(network.member(ids[0]).unwrap().lease);
    let seen = said(&stage, &format!("ip -d link show dev {tap}"));
    let owned = seen.contains("user nobody") && seen.contains("group nogroup");
    assert!(owned && seen.contains("vnet_hdr on") && seen.contains("persist on"), "{seen}");
    stage.plug(&network, ids[0]).unwrap();
    let busy = stage.plug(&network, ids[0]).unwrap_err();
    assert!(matches!(&busy, Error::TapBusy { tap: busy } if *busy == tap), "{busy}");
    stage.unplug(ids[0]);
    stage.plug(&network, ids[0]).unwrap();
    let stranger = stage.plug(&network, WorkspaceId::new()).unwrap_err();
    assert!(matches!(stranger, Error::NoMember(_)), "{stranger}");
}
