//! Retries that reach into the runs of steps.

use std::collections::BTreeMap;

use hivekeep_plan::progress::{
    RetryFrom,
    RunOutcome::{Aborted, Failed, Succeeded},
};
use serde_json::Value;

use super::{ALL, Stage};
use crate::run::RunTrigger;

/// Three runs of a DAG, of which two fail in a run of theirs, and a loop of which one item fails.
const FAMILY: &str = r#"
type: graph
working_dir: .
handler_on: { exit: { action: dag.run, with: { dag: tail } } }
steps:
- { id: before, run: "echo before >> done" }
- { id: many, depends: before, action: dag.run, with: { dag: child, params: { n: "${ITEM}" } }, parallel: { items: [1, 2, 3], max_concurrent: 2 }, output: MANY }
- id: each
  depends: before
  foreach:
    items: [4, 5]
    steps:
    - { id: f, run: "echo f${foreach.item} >> done; echo v=${foreach.item} >> $DAGU_OUTPUT_FILE", outputs: [{ name: v }] }
    - { id: g, depends: f, run: "echo g${foreach.item} >> done; test ${foreach.item} = 4 || test -e mended" }
    collect: { v: "${steps.f.outputs.v}" }
  output: EACH
- { id: end, depends: [many, each], run: "printf '%s\n' \"$MANY\" \"$EACH\" > out" }
---
name: child
params: [{ name: n }]
working_dir: .
type: chain
steps:
- { id: a, run: "echo a${params.n} >> done" }
- { id: b, action: dag.run, with: { dag: grandchild, params: { n: "${params.n}" } } }
- { id: c, run: "echo c${params.n} >> done; echo '{\"n\": ${params.n}}'", stdout: { outputs: { decode: json } } }
---
name: tail
working_dir: .
steps: [{ run: echo tail >> done }]
---
name: grandchild
params: [{ name: n }]
working_dir: .
steps:
- { id: d, run: "echo d${params.n} >> done" }
- { id: e, depends: d, run: "echo e${params.n} >> done; test ${params.n} = 1 || test -e mended" }
"#;

fn effects(stage: &Stage) -> BTreeMap<String, usize> {
    let mut effects = BTreeMap::new();
    for line in stage.file("done").unwrap_or_default().lines() {
        *effects.entry(line.to_owned()).or_default() += 1;
    }
    effects
}

/// The daemon dies behind some of the retry's records: what failed in a child is done again there, once, and nothing else.
#[tokio::test]
async fn a_retry_does_again_in_children_what_failed_in_them() {
    for behind in [usize::MAX, 1, 3, 4, 6, 9, 12] {
        let mut stage = Stage::new().await;
        let id = stage.begin(FAMILY, Value::Null).await.expect("begun");
        assert_eq!(stage.over(id).await.outcome(), Some(Failed));
        std::fs::write(stage.guest.folder().join("mended"), "").expect("written");
        let all = |stage: &Stage| {
            let (mut runs, _) = stage.runs().0.list(ALL, None, usize::MAX);
            runs.retain(|(_, view)| view.state.begun.name != "tail");
            runs
        };
        let before: Vec<_> = all(&stage).into_iter().map(|(id, _)| id).collect();
        assert_eq!(before.len(), 1 + 3 + 3 + 2, "one each, and one of each child");
        let records = async |stage: &Stage| {
            stage.runs().events(ALL, id, 0, 1_000).await.map_or(0, |page| page.total)
        };
        let first = records(&stage).await;
        stage.runs().retry(ALL, id, RetryFrom::Failed).await.expect("it goes on");
        if behind < usize::MAX {
            while records(&stage).await < first + behind {
                tokio::task::yield_now().await;
            }
            stage.rig = stage.rig.crashed().await;
        }
        let over = stage.over(id).await;
        assert_eq!(over.outcome(), Some(Succeeded), "behind {behind}: {:#?}", over.left);
        let once = "before a1 a2 a3 c1 c2 c3 d1 d2 d3 e1 f4 f5 g4".split(' ').map(|it| (it, 1));
        let all_effects = once.chain("e2 e3 g5 tail".split(' ').map(|it| (it, 2)));
        let all_effects = all_effects.map(|(name, times)| (name.to_owned(), times)).collect();
        assert_eq!(effects(&stage), all_effects, "behind {behind}");
        let runs = all(&stage);
        assert!(runs.iter().map(|(id, _)| *id).eq(before), "behind {behind}: no other runs");
        let retried = runs.iter().filter(|(_, view)| view.state.attempt == 1).count();
        assert_eq!(retried, 1 + 2 + 2 + 1, "behind {behind}");
        let out = stage.file("out").expect("written");
        let out: Vec<Value> =
            out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let outputs =
            serde_json::json!([[{ "n": 1 }, { "n": 2 }, { "n": 3 }], [{ "v": "4" }, { "v": "5" }]]);
        assert_eq!((&out[0]["outputs"], &out[1]["outputs"]), (&outputs[0], &outputs[1]));
    }
}

#[tokio::test]
async fn a_child_that_stopped_before_its_steps_goes_on_and_one_from_the_beginning_is_another() {
    let stage = Stage::new().await;
    let text = "working_dir: .\nsteps: [{ action: dag.run, with: { dag: child } }]\n---\n\
        name: child\nworking_dir: .\npreconditions: [test -e mended]\nsteps: [{ run: 'true' }]\n";
    let id = stage.begin(text, Value::Null).await.expect("begun");
    assert_eq!(stage.over(id).await.outcome(), Some(Failed));
    let child = |stage: &Stage| {
        let (rows, _) = stage.runs().0.list(ALL, Some("child"), 9);
        rows.into_iter().map(|(id, view)| (id, view.state.outcome())).collect::<Vec<_>>()
    };
    let [(first, Some(Aborted))] = child(&stage)[..] else { panic!("{:?}", child(&stage)) };
    std::fs::write(stage.guest.folder().join("mended"), "").expect("written");
    stage.runs().retry(ALL, id, RetryFrom::Failed).await.expect("it goes on");
    assert_eq!(stage.over(id).await.outcome(), Some(Succeeded));
    assert_eq!(child(&stage), [(first, Some(Succeeded))], "the same run");
    // All from the beginning has other children.
    stage.runs().retry(ALL, id, RetryFrom::Beginning).await.expect("it goes on");
    assert_eq!(stage.over(id).await.outcome(), Some(Succeeded));
    let all = child(&stage);
    assert!(all.len() == 2 && all[0].0 != first, "{all:?}");
    let run = stage.runs().0.get(ALL, &first.to_string()).expect("there").state;
    assert!(matches!(run.begun.trigger, RunTrigger::Parent { run, .. } if run == id));
}
