//! Commands under keys: one effect for a key, whatever becomes of connections, and bounds on what is kept.

use hivekeep_protocol::*;

use crate::client::{Host, shell};
use crate::guest::{Guest, Way, eventually, ways};

fn once(key: &str, line: &str) -> RunOnce {
    RunOnce { key: key.into(), command: Some(shell(line)), tail: false }
}

fn ask_for(key: &str) -> RunOnce {
    RunOnce { key: key.into(), command: None, tail: false }
}

/// Line that notes in a file that it began, and waits until there is another file.
fn counted(folder: &tempfile::TempDir) -> String {
    let path = folder.path().display();
    format!(
        "echo x >> {path}/began; while ! [ -e {path}/go ]; do sleep 0.01; done; echo out; echo err >&2; exit 3"
    )
}

fn began(folder: &tempfile::TempDir) -> usize {
    std::fs::read_to_string(folder.path().join("began")).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn a_key_has_one_effect_and_its_result_outlives_the_connection() {
    for way in ways() {
        let guest = Guest::start(way);
        let folder = tempfile::tempdir().expect("a folder");
        let line = counted(&folder);
        let host = Host::to(&guest).await;
        drop(host.call(once("exe_1/0.0.0.0", &line).into_wire()).await);
        eventually("it began", || began(&folder) == 1);
        drop(host);
        let host = Host::to(&guest).await;
        // Both the asked for and the repeated one are that command, which still runs.
        let mut asked = host.call(ask_for("exe_1/0.0.0.0").into_wire()).await;
        let mut again = host.call(once("exe_1/0.0.0.0", &line).into_wire()).await;
        std::fs::write(folder.path().join("go"), "").expect("written");
        for output in [asked.output().await, again.output().await] {
            assert_eq!((&*output.stdout, &*output.stderr), (&b"out\n"[..], &b"err\n"[..]));
            assert_eq!(output.reply.expect("it ended").exit, Exit::Code(3));
        }
        drop(host);
        let host = Host::to(&guest).await;
        let ended = host.call(ask_for("exe_1/0.0.0.0").into_wire()).await.output().await;
        assert_eq!(
            (ended.stdout, ended.reply.expect("kept").exit),
            (b"out\n".to_vec(), Exit::Code(3))
        );
        assert_eq!(began(&folder), 1);
        let other = host.ask(once("exe_1/0.0.0.0", "true")).await.expect_err("of another command");
        assert_eq!(other.code, GuestCode::JobConflict);
        let unknown = host.ask(ask_for("exe_1/0.0.0.1")).await.expect_err("never begun");
        assert_eq!(unknown.code, GuestCode::UnknownRun);
    }
}

#[tokio::test]
async fn a_host_that_cancels_and_a_time_limit_end_it_and_a_daemon_that_dies_forgets_it() {
    let mut guest = Guest::start(Way::Subreaper);
    let folder = tempfile::tempdir().expect("a folder");
    let host = Host::to(&guest).await;
    let mut call = host.call(once("a", &counted(&folder)).into_wire()).await;
    eventually("it began", || began(&folder) == 1);
    call.cancel().await;
    assert_eq!(call.reply().await.expect_err("cancelled").code, GuestCode::Cancelled);
    let told = host.ask(ask_for("a")).await.expect_err("it was cancelled");
    assert_eq!(told.code, GuestCode::Cancelled);

    let limited = RunCommand { timeout_ms: 50, ..shell("sleep 60") };
    let late = RunOnce { command: Some(limited), ..ask_for("b") };
    assert!(host.ask(late).await.expect("it ended").timed_out);
    assert!(host.ask(ask_for("b")).await.expect("kept").timed_out);

    guest.crash_and_restart();
    let host = Host::to(&guest).await;
    assert_eq!(host.ask(ask_for("b")).await.expect_err("gone").code, GuestCode::UnknownRun);
}

#[tokio::test]
async fn keys_outputs_and_numbers_are_bounded() {
    let guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    for key in ["", "a b", "a\n", &"x".repeat(limits::MAX_RUN_KEY_BYTES + 1)] {
        let refused = host.ask(once(key, "true")).await.expect_err("no key");
        assert_eq!(refused.code, GuestCode::Invalid, "{key:?}");
    }
    let most = limits::KEPT_STREAM_BYTES;
    for (key, tail, ends) in [("head", false, b'a'), ("tail", true, b'b')] {
        let line = format!(
            "head -c {} /dev/zero | tr '\\0' a; head -c {most} /dev/zero | tr '\\0' b",
            5 * most
        );
        let asked = RunOnce { tail, ..once(key, &line) };
        let output = host.call(asked.into_wire()).await.output().await;
        assert!(output.stdout.len() == most && output.stdout.iter().all(|it| *it == ends), "{key}");
        assert_eq!(output.reply.expect("ran").stdout_total_bytes, 6 * most as u64);
    }
    // These fill the room for all, and those two are older.
    for nth in 0..16 {
        let line = format!("head -c {} /dev/zero", most - 1);
        host.ask(once(&format!("large/{nth}"), &line)).await.expect("ran");
    }
    assert_eq!(host.ask(ask_for("head")).await.expect_err("room").code, GuestCode::UnknownRun);
    host.ask(ask_for("large/15")).await.expect("the latest is kept");
    for nth in 0..=limits::KEPT_RUNS {
        host.ask(once(&format!("small/{nth}"), "true")).await.expect("ran");
    }
    assert_eq!(host.ask(ask_for("small/0")).await.expect_err("many").code, GuestCode::UnknownRun);
    host.ask(ask_for("small/1")).await.expect("kept");

    let mut running = Vec::new();
    for nth in 0..limits::KEYED_RUNS_AT_ONCE {
        running.push(host.call(once(&format!("run/{nth}"), "echo; sleep 60").into_wire()).await);
    }
    // Calls are answered in any order, so the last to begin may be one of these.
    let busy = async {
        for nth in 0.. {
            if let Err(error) = host.ask(once(&format!("more/{nth}"), "true")).await {
                return error;
            }
        }
        unreachable!("it asks until it is refused")
    };
    assert_eq!(busy.await.code, GuestCode::Busy);
    for call in &mut running {
        call.cancel().await;
        assert_eq!(call.reply().await.expect_err("cancelled").code, GuestCode::Cancelled);
    }
    host.ask(once("after", "true")).await.expect("there is room again");
}
