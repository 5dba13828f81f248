//! Tasks run as jobs: what is left of those whose shim died, at whatever point.

use std::path::{Path, PathBuf};

use hivekeep_protocol::*;

use super::{kill_all, ok, results, task};
use crate::client::Host;
use crate::guest::{Guest, Way, eventually, runs, ways};

/// Folders of jobs whose end is not written down.
fn folders(guest: &Guest) -> Vec<PathBuf> {
    let runs = std::fs::read_dir(guest.dir.path().join("run/runs"));
    runs.into_iter().flatten().flatten().map(|run| run.path()).collect()
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
        assert_eq!(result.outcome, GuestTaskOutcome::Interrupted);
        assert!(!runs(&mark) && !is_alive(leader), "{way:?}");
    }
}

#[tokio::test]
async fn the_next_daemon_starts_what_never_began_and_nothing_that_may_have() {
    for way in ways() {
        let mut guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let dir = guest.dir.path().to_string_lossy().into_owned();
        for id in ["never-made", "unmarked", "marked"] {
            let line =
                format!("echo x >> {dir}/{id}; while [ ! -e {dir}/go ]; do sleep 0.05; done");
            host.ask(task(id, &line)).await.expect("taken");
            eventually("it runs", || guest.dir.path().join(id).exists());
        }
        drop(host);
        guest.stop();
        eventually("all are dead", || {
            kill_all(|line| line.starts_with("hivekeep-guest\0job\0") && line.contains(&dir)) == 0
                && kill_all(|line| line.contains(&dir)) == 0
        });
        let mut jobs = folders(&guest);
        jobs.sort();
        std::fs::remove_dir_all(&jobs[0]).expect("removed");
        std::fs::remove_file(jobs[1].join("process.json")).expect("removed");
        for (job, mark) in [(&jobs[1], ""), (&jobs[2], "1")] {
            std::fs::write(job.join("lock"), mark).expect("written");
        }
        std::fs::write(guest.dir.path().join("go"), "").expect("go");
        guest.go_on();
        let host = Host::to(&guest).await;
        let all = results(&host, 3).await;
        assert_eq!(all["marked"].outcome, GuestTaskOutcome::Interrupted, "{way:?}");
        assert!(ok(&all["never-made"]) && ok(&all["unmarked"]), "{way:?}: {all:?}");
        let times = |id| std::fs::read_to_string(guest.dir.path().join(id)).expect("effects");
        assert_eq!([times("never-made"), times("unmarked")], ["x\nx\n"; 2], "{way:?}");
        assert_eq!(times("marked"), "x\n", "{way:?}");
        eventually("nothing is left of their jobs", || folders(&guest).is_empty());
    }
}

#[tokio::test]
async fn shims_killed_at_any_point_double_nothing() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let effects = guest.dir.path().join("effects");
        let dir = guest.dir.path().to_string_lossy().into_owned();
        for number in 0..20_u64 {
            let line = format!("echo {number} >> {}", effects.display());
            host.ask(task(&number.to_string(), &line)).await.expect("taken");
            // Each time it is further on its way.
            std::thread::sleep(std::time::Duration::from_micros(number * 200));
            kill_all(|line| line.starts_with("hivekeep-guest\0job\0") && line.contains(&dir));
        }
        let all = results(&host, 20).await;
        let effects = std::fs::read_to_string(effects).unwrap_or_default();
        for (id, result) in &all {
            let times = effects.lines().filter(|line| line == id).count();
            match &result.outcome {
                GuestTaskOutcome::Ended(Exit::Code(0)) => {
                    assert_eq!(times, 1, "{way:?}: task {id}")
                }
                GuestTaskOutcome::Interrupted => assert!(times <= 1, "{way:?}: task {id}"),
                other => panic!("{way:?}: task {id}, run {times} times: {other:?}"),
            }
        }
        eventually("nothing is left of their jobs", || folders(&guest).is_empty());
    }
}

#[tokio::test]
async fn a_task_as_large_as_may_be_runs() {
    let guest = Guest::start(ways()[0]);
    let host = Host::to(&guest).await;
    let line = format!("echo ${{#LONG_2}}; exit 5 # {}", "x".repeat(200_000));
    let mut large = task("large", &line);
    large.env = (0..4).map(|n| (format!("LONG_{n}"), "v".repeat(100_000))).collect();
    host.ask(large).await.expect("taken");
    let result = results(&host, 1).await.remove("large").expect("its result");
    assert_eq!(result.outcome, GuestTaskOutcome::Ended(Exit::Code(5)));
    assert_eq!(result.stdout.head, b"100000\n");
}

/// A process that joins a frozen cgroup gets no further, as one does whose working directory is on a
/// file system that does not answer.
#[tokio::test]
async fn the_limit_holds_for_what_hangs_before_it_begins() {
    if !ways().contains(&Way::Cgroup) {
        return;
    }
    let guest = Guest::start(Way::Cgroup);
    let host = Host::to(&guest).await;
    let cgroup = guest.cgroups().join("job-r0000000000000001");
    std::fs::create_dir(&cgroup).expect("made");
    std::fs::write(cgroup.join("cgroup.freeze"), "1").expect("written");
    let effects = guest.dir.path().join("effects");
    let line = format!("echo x >> {}", effects.display());
    host.ask(TaskPut { timeout_secs: 1, ..task("hangs", &line) }).await.expect("taken");
    assert_eq!(results(&host, 1).await["hangs"].outcome, GuestTaskOutcome::TimedOut);
    assert!(!effects.exists());
}
