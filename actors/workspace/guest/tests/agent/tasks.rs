//! Tasks: each runs once, and what is said of it is true and stays.

mod copies;
mod disk;
mod jobs;
mod kills;
mod told;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use hivekeep_protocol::*;

use crate::client::Host;
use crate::guest::{Guest, Way, eventually, runs, ways};

pub fn task(id: &str, command: &str) -> TaskPut {
    TaskPut {
        message_id: format!("m-{id}"),
        task_id: id.into(),
        command: command.into(),
        workdir: Some("/".into()),
        env: vec![("WORD".into(), "given".into())],
        timeout_secs: 300,
    }
}

pub async fn page(host: &Host, after: u64) -> TaskResultsReply {
    host.ask(TaskResults { after, limit: 1000 }).await.expect("a page")
}

/// Waits until so many results are there, all of which fit a page.
pub async fn results(host: &Host, many: usize) -> BTreeMap<String, GuestTaskResult> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let page = page(host, 0).await;
        if page.results.len() >= many {
            return page.results.into_iter().map(|it| (it.task_id.clone(), it)).collect();
        }
        assert!(tokio::time::Instant::now() < deadline, "not {many} in 60 s: {page:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn ok(result: &GuestTaskResult) -> bool {
    result.outcome == GuestTaskOutcome::Ended(Exit::Code(0))
}

#[tokio::test]
async fn a_task_runs_once_and_a_repeat_has_the_same_result_even_when_acknowledged() {
    for way in ways() {
        let mut guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let file = guest.dir.path().join("effects");
        let line = format!("echo $WORD; echo err >&2; echo x >> {}; exit 3", file.display());
        let taken = host.ask(task("one", &line)).await.expect("taken");
        assert_eq!(
            (taken.state, taken.repeat, taken.result),
            (GuestTaskState::Running, false, None)
        );
        let told = tokio::time::timeout(Duration::from_secs(60), async {
            host.events.lock().await.recv().await
        });
        assert!(matches!(told.await.expect("told"), Some(GuestEvent::TaskEnded(_))));
        let first = results(&host, 1).await.remove("one").expect("its result");
        assert_eq!(first.outcome, GuestTaskOutcome::Ended(Exit::Code(3)));
        assert_eq!((first.number, first.message_id.as_str()), (1, "m-one"));
        assert_eq!(
            (&first.stdout.head[..], &first.stderr.head[..]),
            (&b"given\n"[..], &b"err\n"[..])
        );
        assert_eq!((first.stdout.total_bytes, first.stdout.path.clone()), (6, None));
        assert_eq!(first.workdir.as_deref(), Some("/"));
        let ack = || TaskAck { task_ids: vec!["one".into(), "stranger".into()] };
        assert_eq!(host.ask(ack()).await.expect("acknowledged").acknowledged, 1);
        assert_eq!(host.ask(ack()).await.expect("again").acknowledged, 0);
        assert_eq!(page(&host, 0).await.results, []);
        guest.crash_and_restart();
        let host = Host::to(&guest).await;
        let again = host.ask(task("one", &line)).await.expect("known");
        assert_eq!(
            (again.state, again.repeat, again.differs),
            (GuestTaskState::Acknowledged, true, false)
        );
        assert_eq!(again.result.as_deref(), Some(&first));
        let other = host.ask(task("one", "echo other")).await.expect("known");
        assert!(other.repeat && other.differs && other.result.as_deref() == Some(&first));
        host.ask(task("two", "true")).await.expect("taken");
        assert_eq!(results(&host, 1).await["two"].number, 2);
        assert_eq!(std::fs::read_to_string(&file).expect("effects"), "x\n");
        assert_eq!(host.ask(JobList).await.expect("a list").jobs, [], "a task is not a job");
    }
}

#[tokio::test]
async fn four_run_at_once_and_the_others_in_their_order() {
    let guest = Guest::start(ways()[0]);
    let host = Host::to(&guest).await;
    let dir = guest.dir.path().display().to_string();
    for number in 0..7 {
        let line =
            format!("echo {number} >> {dir}/order; while [ ! -e {dir}/go ]; do sleep 0.05; done");
        host.ask(task(&number.to_string(), &line)).await.expect("taken");
    }
    let order = guest.dir.path().join("order");
    let begun = || std::fs::read_to_string(&order).unwrap_or_default().lines().count();
    eventually("four run", || begun() == 4);
    let listed = host.ask(TaskList).await.expect("a list");
    assert_eq!(
        (listed.running, listed.queued),
        (
            ["0", "1", "2", "3"].map(String::from).to_vec(),
            ["4", "5", "6"].map(String::from).to_vec()
        )
    );
    let page = page(&host, 0).await;
    assert_eq!((page.running, page.queued, page.results.len()), (4, 3, 0));
    // One that waits never begins.
    let cancelled = host.ask(TaskCancel { task_id: "5".into() }).await.expect("cancelled");
    assert_eq!(cancelled.state, GuestTaskState::Queued);
    std::fs::write(guest.dir.path().join("go"), "").expect("go");
    let all = results(&host, 7).await;
    assert!(all.iter().all(|(id, it)| ok(it) || id == "5"), "{all:?}");
    assert_eq!(all["5"].outcome, GuestTaskOutcome::Cancelled);
    let order = std::fs::read_to_string(&order).expect("order");
    let mut begun: Vec<_> = order.lines().collect();
    assert_eq!(begun.len(), 6);
    begun[..4].sort_unstable();
    assert_eq!(begun[..4], ["0", "1", "2", "3"]);
    assert!(!begun.contains(&"5"));
    let error = host.ask(TaskCancel { task_id: "none".into() }).await.expect_err("unknown");
    assert_eq!(error.code, GuestCode::UnknownTask);
}

#[tokio::test]
async fn a_limit_a_cancel_and_the_commands_end_each_kill_the_whole_tree() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let mark = format!("hktask{}{way:?}", std::process::id());
        let tree = |what: &str| {
            format!(
                "setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done; : {mark}{what}' & {what}"
            )
        };
        let late = TaskPut { timeout_secs: 1, ..task("late", &tree("echo begun; sleep 1000")) };
        host.ask(late).await.expect("taken");
        host.ask(task("leaves", &tree("exit 6"))).await.expect("taken");
        host.ask(task("stopped", &tree("sleep 1001"))).await.expect("taken");
        eventually("it runs", || runs(&format!("{mark}sleep 1001")));
        let stop = host.ask(TaskCancel { task_id: "stopped".into() }).await.expect("sent");
        assert_eq!(stop.state, GuestTaskState::Running);
        let all = results(&host, 3).await;
        assert_eq!(all["late"].outcome, GuestTaskOutcome::TimedOut);
        assert_eq!(all["late"].stdout.head, b"begun\n");
        assert!(all["late"].elapsed_ms >= 1000);
        assert_eq!(all["leaves"].outcome, GuestTaskOutcome::Ended(Exit::Code(6)));
        assert_eq!(all["stopped"].outcome, GuestTaskOutcome::Cancelled);
        assert!(!runs(&mark), "{way:?}");
        let done = host.ask(TaskCancel { task_id: "late".into() }).await.expect("over");
        assert_eq!(done.state, GuestTaskState::Done);
    }
}

#[tokio::test]
async fn nonsense_is_an_answer_and_the_daemon_lives() {
    let guest = Guest::start(ways()[0]);
    let host = Host::to(&guest).await;
    for bad in ["", "a\nb", "\0", &"x".repeat(129)] {
        let error = host.ask(task(bad, "true")).await.expect_err("refused");
        assert_eq!(error.code, GuestCode::Invalid, "{bad:?}");
    }
    let long = task("long", &"x".repeat(limits::MAX_TASK_COMMAND_BYTES + 1));
    assert_eq!(host.ask(long).await.expect_err("refused").code, GuestCode::TooLarge);
    let bad = |id: &str| task(id, "true");
    let mut nul_env = bad("env-nul");
    nul_env.env.push(("A".into(), "\0".into()));
    let mut no_name = bad("env-name");
    no_name.env.push(("é=\u{1f600}".repeat(900), "x".into()));
    let mut many = bad("env-many");
    many.env = (0..=limits::MAX_ENV_VARS).map(|n| (format!("A{n}"), String::new())).collect();
    let cases = [
        (task("nul", "echo \0"), GuestCode::Invalid),
        (nul_env, GuestCode::Invalid),
        (no_name, GuestCode::Invalid),
        (many, GuestCode::TooLarge),
        (TaskPut { workdir: Some("/no/folder".into()), ..bad("nowhere") }, GuestCode::NotFound),
        (TaskPut { timeout_secs: 0, ..bad("no-time") }, GuestCode::Invalid),
        (TaskPut { timeout_secs: u64::MAX, ..bad("for-ever") }, GuestCode::Invalid),
        (TaskPut { workdir: Some("/etc/passwd".into()), ..bad("file") }, GuestCode::NotADirectory),
    ];
    let expected: BTreeMap<_, _> =
        cases.iter().map(|(put, code)| (put.task_id.clone(), *code)).collect();
    let many = cases.len();
    for (put, _) in cases {
        host.ask(put).await.expect("taken");
    }
    let any = "ü/../ \u{1f600} $(reboot)";
    host.ask(task(any, "true")).await.expect("an id is only a name");
    let all = results(&host, many + 1).await;
    for (id, code) in expected {
        let GuestTaskOutcome::NotRun(error) = &all[&id].outcome else { panic!("{:?}", all[&id]) };
        assert_eq!(error.code, code, "{id}: {error}");
        assert!(error.message.len() <= limits::MAX_TASK_REASON_BYTES);
        assert_eq!(all[&id].workdir, None);
    }
    assert!(ok(&all[any]));
}

#[tokio::test]
async fn much_output_is_capped_in_the_result_and_whole_in_a_file() {
    let guest = Guest::start(ways()[0]);
    let host = Host::to(&guest).await;
    host.ask(task("much", "seq 1 20000; head -c 17000000 /dev/zero >&2")).await.expect("taken");
    let result = results(&host, 1).await.remove("much").expect("its result");
    let whole: String = (1..=20000).map(|n| format!("{n}\n")).collect();
    assert_eq!(result.stdout.head, whole.as_bytes()[..limits::TASK_SHOWN_BYTES]);
    assert_eq!(result.stdout.total_bytes, whole.len() as u64);
    let path = result.stdout.path.expect("a file");
    assert!(Path::new(&path).starts_with(guest.dir.path().join("state/tasks")));
    let read = ReadFile { path, offset: 0, limit: None };
    let (reply, content) = host.download(read).await;
    reply.expect("fetched");
    assert_eq!(content, whole.as_bytes());
    assert_eq!(result.stderr.total_bytes, 17_000_000);
    let kept = std::fs::metadata(result.stderr.path.expect("a file")).expect("there").len();
    assert_eq!(kept, limits::TASK_SPOOL_BYTES);
}

#[tokio::test]
async fn what_is_written_of_tasks_is_bounded_and_none_is_forgotten_over_it() {
    let mut guest = Guest::start(ways()[0]);
    let host = Host::to(&guest).await;
    let go = guest.dir.path().join("go");
    for number in 0..4 {
        let line = format!("while [ ! -e {} ]; do sleep 0.05; done", go.display());
        host.ask(task(&format!("long-{number}"), &line)).await.expect("taken");
    }
    let waits = format!("echo waited # {}", "x".repeat(10_000));
    host.ask(task("waits", &waits)).await.expect("taken");
    // Cancelled at once, and so each two records and half a megabyte.
    let large = "x".repeat(limits::MAX_TASK_COMMAND_BYTES);
    for number in 0..12 {
        let id = format!("large-{number}");
        host.ask(task(&id, &large)).await.expect("taken");
        host.ask(TaskCancel { task_id: id.clone() }).await.expect("cancelled");
        let acked = host.ask(TaskAck { task_ids: vec![id] }).await.expect("acknowledged");
        assert_eq!(acked.acknowledged, 1);
    }
    let log = guest.dir.path().join("state/tasks/log");
    let bytes = std::fs::metadata(&log).expect("there").len();
    assert!(bytes < 2 * 1024 * 1024, "{bytes}");
    guest.crash_and_restart();
    let host = Host::to(&guest).await;
    let known = host.ask(task("large-0", &large)).await.expect("known");
    assert_eq!((known.state, known.differs), (GuestTaskState::Acknowledged, false));
    std::fs::write(go, "").expect("go");
    let all = results(&host, 5).await;
    assert_eq!(all["waits"].stdout.head, b"waited\n");
    assert!(all.values().all(ok), "{all:?}");
}

#[tokio::test]
async fn results_come_in_pages_that_fit_a_frame() {
    let guest = Guest::start(ways()[0]);
    let host = Host::to(&guest).await;
    for number in 0..25 {
        let line = "head -c 40000 /dev/zero; head -c 40000 /dev/zero >&2";
        host.ask(task(&number.to_string(), line)).await.expect("taken");
    }
    let (mut seen, mut after) = (0, 0);
    eventually_async(|| async { host.ask(TaskList).await.expect("a list").results == 25 }).await;
    loop {
        let page = page(&host, after).await;
        assert!(page.results.len() <= limits::MAX_TASK_RESULTS);
        assert!(page.results.iter().all(|it| it.number > after));
        seen += page.results.len();
        after = page.results.last().expect("some").number;
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, 25);
}

async fn eventually_async<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "not within 60 s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Another boot id and no process of the tasks left: what a machine's death leaves.
fn reboot(guest: &mut Guest) {
    guest.stop();
    let dir = guest.dir.path().to_string_lossy().into_owned();
    // Shims first, so that none sees its command die.
    eventually("all are dead", || {
        kill_all(|line| line.starts_with("hivekeep-guest\0job\0") && line.contains(&dir)) == 0
            && kill_all(|line| line.contains(&dir)) == 0
    });
    std::fs::write(guest.dir.path().join("run/boot_id"), format!("boot-{}", guest.pid()))
        .expect("another boot");
    // They are not on a disk.
    let runs = guest.dir.path().join("run/runs");
    if runs.exists() {
        std::fs::remove_dir_all(&runs).expect("lost");
    }
    guest.go_on();
}

/// Kills what has such a command line; answers how many there were.
fn kill_all(ours: impl Fn(&str) -> bool) -> usize {
    let mut found = 0;
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if pid.unsigned_abs() != std::process::id() && ours(&String::from_utf8_lossy(&line)) {
            let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            found += 1;
        }
    }
    found
}

#[tokio::test]
async fn after_a_reboot_what_ran_is_interrupted_and_what_waited_runs() {
    let mut guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    let dir = guest.dir.path().display().to_string();
    for number in 0..6 {
        let line =
            format!("echo {number} >> {dir}/began; while [ ! -e {dir}/go ]; do sleep 0.05; done");
        host.ask(task(&number.to_string(), &line)).await.expect("taken");
    }
    let began = guest.dir.path().join("began");
    eventually("four run", || {
        std::fs::read_to_string(&began).unwrap_or_default().lines().count() == 4
    });
    drop(host);
    reboot(&mut guest);
    std::fs::write(guest.dir.path().join("go"), "").expect("go");
    let host = Host::to(&guest).await;
    let all = results(&host, 6).await;
    for number in 0..6 {
        let result = &all[&number.to_string()];
        let expected = match number {
            0..4 => GuestTaskOutcome::Interrupted,
            _ => GuestTaskOutcome::Ended(Exit::Code(0)),
        };
        assert_eq!(result.outcome, expected, "{number}");
    }
    let began = std::fs::read_to_string(&began).expect("began");
    assert_eq!(began.lines().count(), 6, "nothing ran twice: {began}");
}

#[tokio::test]
async fn a_shutdown_interrupts_what_it_ends_and_begins_nothing_new() {
    let guest = Guest::start(ways()[0]);
    let host = Host::to(&guest).await;
    for number in 0..5 {
        let line = format!("touch {}/began-{number}; sleep 1000", guest.dir.path().display());
        host.ask(task(&number.to_string(), &line)).await.expect("taken");
    }
    eventually_async(|| async { host.ask(TaskList).await.expect("a list").running.len() == 4 })
        .await;
    eventually("it runs", || guest.dir.path().join("began-0").exists());
    std::fs::write(guest.dir.path().join("run/shutdown"), "0").expect("an order");
    host.ask(TaskCancel { task_id: "0".into() }).await.expect("ended");
    assert_eq!(results(&host, 1).await["0"].outcome, GuestTaskOutcome::Interrupted);
    let listed = host.ask(TaskList).await.expect("a list");
    assert_eq!((listed.running.len(), listed.queued), (3, vec!["4".to_owned()]));
}
