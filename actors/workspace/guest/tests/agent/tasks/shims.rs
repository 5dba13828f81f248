//! A shim waits for its task: it goes with its daemon, and may be killed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use hivekeep_protocol::*;

use super::{kill_all, ok, results, task};
use crate::client::Host;
use crate::guest::{Guest, Way, eventually, runs, ways};

/// Folders of runs whose end is not written down, and of the one that waits.
fn folders(guest: &Guest) -> Vec<PathBuf> {
    let runs = std::fs::read_dir(guest.dir.path().join("run/runs"));
    runs.into_iter().flatten().flatten().map(|run| run.path()).collect()
}

/// Waits for a shim, beside no run that goes on. Its processes, and its run's folder.
fn one_waits(guest: &Guest) -> (i32, i32, PathBuf) {
    let mut waiting = None;
    eventually("a shim waits", || {
        waiting = match &folders(guest)[..] {
            [run] => processes(run).map(|(shim, leader)| (shim, leader, run.clone())),
            _ => None,
        };
        // A byte in it says that it has begun, and is about to be removed.
        let begun =
            |run: &PathBuf| std::fs::metadata(run.join("lock")).map_or(true, |m| m.len() > 0);
        waiting.take_if(|(_, _, run)| begun(run));
        waiting.is_some()
    });
    waiting.expect("it waits")
}

#[tokio::test]
async fn the_one_that_waits_takes_the_next_task_and_goes_with_its_daemon() {
    for way in ways() {
        let mut guest = Guest::start(way);
        let host = Host::to(&guest).await;
        assert!(folders(&guest).is_empty(), "nobody has had a task");
        host.ask(task("first", "true")).await.expect("taken");
        results(&host, 1).await;
        one_waits(&guest);
        host.ask(task("second", "echo $WORD")).await.expect("taken");
        assert_eq!(results(&host, 2).await["second"].stdout.head, b"given\n");
        one_waits(&guest);
        let shim = format!("hivekeep-guest\0task\0{}", guest.dir.path().display());
        guest.stop();
        eventually("it is gone", || !runs(&shim) && folders(&guest).is_empty());
        guest.go_on();
        let host = Host::to(&guest).await;
        assert_eq!(results(&host, 2).await.len(), 2);
        one_waits(&guest);
    }
}

/// The shim of a run and the first process of its command.
fn processes(run: &Path) -> Option<(i32, i32)> {
    let text = std::fs::read(run.join("process.json")).ok()?;
    let text: serde_json::Value = serde_json::from_slice(&text).ok()?;
    let pid = |name: &str| text[name].as_i64().and_then(|pid| i32::try_from(pid).ok());
    Some((pid("shim_pid")?, pid("leader_pid")?))
}

fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.contains(" Z "))
}

#[tokio::test]
async fn one_whose_task_has_ended_takes_another_where_it_is_known_by_its_cgroup() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let (mut shims, mut leaders) = (HashSet::new(), HashSet::new());
        for number in 1..=5 {
            host.ask(task(&number.to_string(), "true")).await.expect("taken");
            assert!(ok(&results(&host, number).await[&number.to_string()]));
            let (shim, leader, _) = one_waits(&guest);
            shims.insert(shim);
            leaders.insert(leader);
        }
        assert_eq!(leaders.len(), 5, "each run has a process of its own");
        let expected = if way == Way::Cgroup { 1 } else { 5 };
        assert_eq!(shims.len(), expected, "{way:?}");
    }
}

#[tokio::test]
async fn a_command_that_waits_goes_with_its_shim_and_another_is_made() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        host.ask(task("first", "true")).await.expect("taken");
        results(&host, 1).await;
        let (shim, leader, waiting) = one_waits(&guest);
        assert!(is_alive(shim) && is_alive(leader));
        let pid = rustix::process::Pid::from_raw(shim).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
        eventually("both are gone", || !is_alive(shim) && !is_alive(leader));
        host.ask(task("second", "echo $WORD")).await.expect("taken");
        assert_eq!(results(&host, 2).await["second"].stdout.head, b"given\n");
        assert!(!waiting.exists(), "what a dead shim had prepared is gone");
    }
}

#[tokio::test]
async fn what_a_killed_shim_leaves_is_killed_before_its_task_is_said_to_be_interrupted() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let mark = format!("hkleft{}{way:?}", std::process::id());
        let line = format!("setsid sh -c 'sleep 1000; : {mark}' & echo {mark}; sleep 1000");
        host.ask(task("left", &line)).await.expect("taken");
        let folder = || folders(&guest).into_iter().min();
        eventually("it runs", || {
            runs(&format!("sleep 1000; : {mark}"))
                && folder().is_some_and(|run| processes(&run).is_some())
        });
        let (shim, leader) = folder().and_then(|run| processes(&run)).expect("it runs");
        let pid = rustix::process::Pid::from_raw(shim).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
        let result = results(&host, 1).await.remove("left").expect("its result");
        assert_eq!(result.outcome, TaskOutcome::Interrupted);
        assert!(!runs(&mark) && !is_alive(leader), "{way:?}");
    }
}

#[tokio::test]
async fn one_that_is_slow_to_go_after_its_daemon_costs_the_first_task_nothing() {
    for way in ways() {
        let mut guest = Guest::start(way);
        let host = Host::to(&guest).await;
        // Who acknowledges has a shim made, also before there was any task.
        host.ask(TaskAck { task_ids: Vec::new() }).await.expect("acknowledged");
        let (shim, _, waiting) = one_waits(&guest);
        let pid = rustix::process::Pid::from_raw(shim).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
        guest.crash_and_restart();
        assert!(waiting.exists(), "it has not seen yet that its daemon is gone");
        let host = Host::to(&guest).await;
        host.ask(task("first", "echo $WORD")).await.expect("taken");
        assert_eq!(results(&host, 1).await["first"].stdout.head, b"given\n", "{way:?}");
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("it goes on");
        eventually("it is gone", || !is_alive(shim) && !waiting.exists());
    }
}

#[tokio::test]
async fn one_that_was_killed_costs_no_task() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let effects = guest.dir.path().join("effects");
        for number in 0..6 {
            let id = number.to_string();
            let line = format!("echo {id} >> {}", effects.display());
            host.ask(task(&id, &line)).await.expect("taken");
            assert!(ok(&results(&host, number + 1).await[&id]));
            // Each time it is further on its way.
            std::thread::sleep(std::time::Duration::from_millis(number as u64));
            let dir = guest.dir.path().to_string_lossy().into_owned();
            kill_all(|line| line.starts_with("hivekeep-guest\0task\0") && line.contains(&dir));
        }
        let effects = std::fs::read_to_string(effects).expect("effects");
        assert_eq!(effects, "0\n1\n2\n3\n4\n5\n", "{way:?}");
    }
}

#[tokio::test]
async fn a_task_too_large_for_the_socket_runs_all_the_same() {
    let guest = Guest::start(ways()[0]);
    let host = Host::to(&guest).await;
    for id in ["first", "with-a-shim-at-hand"] {
        let line = format!("echo ${{#LONG_2}}; exit 5 # {}", "x".repeat(200_000));
        let mut large = task(id, &line);
        large.env = (0..4).map(|n| (format!("LONG_{n}"), "v".repeat(100_000))).collect();
        host.ask(large).await.expect("taken");
        let host = &host;
        let many = if id == "first" { 1 } else { 2 };
        let result = results(host, many).await.remove(id).expect("its result");
        assert_eq!(result.outcome, TaskOutcome::Ended(Exit::Code(5)));
        assert_eq!(result.stdout.head, b"100000\n");
        one_waits(&guest);
    }
}

#[tokio::test]
async fn no_process_has_a_handler_that_those_who_wait_in_its_memory_do_not_know_of() {
    let known: u64 = hivekeep_guest::sys::preforked::HANDLED.iter().map(|n| 1 << (n - 1)).sum();
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        host.ask(task("first", "true")).await.expect("taken");
        results(&host, 1).await;
        let (shim, _, _) = one_waits(&guest);
        for pid in [shim, i32::try_from(guest.pid()).expect("a pid")] {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
            for set in ["SigIgn:", "SigCgt:"] {
                let line = status.lines().find_map(|line| line.strip_prefix(set)).expect(set);
                let set = u64::from_str_radix(line.trim(), 16).expect("a set");
                assert_eq!(set & !known, 0, "{status}");
            }
        }
    }
}
