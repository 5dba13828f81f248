//! A daemon that is killed while it changes the network.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hivekeep_network::plan::{Forward, MemberPolicy, Protocol};
use hivekeep_network::selftest::test_network::{HOST, TestNetwork};
use hivekeep_network::{Enforcer, HostAccess};

use super::ensure::{internet, links, plan, remove_all, said};
use super::{block_on, needs_root};

/// Set for a process that is going to be killed.
const HAMMER: &str = "TEST_HIVEKEEP_HAMMER";

#[test]
#[ignore = "a helper process, started by the_next_start_makes_it_whole"]
fn hammer() {
    assert!(std::env::var_os(HAMMER).is_some(), "it would change this host's network");
    block_on(async {
        let mut enforcer = Enforcer::open(HostAccess::default()).unwrap();
        for size in (0..4).cycle() {
            let (mut network, ids) = plan((0..size).map(|_| internet()));
            for id in &ids {
                let mut member = network.member(*id).unwrap().clone();
                let host_port = 9000 + u16::try_from(member.forwards.len()).unwrap();
                let (host_ip, protocol) = (HOST, Protocol::Tcp);
                let forward = Forward { host_ip, host_port, guest_port: 80, protocol };
                member.policy = MemberPolicy {
                    allow_inter_vm: true,
                    group: Some("a-b".parse().unwrap()),
                    ..internet()
                };
                member.forwards.extend((*id == ids[0]).then_some(forward));
                network.admit(*id, member).unwrap();
            }
            enforcer.ensure(&network).await.unwrap();
            enforcer.remove_all(network.tag()).await.unwrap();
        }
    });
}

/// Until no nft of the killed process runs: it may have been given its whole transaction.
pub(super) fn settle(stage: &TestNetwork) {
    let namespace = stage.host.run(|| std::fs::read_link("/proc/thread-self/ns/net")).unwrap();
    let inside = |pid: &str| {
        let own = std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        own.as_ref() == Some(&namespace) && name.trim() == "nft"
    };
    let end = Instant::now() + Duration::from_secs(20);
    let listed = || std::fs::read_dir("/proc").unwrap().flatten();
    while listed().any(|entry| entry.file_name().to_str().is_some_and(inside)) {
        assert!(Instant::now() < end, "nft goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_next_start_makes_it_whole() {
    needs_root!();
    let (network, _) = plan([internet(), MemberPolicy::default()]);
    let clean = TestNetwork::new(HostAccess::default()).unwrap();
    let nothing = (rules(&clean), interfaces(&clean));
    clean.ensure(&network).unwrap();
    let whole = (rules(&clean), interfaces(&clean));
    let stage = TestNetwork::new(HostAccess::default()).unwrap();
    let mut states = BTreeSet::new();
    for round in 0..12 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "killed::hammer", "--ignored", "--nocapture"]).env(HAMMER, "1");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = stage.host.run(move || command.spawn()).unwrap();
        std::thread::sleep(Duration::from_millis(60 + 17 * round));
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        child.kill().unwrap();
        child.wait().unwrap();
        settle(&stage);
        states.insert((rules(&stage).len(), interfaces(&stage).len()));
        stage.ensure(&network).unwrap();
        assert_eq!((rules(&stage), interfaces(&stage)), whole, "{round}");
    }
    println!("killed in {} different states", states.len());
    assert!(states.len() > 1, "it was never killed in the middle");
    remove_all(&stage, &network);
    assert_eq!((rules(&stage), interfaces(&stage)), nothing);
}

/// The chains and sets of all tables: where they were not removed, they keep their order.
pub(super) fn rules(stage: &TestNetwork) -> BTreeSet<String> {
    let (mut blocks, mut table) = (Vec::new(), String::new());
    for line in said(stage, "nft list ruleset").lines().map(str::to_owned) {
        if line.starts_with("table") {
            table = line;
        } else if line.starts_with("\tchain") || line.starts_with("\tset") {
            blocks.push(format!("{table} {line}"));
        } else if let Some(block) = blocks.last_mut().filter(|_| line.starts_with("\t\t")) {
            block.push_str(&line);
        }
    }
    blocks.into_iter().collect()
}

/// The names and flags of the interfaces, whose indices differ. A carrier comes a moment after the
/// interface.
pub(super) fn interfaces(stage: &TestNetwork) -> BTreeSet<String> {
    let listed = links(stage).replace("@if2", "").replace("NO-CARRIER,", "");
    listed.lines().filter_map(|line| Some(line.split_once(": ")?.1.to_owned())).collect()
}
