//! Backups of a daemon with machines, restored beside it and in its place.

use std::{
    path::Path,
    process::{Child, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    house::{House, PATIENCE},
    leaks,
};

pub(super) fn run(house: &House, home: &Path, args: &[&str]) -> Output {
    house.command().env("HIVEKEEP_HOME", home).args(args).output().expect("the program runs")
}

pub(super) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned()
}

pub(super) fn answer(house: &House, home: &Path, args: &[&str]) -> Value {
    let output = run(house, home, args);
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A second daemon, in a home of its own.
pub(super) struct Beside<'h> {
    house: &'h House,
    home: &'h Path,
    daemon: Child,
}

impl<'h> Beside<'h> {
    pub(super) fn start(house: &'h House, home: &'h Path) -> Self {
        let mut daemon = house.command();
        daemon.env("HIVEKEEP_HOME", home).arg("daemon").stderr(Stdio::null());
        let mut daemon = daemon.spawn().expect("the program runs");
        let begun = Instant::now();
        while !run(house, home, &["status"]).status.success() {
            assert!(daemon.try_wait().expect("asked").is_none(), "the second daemon ended");
            assert!(begun.elapsed() < PATIENCE, "the second daemon does not serve");
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { house, home, daemon }
    }

    pub(super) fn call(&self, tool: &str, args: &[&str]) -> Value {
        let args = args.iter().flat_map(|arg| ["-a", arg]);
        let all: Vec<_> = ["call", tool].into_iter().chain(args).chain(["--json"]).collect();
        answer(self.house, self.home, &all)
    }

    pub(super) fn refused(&self, tool: &str, args: &[&str]) -> String {
        let args = args.iter().flat_map(|arg| ["-a", arg]);
        let all: Vec<_> = ["call", tool].into_iter().chain(args).collect();
        let output = run(self.house, self.home, &all);
        assert!(!output.status.success(), "{}", said(&output));
        said(&output)
    }

    pub(super) fn stop(&mut self) {
        let stopped = run(self.house, self.home, &["stop"]);
        assert!(stopped.status.success(), "{}", said(&stopped));
        assert!(self.daemon.wait().expect("waits").success());
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        let _ended = self.daemon.kill();
        let _reaped = self.daemon.wait();
        // Also after a panic nothing may go on running on this machine.
        leaks::end_machines(self.home);
    }
}

pub fn a_restored_state_leaves_the_first_daemons_machines_alone(house: House) {
    house.create("one");
    house.exec("one", "echo first > /root/file");
    let file = house.path().join("kept.tar.zst");
    let file = file.to_str().expect("UTF-8");
    let home = house.path().to_owned();
    let packed = run(&house, &home, &["backup", file]);
    assert!(packed.status.success(), "{}", said(&packed));

    let beside = tempfile::tempdir().expect("a folder");
    let restored = run(&house, beside.path(), &["restore", file]);
    assert!(restored.status.success(), "{}", said(&restored));
    let mut daemon = Beside::start(&house, beside.path());
    let listed = run(&house, beside.path(), &["call", "workspace_list", "--json"]);
    assert!(listed.status.success(), "{}", said(&listed));
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    assert_eq!(listed["workspaces"][0]["state"], "crashed", "{listed}");
    // Nor is one made in its place.
    let start = ["call", "workspace_start", "-a", "workspace_id=one"];
    let refused = said(&run(&house, beside.path(), &start));
    assert!(refused.contains("disk_missing"), "{refused}");
    let destroy = ["call", "workspace_destroy", "-a", "workspace_id=one"];
    let destroyed = run(&house, beside.path(), &destroy);
    assert!(destroyed.status.success(), "{}", said(&destroyed));
    daemon.stop();

    assert_eq!(house.exec("one", "cat /root/file"), "first\n");
    house.call("workspace_destroy", json!({ "workspace_id": "one" }));
    leaks::check(&house);
}
