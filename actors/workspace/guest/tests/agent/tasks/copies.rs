//! A machine that began as a copy of another neither runs nor tells of that one's tasks.

use std::sync::Arc;

use super::{page, results, task};
use crate::client::{Host, shell};
use crate::guest::{BIN, Guest, TOKEN, eventually, runs, ways};
use hivekeep_guest::agent::Agent;
use hivekeep_guest::carrier::Unix;
use hivekeep_guest::settings::{AgentSettings, GuestKind};
use hivekeep_guest::tasks::log::TaskLog;
use hivekeep_protocol::*;

fn has_machine_id() -> bool {
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    if id.trim().is_empty() {
        hivekeep_skip::skip("this host has no machine id, and so its guests have none");
    }
    !id.trim().is_empty()
}

#[tokio::test]
async fn tasks_on_a_disk_that_began_as_another_machines_are_put_aside() {
    if !has_machine_id() {
        return;
    }
    let mut guest = Guest::start(ways()[0]);
    let host = Host::to(&guest).await;
    host.ask(task("mine", "true")).await.expect("taken");
    results(&host, 1).await;
    drop(host);
    guest.stop();
    let state = guest.dir.path().join("state");
    let (log, other) = (state.join("tasks/log"), "0123456789abcdef".repeat(2));
    let mine = std::fs::read_to_string("/etc/machine-id").expect("checked");
    put_in_the_name_of(&log, mine.trim(), &other);
    guest.go_on();
    let host = Host::to(&guest).await;
    assert_eq!(page(&host, 0).await.results, []);
    assert!(state.join(format!("tasks-of-{other}/log")).is_file());
    let taken = host.ask(task("mine", "true")).await.expect("taken");
    assert!(!taken.repeat);
    results(&host, 1).await;
}

/// As its machine would have begun it, with the same bytes otherwise.
fn put_in_the_name_of(log: &std::path::Path, mine: &str, other: &str) {
    let mut records = Vec::new();
    drop(TaskLog::open(log, |_, record| {
        let text = String::from_utf8(record.to_vec()).expect("text").replace(mine, other);
        records.push(Ok(text.into_bytes()));
        Ok(())
    }));
    TaskLog::create(log, records.into_iter()).expect("written");
}

/// A daemon in this process, so that it can be told who it is without the whole of
/// [`Reidentify`], which would rename this host.
async fn daemon(dir: &std::path::Path) -> (Arc<Agent>, Host) {
    let settings = AgentSettings {
        token_hash: *blake3::hash(&TOKEN).as_bytes(),
        exe: BIN.into(),
        state_dir: dir.join("state"),
        run_dir: dir.join("run"),
        place: GuestKind::Sandbox,
        cgroup_root: None,
    };
    let agent = Agent::start(settings).await.expect("a daemon");
    let socket = dir.join("socket");
    let uid = rustix::process::getuid().as_raw();
    let carrier = Unix::bind(&socket, vec![uid]).expect("bound");
    tokio::spawn(agent.clone().serve(carrier));
    let host = Host::dial(&socket).await;
    (agent, host)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_in_a_memory_that_was_another_machines_are_killed_and_put_aside() {
    if !has_machine_id() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let (agent, host) = daemon(dir.path()).await;
    let mark = format!("hkcopy{}", std::process::id());
    host.ask(task("done", "true")).await.expect("taken");
    results(&host, 1).await;
    for number in 0..6 {
        let line = format!("echo {number} >> {}/began; sleep 1000; : {mark}", dir.path().display());
        host.ask(task(&number.to_string(), &line)).await.expect("taken");
    }
    let began = || std::fs::read_to_string(dir.path().join("began")).unwrap_or_default();
    let tasks_begun = || began().lines().filter(|line| *line != "keyed").count();
    eventually("four run", || tasks_begun() == 4);

    let mine = std::fs::read_to_string("/etc/machine-id").expect("checked");
    let keyed = |key: &str, command| RunOnce { key: key.into(), command, tail: false };
    let line = format!("echo keyed >> {}/began; sleep 1000; : {mark}k", dir.path().display());
    for _ in 0..2 {
        drop(host.call(keyed("k", Some(shell(&line))).into_wire()).await);
        eventually("the command under a key runs", || runs(&format!("{mark}k")));
        // Of a restored snapshot, whose commands may have ended behind it.
        agent.become_of(mine.trim()).expect("told");
        eventually("it is killed", || !runs(&format!("{mark}k")));
        let gone = host.ask(keyed("k", None)).await.expect_err("forgotten");
        assert_eq!(gone.code, GuestCode::UnknownRun);
    }
    assert_eq!(host.ask(TaskList).await.expect("a list").running.len(), 4, "it is not a copy");

    let other = "f".repeat(32);
    agent.become_of(&other).expect("put aside");
    assert!(!runs(&mark), "what ran is killed");
    let listed = host.ask(TaskList).await.expect("a list");
    assert_eq!((listed.running.len(), listed.queued.len(), listed.results), (0, 0, 0));
    assert_eq!(page(&host, 0).await.results, []);
    assert!(dir.path().join(format!("state/tasks-of-{}", mine.trim())).is_dir());

    // The copy has tasks of its own, of whatever name.
    let taken = host.ask(task("0", "echo mine")).await.expect("taken");
    assert!(!taken.repeat);
    assert_eq!(results(&host, 1).await["0"].stdout.head, b"mine\n");
    assert_eq!(page(&host, 0).await.results.len(), 1, "and tells of those alone");
    assert_eq!(tasks_begun(), 4, "what waited never ran");
    let log = std::fs::read(dir.path().join("state/tasks/log")).expect("a log");
    assert!(String::from_utf8_lossy(&log).contains(&other), "whose it is");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_is_told_to_keeps_its_tasks_which_go_on_and_are_reported() {
    if !has_machine_id() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let (agent, host) = daemon(dir.path()).await;
    let [began, go] = ["began", "go"].map(|name| dir.path().join(name));
    let (number, path) = (std::process::id(), dir.path().display());
    let line =
        format!("> {path}/began; while ! [ -e {path}/go ]; do sleep 0.1; done; echo {number}");
    host.ask(task("held", &line)).await.expect("taken");
    eventually("it runs", || began.exists());
    let other = "e".repeat(32);
    let wrong = host.ask(TasksKeep { machine_id: "e".into() }).await.expect_err("no id");
    assert_eq!(wrong.code, GuestCode::Invalid);
    for _ in 0..2 {
        let kept = host.ask(TasksKeep { machine_id: other.clone() }).await.expect("kept");
        assert_eq!(kept.open, 1);
        agent.become_of(&other).expect("nothing to do");
    }
    assert!(host.ask(task("held", &line)).await.expect("known").repeat);
    let log = std::fs::read(dir.path().join("state/tasks/log")).expect("a log");
    let mine = std::fs::read_to_string("/etc/machine-id").expect("checked");
    let log = String::from_utf8_lossy(&log).into_owned();
    assert!(log.contains(&other) && !log.contains(mine.trim()), "durably: {log}");
    std::fs::write(go, "").expect("written");
    let said = results(&host, 1).await["held"].stdout.head.clone();
    assert_eq!(String::from_utf8_lossy(&said), format!("{number}\n"));
}

#[tokio::test]
async fn a_log_that_an_earlier_version_left_without_an_owner_gets_one() {
    if !has_machine_id() {
        return;
    }
    let mut guest = Guest::start(ways()[0]);
    guest.stop();
    let tasks = guest.dir.path().join("state/tasks");
    std::fs::create_dir_all(tasks.join("outputs/r0000000000000007")).expect("made");
    std::fs::write(tasks.join("outputs/r0000000000000007/stdout"), "kept\n").expect("written");
    let done = r#"{"task":{"seq":3,"task_id":"old","message_id":"m","digest":"d","phase":{"Ended":
        {"number":1,"outcome":{"Ended":{"Code":0}},"workdir":"/","elapsed_ms":5,"totals":[5,0]}},
        "run":{"number":7,"boot_id":"before","workdir":"/"}},"asked":null}"#;
    let waits = r#"{"task":{"seq":4,"task_id":"waits","message_id":"m","digest":"e","phase":"Open",
        "run":null},"asked":{"message_id":"m","task_id":"waits","command":"echo now","workdir":null,
        "env":[],"timeout_secs":60}}"#;
    let records = [done, waits].map(|text| Ok(text.as_bytes().to_vec()));
    TaskLog::create(&tasks.join("log"), records.into_iter()).expect("written");
    guest.go_on();
    let host = Host::to(&guest).await;
    let all = results(&host, 2).await;
    assert_eq!((all["old"].number, &all["old"].stdout.head[..]), (1, &b"kept\n"[..]));
    assert_eq!((all["waits"].number, &all["waits"].stdout.head[..]), (2, &b"now\n"[..]));
    drop(host);
    guest.stop();
    let other = "0123456789abcdef".repeat(2);
    let mine = std::fs::read_to_string("/etc/machine-id").expect("checked");
    put_in_the_name_of(&tasks.join("log"), mine.trim(), &other);
    guest.go_on();
    let host = Host::to(&guest).await;
    assert_eq!(page(&host, 0).await.results, []);
    assert!(guest.dir.path().join(format!("state/tasks-of-{other}/log")).is_file());
}
