//! Jobs: they outlive the daemon, and what is said of them is true.

use std::time::Duration;

use hivekeep_protocol::*;

use crate::client::Host;
use crate::guest::{Guest, ways};

fn job(id: &str, line: &str) -> JobStart {
    JobStart {
        job_id: id.into(),
        argv: Argv::Shell(line.into()),
        env: vec![("WORD".into(), "given".into())],
        workdir: Some("/".into()),
        spool_bytes: limits::DEFAULT_SPOOL_BYTES,
    }
}

fn poll(id: &str) -> JobPoll {
    JobPoll { job_id: id.into(), stdout_from: 0, stderr_from: 0, max_bytes: u64::MAX }
}

async fn until(host: &Host, id: &str, mut holds: impl FnMut(&JobReport) -> bool) -> JobReport {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let report = host.ask(poll(id)).await.expect("a report");
        if holds(&report) {
            return report;
        }
        assert!(tokio::time::Instant::now() < deadline, "not in 60 s: {report:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn ended(report: &JobReport) -> bool {
    report.summary.exit.is_some() || report.summary.interrupted
}

#[tokio::test]
async fn output_is_read_while_it_runs_and_again_after_it_ended() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let line = "echo $WORD; echo err >&2; while [ ! -e /proc/$$/cwd/tmp/hk-go-$GO ]; do sleep 0.05; done; echo end; exit 7";
        let go = format!("{}-{way:?}", std::process::id());
        let mut start = job("j1", line);
        start.env.push(("GO".into(), go.clone()));
        let started = host.ask(start.clone()).await.expect("started");
        assert!(started.pid > 0 && !started.existed);
        let report =
            until(&host, "j1", |r| r.stdout.kept_bytes == 6 && r.stderr.kept_bytes == 4).await;
        assert_eq!(report.stdout.bytes, b"given\n");
        assert_eq!(report.summary.exit, None);
        let again = host.ask(start.clone()).await.expect("the same");
        assert_eq!((again.pid, again.existed), (started.pid, true));
        let other = JobStart { argv: Argv::Shell("other".into()), ..start };
        assert_eq!(host.ask(other).await.expect_err("taken").code, GuestCode::JobConflict);
        let busy = host.ask(JobForget { job_id: "j1".into() }).await.expect_err("runs");
        assert_eq!(busy.code, GuestCode::Busy);
        let flag = format!("/tmp/hk-go-{go}");
        std::fs::write(&flag, "").expect("go");
        for _ in 0..2 {
            let report = until(&host, "j1", ended).await;
            assert_eq!(report.summary.exit, Some(Exit::Code(7)));
            assert_eq!(report.stdout.bytes, b"given\nend\n");
            assert!(report.summary.finished_unix_ms >= Some(report.summary.started_unix_ms));
        }
        std::fs::remove_file(flag).expect("cleaned");
        let tail = JobPoll { stdout_from: 6, max_bytes: 2, ..poll("j1") };
        let tail = host.ask(tail).await.expect("a part");
        assert_eq!((tail.stdout.from, tail.stdout.bytes.as_slice()), (6, &b"en"[..]));
        host.ask(JobForget { job_id: "j1".into() }).await.expect("forgotten");
        assert_eq!(host.ask(poll("j1")).await.expect_err("gone").code, GuestCode::UnknownJob);
        assert_eq!(host.ask(JobList).await.expect("none").jobs, vec![]);
    }
}

#[tokio::test]
async fn a_job_outlives_the_daemon_with_all_its_output_and_its_status() {
    for way in ways() {
        let mut guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let line =
            "i=0; while [ $i -lt 40 ]; do echo line $i; i=$((i+1)); sleep 0.02; done; exit 9";
        host.ask(job("survivor", line)).await.expect("started");
        host.ask(job("ended", "echo done")).await.expect("started");
        until(&host, "survivor", |r| r.stdout.kept_bytes > 0).await;
        until(&host, "ended", ended).await;
        guest.crash_and_restart();
        let host = Host::to(&guest).await;
        let listed = host.ask(JobList).await.expect("a list").jobs;
        assert_eq!(listed.len(), 2);
        let told = tokio::time::timeout(Duration::from_secs(60), async {
            loop {
                let event = host.events.lock().await.recv().await.expect("an event");
                let GuestEvent::JobEnded(summary) = event else { panic!("{event:?}") };
                // The other one's shim may have been about to go when the daemon was killed.
                if summary.job_id != "ended" {
                    return summary;
                }
            }
        });
        let summary = told.await.expect("told");
        assert_eq!((summary.job_id.as_str(), summary.exit), ("survivor", Some(Exit::Code(9))));
        let report = host.ask(poll("survivor")).await.expect("a report");
        let expected: String = (0..40).map(|i| format!("line {i}\n")).collect();
        assert_eq!(String::from_utf8_lossy(&report.stdout.bytes), expected);
        let report = host.ask(poll("ended")).await.expect("a report");
        assert_eq!(report.stdout.bytes, b"done\n");
    }
}

#[tokio::test]
async fn output_beyond_the_spool_is_counted_and_the_job_goes_on() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let start =
            JobStart { spool_bytes: 1000, ..job("chatty", "head -c 3000000 /dev/zero; exit 4") };
        host.ask(start).await.expect("started");
        let report = until(&host, "chatty", ended).await;
        assert_eq!(report.summary.exit, Some(Exit::Code(4)));
        assert_eq!((report.stdout.kept_bytes, report.stdout.total_bytes), (1000, 3_000_000));
    }
}

#[tokio::test]
async fn a_kill_reaches_every_process_of_the_job() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let mark = format!("hkjob{}{way:?}", std::process::id());
        let line = format!(
            "trap 'echo got it' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done; : {mark}' & \
             echo ready; while :; do sleep 0.1; done"
        );
        host.ask(job("tough", &line)).await.expect("started");
        // The name is in the first shell's command line before that traps anything.
        until(&host, "tough", |r| r.stdout.bytes == b"ready\n").await;
        let term = host.ask(JobKill { job_id: "tough".into(), signal: 15 }).await.expect("sent");
        assert!(!term.already_ended && term.summary.exit.is_none());
        until(&host, "tough", |r| r.stdout.bytes == b"ready\ngot it\n").await;
        let kill = host.ask(JobKill { job_id: "tough".into(), signal: 9 }).await.expect("sent");
        assert_eq!(kill.summary.exit, Some(Exit::Signal(9)));
        assert!(!crate::guest::runs(&mark), "{way:?}");
        let again = host.ask(JobKill { job_id: "tough".into(), signal: 9 }).await.expect("sent");
        assert!(again.already_ended);
        let bad =
            host.ask(JobKill { job_id: "tough".into(), signal: 65 }).await.expect_err("no such");
        assert_eq!(bad.code, GuestCode::Invalid);
    }
}

#[tokio::test]
async fn a_job_runs_until_its_last_process_ends() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        host.ask(job("leaves", "(sleep 0.5; echo later) & exit 6")).await.expect("started");
        let report = until(&host, "leaves", ended).await;
        assert_eq!(report.summary.exit, Some(Exit::Code(6)));
        assert_eq!(report.stdout.bytes, b"later\n");
    }
}

#[tokio::test]
async fn a_job_whose_shim_died_is_interrupted() {
    for way in ways() {
        let mut guest = Guest::start(way);
        let host = Host::to(&guest).await;
        host.ask(job("victim", "sleep 1000")).await.expect("started");
        let path = guest.dir.path().join("state/jobs/victim/process.json");
        let text = std::fs::read_to_string(path).expect("its processes");
        let pids: Vec<i32> =
            text.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
        guest.crash_and_restart();
        for pid in pids {
            let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let host = Host::to(&guest).await;
        let report = until(&host, "victim", ended).await;
        assert!(report.summary.interrupted || report.summary.exit == Some(Exit::Signal(9)));
        host.ask(JobForget { job_id: "victim".into() }).await.expect("forgotten");
    }
}

#[tokio::test]
async fn a_job_that_cannot_start_leaves_nothing() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let direct = Argv::Direct(vec!["/no/such/program".into()]);
        let start = JobStart { argv: direct, ..job("none", "") };
        assert_eq!(host.ask(start).await.expect_err("refused").code, GuestCode::CannotStart);
        let nowhere = JobStart { workdir: Some("/no/folder".into()), ..job("none", "true") };
        assert_eq!(host.ask(nowhere).await.expect_err("refused").code, GuestCode::NotFound);
        assert_eq!(host.ask(JobList).await.expect("a list").jobs, vec![]);
        for bad in ["", "../x", "a b", &"x".repeat(65)] {
            let error = host.ask(job(bad, "true")).await.expect_err("refused");
            assert_eq!(error.code, GuestCode::Invalid, "{bad:?}");
        }
    }
}

#[tokio::test]
async fn a_shutdown_marks_the_jobs_that_it_ends() {
    let guest = Guest::start(ways()[0]);
    let host = Host::to(&guest).await;
    host.ask(job("cut", "sleep 1000")).await.expect("started");
    let report = host.ask(poll("cut")).await.expect("a report");
    assert!(!report.summary.interrupted);
    std::fs::write(guest.dir.path().join("run/shutdown"), "0").expect("an order");
    let killed = host.ask(JobKill { job_id: "cut".into(), signal: 15 }).await.expect("sent");
    assert!(killed.summary.interrupted);
}

#[tokio::test]
async fn the_same_start_from_many_sides_starts_one_job() {
    let guest = Guest::start(ways()[0]);
    let host = std::sync::Arc::new(Host::to(&guest).await);
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let host = host.clone();
        all.spawn(
            async move { host.ask(job("one", "echo x; sleep 1000")).await.expect("started") },
        );
    }
    let (mut pids, mut made) = (std::collections::HashSet::new(), 0);
    while let Some(started) = all.join_next().await {
        let started = started.expect("no panic");
        pids.insert(started.pid);
        made += usize::from(!started.existed);
    }
    assert_eq!((pids.len(), made), (1, 1));
    host.ask(JobKill { job_id: "one".into(), signal: 9 }).await.expect("killed");
}
