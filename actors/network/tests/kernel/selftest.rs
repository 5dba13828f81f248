//! The self-test itself.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hivekeep_network::{HostAccess, Namespace, selftest};

use super::needs_root;

#[test]
fn every_property_holds_here() {
    needs_root!();
    let report = super::block_on(selftest::run(HostAccess::default())).unwrap();
    for finding in &report.findings {
        println!("{:?}: {}", finding.property, finding.holds);
        finding.evidence.iter().for_each(|line| println!("    {line}"));
    }
    assert_eq!(report.broken().count(), 0);
    assert_eq!(report.findings.len(), 11);
    assert_eq!(report.unknown().count(), 0);
}

/// What administrators and other programs set for a whole host.
#[test]
fn every_property_holds_whatever_the_host_is_set_to() {
    needs_root!();
    for settings in [
        ["bridge/bridge-nf-call-iptables 0", "ipv4/conf/all/rp_filter 0"],
        ["bridge/bridge-nf-call-iptables 1", "ipv4/conf/all/rp_filter 1"],
        ["ipv4/conf/all/route_localnet 1", "ipv4/conf/all/proxy_arp 1"],
    ] {
        let caller = Namespace::new().unwrap();
        caller.run(move || {
            for (name, value) in settings.map(|line| line.split_once(' ').unwrap()) {
                std::fs::write(format!("/proc/sys/net/{name}"), value).unwrap();
            }
        });
        let report = caller.block_on(|| selftest::run(HostAccess::default())).unwrap();
        let broken: Vec<_> = report.broken().collect();
        assert!(broken.is_empty(), "{settings:?}: {broken:#?}");
    }
}

/// Set for a self-test that is going to be killed.
const ORPHAN: &str = "TEST_HIVEKEEP_ORPHAN";

#[test]
#[ignore = "a helper process, started by a_killed_self_test_leaves_nothing"]
fn orphan() {
    assert!(std::env::var_os(ORPHAN).is_some(), "it goes on until it is killed");
    loop {
        super::block_on(selftest::run(HostAccess::default())).unwrap();
    }
}

/// The network namespaces of a process's threads.
fn namespaces(pid: u32) -> BTreeSet<PathBuf> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    threads
        .filter_map(|thread| std::fs::read_link(thread.ok()?.path().join("ns/net")).ok())
        .collect()
}

/// Whether any process is in one of these, or a mount holds one.
fn alive(namespaces: &BTreeSet<PathBuf>) -> bool {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let held = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounted = namespaces.iter().any(|ns| held.contains(&*ns.to_string_lossy()));
    mounted || pids.into_iter().any(|pid| !self::namespaces(pid).is_disjoint(namespaces))
}

#[test]
fn a_killed_self_test_leaves_nothing() {
    needs_root!();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "selftest::orphan", "--ignored", "--nocapture"]).env(ORPHAN, "1");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let own = namespaces(std::process::id());
    let until = Instant::now() + Duration::from_secs(60);
    let mut of_child = BTreeSet::new();
    while of_child.len() < 10 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
        of_child.extend(namespaces(child.id()).difference(&own).cloned());
    }
    assert!(of_child.len() >= 10, "the self-test did not get far: {of_child:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    // A program that nft or the test had started may take a moment to see that it is alone. Asked
    // no more once they are gone: the kernel gives their numbers to the next ones.
    while alive(&of_child) {
        assert!(Instant::now() < until, "something of it lives on");
        std::thread::sleep(Duration::from_millis(50));
    }
    for (program, list) in [("ip", "link show"), ("nft", "list tables")] {
        let listed = Command::new(program).args(list.split(' ')).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert!(!listed.contains("self-") && !listed.contains("hivekeep-self"), "{listed}");
    }
}
