use std::{process::Stdio, time::Duration};

use tempfile::TempDir;
use tokio::process::Command;

use super::*;
use crate::host_process::unconfined;

fn bash(script: &str) -> Command {
    let mut command = Command::new("bash");
    command
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Processes with a folder, whoever started them.
fn of(folder: &Path) -> usize {
    let all = fs::read_dir("/proc").expect("there").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| runs(*pid) && orphan(*pid, folder).is_some()).count()
}

/// Whether a process is there and not only its end, which whoever adopted it may leave unread.
fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

async fn until_there_are(number: usize, folder: &Path) {
    for _ in 0..6000 {
        if of(folder) == number {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} are there, not {number}", of(folder));
}

#[tokio::test]
async fn what_its_first_process_left_is_killed_with_it_and_after_it() {
    let home = TempDir::new().expect("a folder");
    let mut killed = HostChild::spawn(bash("sleep 1000 & wait"), home.path()).expect("started");
    until_there_are(2, home.path()).await;
    killed.kill();
    killed.wait().await.expect("it ended");
    until_there_are(0, home.path()).await;

    let mut ended = HostChild::spawn(bash("sleep 1000 >&- 2>&- & exit 3"), home.path());
    let status = ended.as_mut().expect("started").wait().await.expect("it ended");
    assert_eq!(status.code(), Some(3));
    until_there_are(0, home.path()).await;

    let dropped = HostChild::spawn(bash("sleep 1000 & wait"), home.path()).expect("started");
    until_there_are(2, home.path()).await;
    drop(dropped);
    until_there_are(0, home.path()).await;
}

#[tokio::test]
async fn a_sandbox_that_is_killed_while_it_is_made_does_not_go_on_alone() {
    if std::process::Command::new("bwrap").arg("--version").output().is_err() {
        return hivekeep_skip::skip("bwrap is not installed");
    }
    let home = TempDir::new().expect("a folder");
    let sandbox = || {
        let mut command = Command::new("bwrap");
        command.args(unconfined()).args(["--", "sleep", "1000"]);
        HostChild::spawn(command, home.path()).expect("started")
    };
    let whole = sandbox();
    // bubblewrap outside and inside; what runs there knows nothing of it.
    until_there_are(2, home.path()).await;
    drop(whole);
    for tenths in 0..100 {
        let mut child = sandbox();
        tokio::time::sleep(Duration::from_micros(100 * tenths)).await;
        child.kill();
        child.wait().await.expect("it ended");
    }
    until_there_are(0, home.path()).await;
}

#[test]
fn what_a_daemon_left_is_ended_by_the_next_one_with_its_state() {
    let (state, other) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    let left = |folder: &Path| {
        let mut command = std::process::Command::new("sleep");
        command.arg("1000").env(MARK, folder);
        command.spawn().expect("started")
    };
    let mut orphan = left(&state.path().join("sources/mine"));
    let mut others = left(other.path());
    let beside = state.path().with_extension("beside");
    let mut besides = left(&beside);
    assert_eq!(end_orphans(state.path()).expect("listed"), 1);
    assert!(orphan.try_wait().expect("asked").is_some(), "it has ended");
    assert_eq!(end_orphans(state.path()).expect("listed"), 0);
    for child in [&mut others, &mut besides] {
        assert!(child.try_wait().expect("asked").is_none(), "somebody else's");
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
}
