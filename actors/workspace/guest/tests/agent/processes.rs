//! Processes: their input survives the daemon, and their end is the end of all of them.

use std::time::Duration;

use hivekeep_protocol::*;

use crate::client::Host;
use crate::guest::{Guest, eventually, runs, ways};

fn process(id: &str, argv: &[&str]) -> ProcessStart {
    let job = JobStart {
        job_id: id.into(),
        argv: Argv::Direct(argv.iter().map(|word| (*word).to_owned()).collect()),
        env: vec![],
        workdir: Some("/".into()),
        spool_bytes: 64 * 1024,
    };
    ProcessStart { job, pty: None }
}

fn shell(id: &str, line: &str) -> ProcessStart {
    process(id, &["sh", "-c", line])
}

fn on_a_terminal(start: ProcessStart) -> ProcessStart {
    ProcessStart { pty: Some(PtySize { rows: 31, cols: 97 }), ..start }
}

fn input(id: &str, text: &str) -> ProcessInput {
    ProcessInput { job_id: id.into(), bytes: text.into(), close: false }
}

fn stop(id: &str, grace_ms: u64) -> ProcessStop {
    ProcessStop { job_id: id.into(), grace_ms }
}

fn poll(id: &str, stdout_from: u64) -> JobPoll {
    JobPoll { job_id: id.into(), stdout_from, stderr_from: 0, max_bytes: u64::MAX }
}

async fn until(host: &Host, id: &str, mut holds: impl FnMut(&JobReport) -> bool) -> JobReport {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let report = host.ask(poll(id, 0)).await.expect("a report");
        if holds(&report) {
            return report;
        }
        assert!(tokio::time::Instant::now() < deadline, "not in 60 s: {report:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn says<'a>(text: &'a str) -> impl FnMut(&JobReport) -> bool + 'a {
    move |report| String::from_utf8_lossy(&report.stdout.bytes).contains(text)
}

#[tokio::test]
async fn input_works_after_the_daemon_was_killed_and_its_end_is_told() {
    for way in ways() {
        let mut guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let started = host.ask(process("cat", &["cat"])).await.expect("started");
        assert!(started.pid > 0 && !started.existed);
        let again = host.ask(process("cat", &["cat"])).await.expect("the same");
        assert_eq!((again.pid, again.existed), (started.pid, true));
        let other = host.ask(on_a_terminal(process("cat", &["cat"]))).await.expect_err("another");
        assert_eq!(other.code, GuestCode::JobConflict);
        let taken = host.ask(input("cat", "one\n")).await.expect("taken");
        assert_eq!(taken, ProcessInputTaken { written: 4, closed: false });
        until(&host, "cat", says("one\n")).await;
        // Written before the daemon dies, read whenever the process likes.
        host.ask(input("cat", "two\n")).await.expect("taken");
        guest.crash_and_restart();
        let host = Host::to(&guest).await;
        host.ask(input("cat", "three\n")).await.expect("taken");
        until(&host, "cat", says("one\ntwo\nthree\n")).await;
        let close = ProcessInput { close: true, ..input("cat", "four\n") };
        let taken = host.ask(close).await.expect("closed");
        assert_eq!(taken, ProcessInputTaken { written: 5, closed: true });
        let report = until(&host, "cat", |r| r.summary.exit.is_some()).await;
        assert_eq!(report.summary.exit, Some(Exit::Code(0)));
        assert_eq!(report.stdout.bytes, b"one\ntwo\nthree\nfour\n");
        let late = host.ask(input("cat", "x")).await.expect_err("nobody reads");
        assert_eq!(late.code, GuestCode::InputClosed);
        assert!(host.ask(stop("cat", 0)).await.expect("told").already_ended);
    }
}

#[tokio::test]
async fn who_does_not_read_takes_what_fits_a_pipe_and_the_rest_is_told() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        host.ask(process("deaf", &["sleep", "1000"])).await.expect("started");
        let much = "x".repeat(limits::MAX_PROCESS_INPUT_BYTES);
        let mut written = 0;
        for _ in 0..2 {
            written += host.ask(input("deaf", &much)).await.expect("taken").written;
        }
        let most = 2 * limits::MAX_PROCESS_INPUT_BYTES as u64;
        assert!(written > 0 && written < most, "{written} of {most}");
        let too_much = host.ask(input("deaf", &format!("{much}x"))).await.expect_err("refused");
        assert_eq!(too_much.code, GuestCode::TooLarge);
        host.ask(stop("deaf", 0)).await.expect("killed");
        host.ask(shell("shut", "exec <&-; echo up; exec sleep 1000")).await.expect("started");
        until(&host, "shut", says("up\n")).await;
        let shut = host.ask(input("shut", "x")).await.expect_err("nobody reads");
        assert_eq!(shut.code, GuestCode::InputClosed);
        host.ask(stop("shut", 0)).await.expect("killed");
        let plain = JobStart { job_id: "plain".into(), ..shell("", "sleep 1000").job };
        host.ask(plain).await.expect("started");
        for refused in [
            host.ask(input("plain", "x")).await.expect_err("no input"),
            host.ask(stop("plain", 0)).await.expect_err("no process"),
        ] {
            assert_eq!(refused.code, GuestCode::Invalid);
        }
        host.ask(JobKill { job_id: "plain".into(), signal: 9 }).await.expect("killed");
    }
}

#[tokio::test]
async fn a_stop_ends_in_order_who_listens_and_kills_who_does_not() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let polite = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done";
        host.ask(shell("polite", polite)).await.expect("started");
        until(&host, "polite", says("up\n")).await;
        let ended = host.ask(stop("polite", 60_000)).await.expect("stopped");
        assert_eq!((ended.already_ended, ended.summary.exit), (false, Some(Exit::Code(3))));
        let report = host.ask(poll("polite", 0)).await.expect("a report");
        assert_eq!(report.stdout.bytes, b"up\nbye\n");

        let mark = format!("hkproc{}{way:?}", std::process::id());
        let stubborn = format!(
            "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done; : {mark}' & \
             echo up; while :; do sleep 0.1; done"
        );
        host.ask(shell("stubborn", &stubborn)).await.expect("started");
        until(&host, "stubborn", says("up\n")).await;
        eventually("its child runs", || runs(&mark));
        let ended = host.ask(stop("stubborn", 300)).await.expect("stopped");
        assert_eq!(ended.summary.exit, Some(Exit::Signal(9)));
        assert!(!runs(&mark), "a child in a session of its own is gone too: {way:?}");
        assert!(host.ask(stop("stubborn", 0)).await.expect("told").already_ended);
    }
}

#[tokio::test]
async fn an_order_to_stop_is_carried_out_though_the_daemon_dies() {
    for way in ways() {
        let mut guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let line = "trap 'echo got it' TERM; echo up; while :; do sleep 0.05; done";
        host.ask(shell("left", line)).await.expect("started");
        until(&host, "left", says("up\n")).await;
        let _call = host.call(stop("left", 1_500).into_wire()).await;
        until(&host, "left", says("got it\n")).await;
        guest.crash_and_restart();
        let host = Host::to(&guest).await;
        let report = until(&host, "left", |r| r.summary.exit.is_some()).await;
        assert_eq!(report.summary.exit, Some(Exit::Signal(9)));
    }
}

#[tokio::test]
async fn what_a_killed_shim_leaves_is_ended() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let mark = format!("hklost{}{way:?}", std::process::id());
        let line = format!("sh -c 'while :; do sleep 0.1; done; : {mark}' & sleep 1000");
        host.ask(shell("lost", &line)).await.expect("started");
        eventually("its child runs", || runs(&mark));
        let path = guest.dir.path().join("state/jobs/lost/process.json");
        let text = std::fs::read_to_string(path).expect("its processes");
        let shim = text.split(|c: char| !c.is_ascii_digit()).find_map(|n| n.parse::<i32>().ok());
        let shim = rustix::process::Pid::from_raw(shim.expect("a pid")).expect("a pid");
        rustix::process::kill_process(shim, rustix::process::Signal::KILL).expect("killed");
        let report = until(&host, "lost", |r| r.summary.interrupted).await;
        assert_eq!(report.summary.exit, None);
        eventually("its child is gone", || !runs(&mark));
    }
}

#[tokio::test]
async fn a_terminal_is_one_of_its_size_and_ends_with_its_input() {
    for way in ways() {
        let mut guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let line =
            "tty >/dev/null && echo terminal; stty size; read line; echo \"got $line\"; exec cat";
        host.ask(on_a_terminal(shell("tty", line))).await.expect("started");
        until(&host, "tty", says("terminal\r\n31 97\r\n")).await;
        guest.crash_and_restart();
        let host = Host::to(&guest).await;
        host.ask(input("tty", "hello\n")).await.expect("taken");
        until(&host, "tty", says("got hello\r\n")).await;
        // In the middle of a line.
        let close = ProcessInput { close: true, ..input("tty", "rest") };
        assert!(host.ask(close).await.expect("closed").closed);
        let report = until(&host, "tty", |r| r.summary.exit.is_some()).await;
        assert_eq!(report.summary.exit, Some(Exit::Code(0)));
        assert!(report.stderr.bytes.is_empty());

        // The control character reaches the foreground of the terminal's session.
        host.ask(on_a_terminal(process("intr", &["sleep", "1000"]))).await.expect("started");
        host.ask(input("intr", "\u{3}")).await.expect("taken");
        let report = until(&host, "intr", |r| r.summary.exit.is_some()).await;
        assert_eq!(report.summary.exit, Some(Exit::Signal(2)));
    }
}

#[tokio::test]
async fn the_last_output_is_kept_and_what_was_lost_is_told_by_the_cursor() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let line = "i=0; while [ $i -lt 60000 ]; do echo $i; i=$((i+1)); done; echo err >&2; cat";
        host.ask(shell("much", line)).await.expect("started");
        let whole: Vec<u8> = (0..60_000).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        until(&host, "much", |r| r.stderr.bytes == b"err\n").await;
        let first = host.ask(poll("much", 5)).await.expect("a report").stdout;
        assert_eq!((first.kept_bytes, first.total_bytes), (whole.len() as u64, whole.len() as u64));
        let kept = first.kept_bytes - first.from;
        assert!((64 * 1024..=128 * 1024).contains(&kept), "{kept} bytes are kept");
        let (mut read, mut cursor) = (Vec::new(), first.from);
        loop {
            let part = host.ask(poll("much", cursor)).await.expect("a report").stdout;
            assert_eq!(part.from, cursor);
            if part.bytes.is_empty() {
                break;
            }
            cursor += part.bytes.len() as u64;
            read.extend(part.bytes);
        }
        assert!(read == whole[usize::try_from(first.from).expect("small")..]);
        host.ask(ProcessInput { close: true, ..input("much", "last\n") }).await.expect("closed");
        until(&host, "much", |r| r.summary.exit.is_some()).await;
        let rest = host.ask(poll("much", cursor)).await.expect("a report").stdout;
        assert_eq!(rest.bytes, b"last\n");
        let files = std::fs::read_dir(guest.dir.path().join("state/jobs/much")).expect("a folder");
        let names = files.map(|file| file.expect("a file").file_name());
        let segments = names.filter(|name| name.to_string_lossy().starts_with("stdout")).count();
        assert_eq!(segments, 2);
    }
}

fn wait(id: &str, stdout_from: u64, wait_ms: u64) -> JobWait {
    JobWait { poll: poll(id, stdout_from), wait_ms }
}

#[tokio::test]
async fn a_wait_is_answered_by_output_by_the_end_by_the_time_and_by_a_cancel() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        host.ask(process("cat", &["cat"])).await.expect("started");
        let nothing = host.ask(wait("cat", 0, 1)).await.expect("a report");
        assert_eq!((nothing.summary.exit, nothing.stdout.bytes), (None, vec![]));
        // Nothing else would end these: the longest wait is longer than a test's patience.
        let mut waits = Vec::new();
        for _ in 0..3 {
            waits.push(host.call(wait("cat", 0, limits::MAX_WAIT_MS).into_wire()).await);
        }
        let mut given_up = waits.remove(0);
        given_up.cancel().await;
        assert_eq!(given_up.reply().await.expect_err("cancelled").code, GuestCode::Cancelled);
        host.ask(input("cat", "one\n")).await.expect("taken");
        for mut call in waits {
            let report = JobWait::reply_of(call.reply().await.expect("a report")).expect("of it");
            assert_eq!(report.stdout.bytes, b"one\n");
        }
        let mut end = host.call(wait("cat", 4, limits::MAX_WAIT_MS).into_wire()).await;
        host.ask(ProcessInput { close: true, ..input("cat", "") }).await.expect("closed");
        let report = JobWait::reply_of(end.reply().await.expect("a report")).expect("of it");
        assert_eq!((report.summary.exit, report.stdout.bytes), (Some(Exit::Code(0)), vec![]));
        // What is there already is not waited for.
        let there = host.ask(wait("cat", 2, limits::MAX_WAIT_MS)).await.expect("a report");
        assert_eq!(there.stdout.bytes, b"e\n");

        // One that is killed with its shim.
        host.ask(process("lost", &["sleep", "1000"])).await.expect("started");
        let mut end = host.call(wait("lost", 0, limits::MAX_WAIT_MS).into_wire()).await;
        host.ask(stop("lost", 0)).await.expect("killed");
        let report = JobWait::reply_of(end.reply().await.expect("a report")).expect("of it");
        assert_eq!(report.summary.exit, Some(Exit::Signal(9)));
    }
}

#[tokio::test]
async fn a_process_without_an_input_reads_nothing_and_is_stopped_as_others_are() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let line = "readlink /proc/self/fd/0; cat; echo read; exec sleep 1000";
        let start = || ProcessStartWithoutInput { job: shell("none", line).job };
        host.ask(start()).await.expect("started");
        assert!(host.ask(start()).await.expect("the same").existed);
        let other = host.ask(shell("none", line)).await.expect_err("another");
        assert_eq!(other.code, GuestCode::JobConflict);
        until(&host, "none", says("/dev/null\nread\n")).await;
        let shut = host.ask(input("none", "x")).await.expect_err("nobody reads");
        assert_eq!(shut.code, GuestCode::InputClosed);
        let ended = host.ask(stop("none", 60_000)).await.expect("stopped");
        assert_eq!(ended.summary.exit, Some(Exit::Signal(15)));
    }
}

#[tokio::test]
async fn output_that_its_reader_would_lose_is_not_taken_from_a_process() {
    const BYTES: u64 = 6_000_000;
    for way in ways() {
        let mut guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let mut start = shell("held", &format!("head -c {BYTES} /dev/zero; echo end >&2"));
        start.job.spool_bytes = 512 * 1024;
        host.ask(ProcessStartHeld { start, without_input: true }).await.expect("started");
        // Without a reader it would be through long before.
        tokio::time::sleep(Duration::from_millis(500)).await;
        guest.crash_and_restart();
        let host = Host::to(&guest).await;
        let (mut read, deadline) = (0, tokio::time::Instant::now() + Duration::from_secs(60));
        let ended = loop {
            let poll = JobWait { poll: poll("held", read), wait_ms: limits::MAX_WAIT_MS };
            let report = host.ask(poll).await.expect("a report");
            assert_eq!(report.stdout.from, read, "nothing of it is lost");
            read += report.stdout.bytes.len() as u64;
            if report.summary.exit.is_some() && read == report.stdout.kept_bytes {
                break report;
            }
            assert!(tokio::time::Instant::now() < deadline, "{read} of it in 60 s: {report:?}");
        };
        assert_eq!((read, &ended.stderr.bytes[..]), (BYTES, &b"end\n"[..]));
    }
}

#[tokio::test]
async fn a_terminal_gets_another_size_and_a_tree_a_signal() {
    for way in ways() {
        let mut guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let line = "trap 'stty size' WINCH; echo up; while :; do sleep 0.05; done";
        host.ask(on_a_terminal(shell("tty", line))).await.expect("started");
        until(&host, "tty", says("up\r\n")).await;
        let size =
            |rows, cols| ProcessResize { job_id: "tty".into(), size: PtySize { rows, cols } };
        host.ask(size(40, 101)).await.expect("resized");
        until(&host, "tty", says("40 101\r\n")).await;
        guest.crash_and_restart();
        let host = Host::to(&guest).await;
        host.ask(size(50, 77)).await.expect("resized");
        until(&host, "tty", says("50 77\r\n")).await;
        host.ask(stop("tty", 0)).await.expect("killed");
        assert_eq!(host.ask(size(1, 1)).await.expect_err("ended").code, GuestCode::InputClosed);

        let line = "trap 'echo got' USR1; (trap 'echo too' USR1; echo in; \
                    while :; do sleep 0.05; done) & echo up; while :; do sleep 0.05; done";
        host.ask(shell("tree", line)).await.expect("started");
        until(&host, "tree", says("in\n")).await;
        until(&host, "tree", says("up\n")).await;
        let no_terminal =
            ProcessResize { job_id: "tree".into(), size: PtySize { rows: 1, cols: 1 } };
        assert_eq!(host.ask(no_terminal).await.expect_err("none").code, GuestCode::Invalid);
        let kill = JobKill { job_id: "tree".into(), signal: 10 };
        assert!(!host.ask(kill).await.expect("sent").already_ended);
        until(&host, "tree", says("got\n")).await;
        until(&host, "tree", says("too\n")).await;
        host.ask(stop("tree", 0)).await.expect("killed");
    }
}

/// As an earlier daemon wrote it.
#[tokio::test]
async fn a_job_of_before_there_were_processes_is_read() {
    let mut guest = Guest::start(ways()[0]);
    guest.stop();
    let folder = guest.dir.path().join("state/jobs/old");
    std::fs::create_dir_all(&folder).expect("made");
    let spec = "{\"start\":{\"job_id\":\"old\",\"argv\":{\"Shell\":\"true\"},\"env\":[],\
                \"workdir\":null,\"spool_bytes\":4},\"boot_id\":\"b\",\"started_unix_ms\":7,\"task\":null}";
    let exit =
        "{\"exit\":{\"Code\":0},\"interrupted\":false,\"finished_unix_ms\":9,\"totals\":[6,0]}";
    for (name, text) in
        [("spec.json", spec), ("exit.json", exit), ("lock", "1"), ("stdout", "abcd")]
    {
        std::fs::write(folder.join(name), text).expect("written");
    }
    guest.go_on();
    let host = Host::to(&guest).await;
    let report = host.ask(poll("old", 2)).await.expect("a report");
    assert_eq!(report.summary.exit, Some(Exit::Code(0)));
    assert_eq!((report.stdout.bytes.as_slice(), report.stdout.total_bytes), (&b"cd"[..], 6));
    assert_eq!(host.ask(input("old", "x")).await.expect_err("no input").code, GuestCode::Invalid);
}
