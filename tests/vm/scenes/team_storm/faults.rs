//! Killing, from outside, and putting up again what does not come back by itself.

use std::{
    collections::HashSet,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    fs::fstat,
    net::{Shutdown, SocketAddrUnix, getpeername, shutdown},
    process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open},
};
use serde_json::json;

use super::schedule::Fault;
use crate::{
    house::House,
    scenes::{
        crash::settled,
        life::{kill_guest_daemon, machine},
    },
};

/// Done when what was killed is gone, and what the daemon does not start by itself was started.
pub fn strike(house: &mut House, workspaces: &[String], fault: Fault) {
    match fault {
        Fault::Daemon => {
            house.kill();
            house.start();
        }
        Fault::Guest(member) => kill_guest_daemon(house, &workspaces[member]),
        Fault::Link(member) => cut_link(house, &workspaces[member]),
        Fault::Machine(member) => {
            let workspace = &workspaces[member];
            kill_process(machine(house, workspace), Signal::KILL).expect("killed");
            house.wait_state(workspace, "crashed");
            house.call("workspace_start", json!({ "workspace_id": workspace }));
        }
        Fault::DaemonAndMachine(member) => {
            let workspace = &workspaces[member];
            let machine = machine(house, workspace);
            house.kill();
            kill_process(machine, Signal::KILL).expect("killed");
            until_gone(machine);
            house.start();
            assert_eq!(settled(house, workspace).as_deref(), Some("crashed"));
            house.call("workspace_start", json!({ "workspace_id": workspace }));
        }
    }
    // What is struck next can be struck.
    for workspace in workspaces {
        house.wait_state(workspace, "running");
    }
}

/// Gone is also what nobody reaps, as in a container whose first process does not.
fn until_gone(process: Pid) {
    let stat = format!("/proc/{}/stat", process.as_raw_nonzero());
    let begun = Instant::now();
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{process:?} does not die");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Shuts the daemon's own end: both sides see their peer go, and both live on. Done when there is
/// another link.
fn cut_link(house: &House, workspace: &str) {
    let info = house.call("workspace_info", json!({ "workspace_id": workspace }));
    let id = info["workspace_id"].as_str().expect("an id").to_owned();
    let begun = Instant::now();
    let mut cut = HashSet::new();
    loop {
        let links = links(house.pid(), &format!("/machines/{id}/link"));
        let (old, new): (Vec<_>, Vec<_>) =
            links.into_iter().partition(|(socket, _)| cut.is_empty() || cut.contains(socket));
        if !new.is_empty() {
            return;
        }
        for (socket, link) in old {
            // Ended meanwhile, it is as good as cut.
            let _cut = shutdown(link, Shutdown::Both);
            cut.insert(socket);
        }
        let late = begun.elapsed() > Duration::from_secs(60);
        assert!(!late, "no link to {workspace} after {} were cut", cut.len());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The daemon's connections to a socket whose path ends so, by the kernel's number for them.
fn links(daemon: u32, path: &str) -> Vec<(u64, OwnedFd)> {
    let pid = i32::try_from(daemon).ok().and_then(Pid::from_raw).expect("a process id");
    let process = pidfd_open(pid, PidfdFlags::empty()).expect("it runs");
    let open = std::fs::read_dir(format!("/proc/{daemon}/fd")).expect("listed");
    let numbers = open.flatten().filter_map(|fd| fd.file_name().to_str()?.parse().ok());
    let copies = numbers.filter_map(|fd| pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()).ok());
    let leads_there = |fd: &OwnedFd| {
        let peer = getpeername(fd).ok().flatten();
        let peer = peer.and_then(|peer| SocketAddrUnix::try_from(peer).ok());
        let name = peer.as_ref().and_then(|peer| peer.path_bytes());
        name.is_some_and(|name| name.ends_with(path.as_bytes()))
    };
    let links = copies.filter(leads_there);
    links.map(|link| (fstat(&link).expect("it is open").st_ino, link)).collect()
}
