//! Named points at which a daemon dies: nothing is lost, nothing is done twice, nothing stays open.

use std::{cell::Cell, collections::BTreeSet};

use hivekeep_kernel::RunId;
use hivekeep_plan::progress::RunOutcome::Succeeded;
use serde_json::{Value, json};

use super::{
    ALL, Stage,
    machine::{MachineStage, random::agents, workflow},
    schedules::recent,
    storm::EndedRun,
};

thread_local! {
    /// Point at which the daemon of this thread dies, and the passes until then.
    static ARMED: Cell<Option<(&'static str, usize)>> = const { Cell::new(None) };
}

/// Has what works in this thread break off when it passes a point so often.
fn arm((point, passes): (&'static str, usize)) {
    ARMED.set(Some((point, passes)));
    let passed = move || {
        let Some((_, left)) = ARMED.get().filter(|(armed, _)| *armed == point) else { return };
        ARMED.set((left > 1).then_some((point, left - 1)));
        if left == 1 {
            std::panic::resume_unwind(Box::new(point));
        }
    };
    fail::cfg_callback(point, passed).expect("a point");
}

/// Waits for the point; whoever is asked meanwhile answers.
async fn struck(stage: &Stage, point: &str) {
    let reached = async {
        while ARMED.get().is_some() {
            stage.people.reply_to_all();
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    let reached = tokio::time::timeout(super::PATIENCE, reached).await;
    reached.unwrap_or_else(|_| panic!("nothing passes {point}"));
}

/// Text whose run passes all points of one, but for those of machines and of schedules.
const WHOLE: &str = r#"
type: chain
working_dir: .
queue: narrow
preconditions: ["true"]
params: [{ name: n, eval: "$(echo 3)" }]
handler_on: { init: { run: echo init >> done }, exit: { run: echo exit >> done } }
steps:
- { id: a, run: "echo a${params.n} >> done", retry_policy: { limit: 2, interval_sec: 0 } }
- { id: w, action: wait.duration, with: { duration: 30ms } }
- { id: q, action: human.task, with: { prompt: Now } }
- { id: c, action: toy.slow_read }
- { id: each, foreach: { items: [x, y], steps: [{ run: "echo ${foreach.item} >> done" }] } }
- { id: sub, action: dag.run, with: { dag: item } }
---
name: item
working_dir: .
steps: [{ run: echo item >> done }]
"#;

/// Points of the run of a graph. The first that a step of it passes is the one of its first handler.
const OF_GRAPHS: [(&str, usize); 24] = [
    // Its place in the queue is taken.
    ("dag.queue_taken", 1),
    // Session, parameters, workspace and conditions are there and not recorded.
    ("run.opened", 1),
    ("run.placed", 1),
    ("run.resolved", 1),
    ("run.gated", 1),
    // Entered and not begun, begun and not over, over and not read, read and not recorded, recorded.
    ("run.entered", 1),
    ("run.entered", 2),
    ("run.assigned", 1),
    ("run.assigned", 3),
    ("run.result", 1),
    ("run.result", 2),
    ("run.before_end", 1),
    ("run.before_end", 2),
    ("run.after_end", 2),
    ("run.before_delay", 1),
    // A time has come.
    ("runs.time_due", 1),
    ("run.before_wait", 1),
    ("run.after_wait", 1),
    ("run.before_expand", 1),
    ("run.child_begun", 2),
    ("run.child_over", 1),
    ("run.child_over", 3),
    // The last handler is over, and so is the session.
    ("run.before_over", 4),
    ("run.before_close", 4),
];
const OF_MACHINES: [(&str, usize); 7] = [
    ("run.entered", 1),
    ("run.assigned", 1),
    ("run.before_end", 1),
    ("run.after_end", 1),
    ("run.before_move", 1),
    ("run.before_move", 2),
    ("run.before_over", 1),
];
const OF_SCHEDULES: [(&str, usize); 4] =
    [("dag.time_due", 1), ("dag.time_done", 1), ("run.opened", 1), ("dag.folder_scanned", 1)];

/// Checks a run that is over, and that nothing is left of it but its records.
async fn check(stage: &Stage, id: RunId, point: (&str, usize), wanted: &[&str]) {
    let run = EndedRun::read(stage, id).await;
    for &child in &run.children {
        EndedRun::read(stage, child).await;
    }
    let done = stage.file("done").unwrap_or_default();
    let mut done: Vec<_> = done.lines().collect();
    done.sort_unstable();
    assert_eq!(done, wanted, "{point:?}");
    let started = stage.guest.started();
    assert_eq!(started.iter().collect::<BTreeSet<_>>().len(), started.len(), "{point:?}");
    let (open, kept) = stage.guest.kept();
    // A result whose record was written stays in its guest where the daemon dies before it says so.
    assert!(open == 0 && kept.len() <= 1, "{point:?}: {open} sessions, {kept:?}");
}

#[tokio::test]
async fn a_graph_goes_on_from_each_point() {
    for point in OF_GRAPHS {
        let mut stage = Stage::new().await;
        arm(point);
        let id = stage.begin(WHOLE, Value::Null).await.expect("begun");
        struck(&stage, point.0).await;
        stage.rig = stage.rig.crashed().await;
        let over = async {
            while stage.runs().outcome(ALL, id).expect("it is there").is_none() {
                stage.people.reply_to_all();
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(super::PATIENCE, over).await.unwrap_or_else(|_| panic!("{point:?}"));
        let run = stage.over(id).await;
        assert_eq!(run.outcome(), Some(Succeeded), "{point:?}: {:#?}", run.left);
        check(&stage, id, point, &["a3", "exit", "init", "item", "x", "y"]).await;
    }
}

#[tokio::test]
async fn a_machine_goes_on_from_each_point() {
    let manifest = workflow(
        "",
        "  states:\n    A: { kind: System, command: echo A >> done, transitions: [{ condition: always, target: B }] }\n    \
         B: { kind: Human, prompt: x, transitions: [{ condition: input_equals, value: go, target: C }] }\n    \
         C: { kind: System, command: echo C >> done, transitions: [] }\n",
    );
    for point in OF_MACHINES {
        let mut stage = MachineStage::new(agents()).await;
        arm(point);
        let id = stage.begin(&manifest, json!({})).await.expect("begun");
        assert!(stage.signal(id, "go").await, "{point:?}");
        struck(&stage.stage, point.0).await;
        stage.stage.rig = stage.stage.rig.crashed().await;
        let run = stage.stage.over(id).await;
        assert_eq!(run.outcome(), Some(Succeeded), "{point:?}: {:#?}", run.left);
        check(&stage.stage, id, point, &["A", "C"]).await;
    }
}

#[tokio::test]
async fn a_time_of_a_schedule_is_done_once_from_each_point() {
    let (_, cron) = recent();
    let text =
        format!("schedule: '{cron}'\nworking_dir: .\nsteps: [{{ run: echo ran >> done }}]\n");
    for point in OF_SCHEDULES {
        let mut stage = Stage::watching().await;
        stage.write("a.yaml", &text);
        if point.0 == "dag.folder_scanned" {
            arm(point);
            let (folders, schedules) = (stage.folders(), stage.schedules());
            let looked = tokio::spawn(async move { folders.look(&schedules).await });
            assert!(looked.await.is_err(), "it breaks off");
            stage.rig = stage.rig.crashed().await;
            stage = stage.away().await;
        } else {
            stage.look().await;
            arm(point);
            stage = stage.away().await;
            struck(&stage, point.0).await;
            stage.rig = stage.rig.crashed().await;
        }
        stage.told("schedule_begun").await;
        let runs = stage.all_runs();
        assert_eq!(runs.len(), 1, "{point:?}: {runs:#?}");
        let id = runs[0].begun.id;
        assert_eq!(stage.over(id).await.outcome(), Some(Succeeded), "{point:?}");
        check(&stage, id, point, &["ran"]).await;
    }
}
