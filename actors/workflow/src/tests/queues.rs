//! Queues of DAGs: each way in passes them.

use chrono::Utc;
use hivekeep_kernel::{RunId, User};
use hivekeep_plan::progress::{RetryFrom, RunOutcome};
use hivekeep_runtime::runs::{RunQueue, RunState as _, RunStatus};
use hivekeep_testkit::eventually;
use serde_json::Value;

use super::{ALL, Stage};
use crate::{RunTrigger, run::RunFold};

/// Waits for a file, and leaves a line.
const HELD: &str = "type: chain\nworking_dir: .\nqueue: narrow\nparams: [{ name: n, default: '0' }]\nsteps:\n\
    - { id: a, run: 'echo in${params.n} >> done; while test ! -e go; do sleep 0.02; done' }\n\
    - { id: b, run: 'echo out${params.n} >> done; test ${params.n} != 3 || test -e mended' }\n";

fn state(stage: &Stage, id: RunId) -> RunFold {
    stage.runs().0.get(ALL, &id.to_string()).expect("it is there").state
}

#[tokio::test]
async fn every_way_in_waits_for_its_place_also_after_a_crash() {
    let mut stage = Stage::new().await;
    let begin = async |stage: &Stage, n: u8, priority: i32| {
        let queue = (priority != 0).then(|| RunQueue { name: "narrow".to_owned(), priority });
        let given = serde_json::json!({ "n": n.to_string() });
        stage.begin_in(queue, HELD, given).await.expect("it waits")
    };
    let first = begin(&stage, 1, 0).await;
    eventually("it works", async || stage.file("done").is_some()).await;
    let second = begin(&stage, 2, 0).await;
    let third = begin(&stage, 3, 7).await;
    // The beginning of a schedule, and of another run of the same.
    let again = RunId::new();
    stage
        .runs()
        .begin_again(
            &state(&stage, second),
            again,
            (User::Uid(0), hivekeep_kernel::SessionId::new()),
        )
        .await
        .expect("it waits");
    let timed = RunId::new();
    let begun = crate::run::RunRecord::Begun(Box::new(crate::run::RunBegun {
        id: timed,
        trigger: RunTrigger::Schedule { time: Utc::now() },
        ..(*state(&stage, second).begun).clone()
    }));
    stage.runs().0.begin(timed, begun).await.expect("it waits");
    for id in [second, third, again, timed] {
        assert_eq!(state(&stage, id).status(), RunStatus::Pending);
    }
    stage.rig = stage.rig.crashed().await;
    assert!(stage.runs().stop(ALL, again).await.expect("written"), "whoever waits can be stopped");
    assert_eq!(stage.over(again).await.outcome(), Some(RunOutcome::Aborted));
    assert_eq!(stage.file("done").as_deref(), Some("in1\n"), "one at a time");
    std::fs::write(stage.guest.folder().join("go"), "").expect("written");
    for (id, outcome) in [
        (first, RunOutcome::Succeeded),
        (third, RunOutcome::Failed),
        (second, RunOutcome::Succeeded),
        (timed, RunOutcome::Succeeded),
    ] {
        assert_eq!(stage.over(id).await.outcome(), Some(outcome));
    }
    let done = "in1\nout1\nin3\nout3\nin2\nout2\nin2\nout2\n";
    assert_eq!(stage.file("done").as_deref(), Some(done));

    // A retry waits, too.
    for file in ["go", "done"] {
        std::fs::remove_file(stage.guest.folder().join(file)).expect("removed");
    }
    let last = begin(&stage, 4, 0).await;
    eventually("it works", async || stage.file("done").is_some()).await;
    std::fs::write(stage.guest.folder().join("mended"), "").expect("written");
    stage.runs().retry(ALL, third, RetryFrom::Failed).await.expect("it goes on");
    assert_eq!(state(&stage, third).status(), RunStatus::Pending);
    std::fs::write(stage.guest.folder().join("go"), "").expect("written");
    for id in [last, third] {
        assert_eq!(stage.over(id).await.outcome(), Some(RunOutcome::Succeeded));
    }
    assert_eq!(stage.file("done").as_deref(), Some("in4\nout4\nout3\n"));
}

#[tokio::test]
async fn a_run_that_waits_for_its_retry_holds_no_place() {
    let stage = Stage::new().await;
    let text = "working_dir: .\nqueue: narrow\nsteps:\n\
        - { id: a, run: test -e mended, retry_policy: { limit: 9, interval_sec: 1 } }\n";
    let waits = stage.begin(text, Value::Null).await.expect("begun");
    let waiting = |state: &RunFold| state.work().is_some() && state.wakes_at().is_some();
    eventually("it waits", async || waiting(&state(&stage, waits))).await;
    let mends = "working_dir: .\nqueue: narrow\nsteps: [{ run: touch mended }]\n";
    assert_eq!(stage.outcome(mends).await, RunOutcome::Succeeded);
    assert_eq!(stage.over(waits).await.outcome(), Some(RunOutcome::Succeeded));
}
