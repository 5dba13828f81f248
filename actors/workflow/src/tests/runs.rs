//! Runs of small DAGs, and what becomes of them when the daemon dies.

use std::collections::BTreeMap;

use hivekeep_kernel::RunId;
use hivekeep_plan::progress::RetryFrom;
use hivekeep_plan::progress::RunOutcome::{self, Aborted, Failed, PartlySucceeded, Succeeded};
use serde_json::{Value, json};

use super::{ALL, Stage};
use crate::run::{RunFold, RunPlace};

/// Number of records that are on the disk.
async fn records(stage: &Stage, id: RunId) -> usize {
    stage.runs().events(ALL, id, 0, 1_000).await.map_or(0, |page| page.total)
}

#[tokio::test]
async fn steps_run_in_their_order_with_their_values() {
    let stage = Stage::new().await;
    let text = r#"
type: graph
working_dir: .
params: [{ name: who, type: string, default: you }]
env: [{ GREETING: "hi ${params.who}" }]
steps:
- { id: a, run: "printf '%s\n' \"v=$GREETING\" >> \"$DAGU_OUTPUT_FILE\"; echo '{\"n\": [1, 2]}'", outputs: [{ name: v }], output: { all: { from: stdout, decode: json, select: .n } } }
- { id: b, depends: a, run: "echo '${steps.a.outputs.v}' > b.txt" }
- { id: c, depends: b, env: [{ X: "${a.output.all}" }], run: ["printf %s \"$X\" > c.txt", "cat b.txt >> c.txt"] }
- { id: d, depends: c, run: "\#!/bin/sh\nprintf '%s|' \"$0\" 'it''s' > d.txt\n" }
"#;
    let run = stage.ran(&text.replace("\\#", "#"), json!({ "who": "me; $(date) 'x'" })).await;
    assert_eq!(run.outcome(), Some(Succeeded), "{:#?}", run.left);
    assert_eq!(stage.file("b.txt").as_deref(), Some("hi me; $(date) x\n"));
    assert_eq!(stage.file("c.txt").as_deref(), Some("[1,2]hi me; $(date) x\n"));
    assert!(stage.file("d.txt").is_some_and(|text| text.ends_with("|its|")));
}

#[tokio::test]
async fn outcomes_are_those_of_the_steps_and_their_policies() {
    let stage = Stage::new().await;
    for (text, outcome, files) in [
        ("steps: [{ run: 'true' }, { run: exit 3 }, { run: touch no }]", Failed, ""),
        (
            "steps: [{ run: exit 3, continue_on: { exit_code: [3] } }, { run: touch a1 }]",
            PartlySucceeded,
            "a1",
        ),
        (
            "steps: [{ run: exit 3, continue_on: { failure: true, mark_success: true } }, { run: touch a2 }]",
            Succeeded,
            "a2",
        ),
        ("steps: [{ run: touch no, preconditions: ['false'] }, { run: touch no }]", Succeeded, ""),
        (
            "preconditions: ['false']\nhandler_on: { abort: { run: touch a3 } }\nsteps: [{ run: touch no }]",
            Aborted,
            "a3",
        ),
        (
            "preconditions: [{ condition: a, expected: 're:^[ab]$' }]\nsteps: [{ run: touch a4 }]",
            Succeeded,
            "a4",
        ),
        (
            "handler_on: { failure: { run: touch a5 }, success: { run: touch no }, exit: { run: touch a6 } }\n\
             steps: [{ run: 'false' }]",
            Failed,
            "a5 a6",
        ),
        (
            "steps: [{ run: 'echo x >> tries; test $(wc -l < tries) -ge 3', \
             retry_policy: { limit: 3, interval_sec: 0 } }, { run: mv tries a7 }]",
            Succeeded,
            "a7",
        ),
        (
            "steps: [{ run: 'echo x >> rounds', repeat_policy: { repeat: until, condition: 'test $(wc -l < rounds) -ge 2', \
             interval_sec: 0 } }, { run: 'test $(wc -l < rounds) -eq 2 && mv rounds a8' }]",
            Succeeded,
            "a8",
        ),
        ("steps: [{ run: sleep 30, timeout_sec: 1 }]", Failed, ""),
        ("secrets: [{ name: S, ref: a/b }]\nsteps: [{ run: touch no }]", Failed, ""),
        ("steps: [{ run: touch no }, { type: ssh, command: ls }]", Failed, ""),
    ] {
        let text = format!("type: chain\nworking_dir: .\n{text}");
        assert_eq!(stage.outcome(&text).await, outcome, "{text}");
        for file in files.split_whitespace() {
            assert!(stage.file(file).is_some(), "{file}: {text}");
        }
        assert!(stage.file("no").is_none(), "{text}");
    }
}

#[tokio::test]
async fn a_run_that_is_stopped_ends_its_commands_and_runs_its_handlers() {
    let stage = Stage::new().await;
    let text = "type: chain\nworking_dir: .\nhandler_on: { abort: { run: touch stopped } }\nsteps: [{ run: sleep 60 }, { run: touch no }]";
    let id = stage.begin(text, Value::Null).await.expect("begun");
    while stage.guest.started().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(stage.runs().stop(ALL, id).await.expect("written"));
    assert_eq!(stage.over(id).await.outcome(), Some(Aborted));
    assert!(stage.file("stopped").is_some() && stage.file("no").is_none());
}

/// Text with everything that leaves a record.
const WHOLE: &str = r#"
type: chain
working_dir: .
preconditions: ["true"]
params: [{ name: n, eval: "$(printf 3)" }]
handler_on: { init: { run: echo init >> done }, exit: { run: echo exit >> done } }
steps:
- { id: a, run: "echo a >> done; echo \"x=${params.n}\" >> \"$DAGU_OUTPUT_FILE\"", outputs: [{ name: x }] }
- { id: b, run: "echo b >> done; false", retry_policy: { limit: 1, interval_sec: 0 }, continue_on: failed }
- { id: c, run: "echo 'c${steps.a.outputs.x}' >> done" }
"#;

fn effects(stage: &Stage) -> BTreeMap<String, usize> {
    let mut effects = BTreeMap::new();
    for line in stage.file("done").unwrap_or_default().lines() {
        *effects.entry(line.to_owned()).or_default() += 1;
    }
    effects
}

fn expected() -> BTreeMap<String, usize> {
    [("init", 1), ("a", 1), ("b", 2), ("c3", 1), ("exit", 1)]
        .map(|(name, times)| (name.to_owned(), times))
        .into()
}

/// The daemon dies behind any number of records: each command takes its effect once, and the run ends as ever.
#[tokio::test]
async fn a_daemon_that_dies_at_any_record_goes_on_from_it() {
    let stage = Stage::new().await;
    let whole = stage.ran(WHOLE, Value::Null).await;
    assert_eq!((whole.outcome(), effects(&stage)), (Some(PartlySucceeded), expected()));
    let total = records(&stage, whole.begun.id).await;
    assert!(total >= 20, "{total}");
    for behind in 1..total {
        let mut stage = Stage::new().await;
        let id = stage.begin(WHOLE, Value::Null).await.expect("begun");
        while records(&stage, id).await < behind {
            tokio::task::yield_now().await;
        }
        stage.rig = stage.rig.crashed().await;
        let over: RunFold = stage.over(id).await;
        assert_eq!(over.outcome(), Some(RunOutcome::PartlySucceeded), "behind {behind}");
        assert_eq!(effects(&stage), expected(), "behind {behind}");
        let started = stage.guest.started();
        let unique: std::collections::BTreeSet<_> = started.iter().collect();
        assert_eq!(unique.len(), started.len(), "a command was run twice");
    }
}

#[tokio::test]
async fn a_retry_does_again_what_failed_and_all_behind_it() {
    let stage = Stage::new().await;
    let text = "type: chain\nworking_dir: .\nparams: [{ name: n, eval: date +%N }]\nsteps:\n\
        - { id: a, run: \"echo a >> done; echo x=1 >> $DAGU_OUTPUT_FILE\", outputs: [{ name: x }] }\n\
        - { id: b, run: \"echo 'b${steps.a.outputs.x}' >> done; test -f mended\" }\n\
        - { id: c, run: echo c >> done }";
    let id = stage.begin_at(RunPlace::Own, None, text, Value::Null).await.expect("begun");
    let run = stage.closed(id).await;
    assert_eq!(run.outcome(), Some(Failed));
    assert_eq!(stage.guest.of_workspace(), ["lifetime 3600", "stop"], "it is kept for a retry");
    std::fs::write(stage.guest.folder().join("mended"), "").expect("written");
    stage.runs().retry(ALL, id, RetryFrom::Failed).await.expect("it goes on");
    let again = stage.over(id).await;
    assert_eq!(again.outcome(), Some(Succeeded), "{:#?}", again.left);
    let of = |run: &RunFold| run.work().map(|work| work.beginning.clone());
    assert_eq!(of(&again), of(&run), "what was resolved stays");
    assert_eq!(stage.file("done").as_deref(), Some("a\nb1\nb1\nc\n"));
    let _closed = stage.closed(id).await;
    let of_retry = ["adopt", "lifetime null", "start", "destroy"];
    assert_eq!(stage.guest.of_workspace()[2..], of_retry, "the retry goes on in it");
    let nothing = stage.runs().retry(ALL, id, RetryFrom::Failed).await.expect_err("all is well");
    assert_eq!(nothing.code, "dag_invalid");
    stage.runs().retry(ALL, id, RetryFrom::Beginning).await.expect("it goes on");
    assert_eq!(stage.over(id).await.outcome(), Some(Succeeded));
    assert_eq!(
        effects(&stage),
        [("a", 2), ("b1", 3), ("c", 2)].map(|(name, n)| (name.to_owned(), n)).into()
    );
}

/// A file with children of each kind: one, several by `parallel`, and the items of a loop.
const FAMILY: &str = r#"
type: chain
working_dir: .
steps:
- { id: one, action: dag.run, with: { dag: child, params: "n=1" }, output: ONE }
- { id: many, action: dag.run, with: { dag: child, params: { n: "${ITEM}" } }, parallel: { items: [2, 3, 2], max_concurrent: 2 }, output: MANY }
- id: each
  foreach:
    items: "[{\"k\": \"x\", \"v\": \"a b\"}, {\"k\": \"y\", \"v\": \"c\"}]"
    as: it
    key: "${foreach.it.k}"
    steps:
    - { id: say, run: "echo \"v=${foreach.it.v}/${foreach.index}\" >> \"$DAGU_OUTPUT_FILE\"; echo '${foreach.key}' >> done", outputs: [{ name: v }] }
    - { id: and, depends: say, run: "echo '${steps.say.outputs.v}' >> done" }
    collect: { got: "${steps.say.outputs.v}" }
  output: EACH
- { id: end, run: "printf '%s\n' \"$ONE\" \"$MANY\" \"$EACH\" > out" }
---
name: child
params: [{ name: n }]
working_dir: .
steps:
- { id: c, run: "echo c${params.n} >> done; echo '{\"n\": ${params.n}}'", stdout: { outputs: { decode: json } } }
"#;

fn family() -> BTreeMap<String, usize> {
    ["c1", "c2", "c3", "x", "y", "a b/0", "c/1"].map(|name| (name.to_owned(), 1)).into()
}

#[tokio::test]
async fn children_run_each_once_and_leave_their_outputs_in_order() {
    let stage = Stage::new().await;
    let run = stage.ran(FAMILY, Value::Null).await;
    assert_eq!(run.outcome(), Some(Succeeded), "{:#?}", run.left);
    assert_eq!(effects(&stage), family());
    let out = stage.file("out").expect("written");
    let out: Vec<Value> =
        out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&out[0]["status"], &out[0]["outputs"]), (&json!("succeeded"), &json!({ "n": 1 })));
    assert_eq!(out[1]["summary"], json!({ "total": 2, "succeeded": 2, "failed": 0 }));
    assert_eq!(out[1]["outputs"], json!([{ "n": 2 }, { "n": 3 }]));
    assert_eq!(out[2]["outputs"], json!([{ "got": "a b/0" }, { "got": "c/1" }]));
    assert_eq!(out[2]["items"][1]["key"], "y");
    for (text, outcome) in [
        ("steps: [{ id: a, foreach: { items: [], steps: [{ run: 'false' }] } }]", Succeeded),
        (
            "steps: [{ id: a, foreach: { items: [1, 2], steps: [{ run: 'test ${foreach.item} = 1' }] } }]",
            Failed,
        ),
        (
            "steps: [{ id: a, foreach: { items: [1, 1], key: '${foreach.item}', steps: [{ run: 'true' }] } }]",
            Failed,
        ),
        ("steps: [{ id: a, foreach: { items: nothing, steps: [{ run: 'true' }] } }]", Failed),
        ("steps: [{ id: a, action: dag.run, with: { dag: missing } }]", Failed),
    ] {
        assert_eq!(stage.outcome(text).await, outcome, "{text}");
    }
    // A DAG that runs itself comes to an end.
    let text = "steps: [{ id: a, action: dag.run, with: { dag: again } }]\n---\nname: again\nsteps: [{ id: a, action: dag.run, with: { dag: again } }]";
    assert_eq!(stage.outcome(text).await, Failed);
}

#[tokio::test]
async fn a_run_that_is_stopped_stops_its_children() {
    let stage = Stage::new().await;
    let text = "working_dir: .\nsteps: [{ id: a, foreach: { items: [1, 2], steps: [{ run: 'touch b${foreach.item}; sleep 60' }] } }]";
    let id = stage.begin(text, Value::Null).await.expect("begun");
    while ["b1", "b2"].iter().any(|name| stage.file(name).is_none()) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(stage.runs().stop(ALL, id).await.expect("written"));
    let over = stage.over(id).await;
    assert_eq!(over.outcome(), Some(Aborted));
    for child in over.children.values().flat_map(|children| children.iter()) {
        assert_eq!(stage.over(child.id).await.outcome(), Some(Aborted));
    }
}

/// The daemon dies behind any number of the parent's records.
#[tokio::test]
async fn a_daemon_that_dies_while_children_run_goes_on_from_it() {
    let stage = Stage::new().await;
    let whole = stage.ran(FAMILY, Value::Null).await;
    let total = records(&stage, whole.begun.id).await;
    for behind in 1..total {
        let mut stage = Stage::new().await;
        let id = stage.begin(FAMILY, Value::Null).await.expect("begun");
        while records(&stage, id).await < behind {
            tokio::task::yield_now().await;
        }
        stage.rig = stage.rig.crashed().await;
        let over = stage.over(id).await;
        assert_eq!(over.outcome(), Some(Succeeded), "behind {behind}: {:#?}", over.left);
        assert_eq!(effects(&stage), family(), "behind {behind}");
    }
}

#[tokio::test]
async fn tools_are_called_as_the_owner_and_routers_choose() {
    let stage = Stage::new().await;
    let text = r#"
type: graph
working_dir: .
steps:
- { id: say, action: toy.echo, with: { word: "hi ${params.n}" }, output: { got: { from: stdout, decode: json, select: .word } } }
- { id: keep, depends: say, action: outputs.write, with: { values: { a: "${say.output.got}" } } }
- { id: way, depends: keep, action: router.route, with: { value: "${keep.outputs.a}", routes: { "re:^hi": yes, hi: no } } }
- { id: yes, run: touch yes }
- { id: no, run: touch no }
- { id: after, depends: no, run: touch after }
params: [{ name: n, default: "1" }]
"#;
    let run = stage.ran(text, Value::Null).await;
    assert_eq!(run.outcome(), Some(Succeeded), "{:#?}", run.left);
    assert_eq!(stage.guest.called(), [("toy_echo".to_owned(), json!({ "word": "hi 1" }))]);
    assert!(
        stage.file("yes").is_some() && stage.file("no").is_none() && stage.file("after").is_none()
    );
    for (text, why) in [
        ("steps: [{ id: a, action: toy.fails }]", "no luck"),
        ("steps: [{ id: a, action: toy.unknown }]", "no tool of the name"),
        (
            "steps: [{ id: a, action: mail.send, with: { to: a@b.test, subject: a, message: b } }]",
            "have the operator set `agent.smtp`",
        ),
    ] {
        let run = stage.ran(text, Value::Null).await;
        let error = run.left.values().find_map(|left| left.error.clone()).expect(text);
        assert!(run.outcome() == Some(Failed) && error.message.contains(why), "{error}");
    }
}

/// A call that changes something is made once, however the daemon dies: what is not known is told.
#[tokio::test]
async fn a_call_that_may_have_been_made_is_not_made_again() {
    for (tool, calls, outcome) in [("toy.hold", 1, Failed), ("toy.hold_read", 2, Succeeded)] {
        let mut stage = Stage::new().await;
        let text = format!("steps: [{{ id: a, action: {tool} }}]");
        let id = stage.begin(&text, Value::Null).await.expect("begun");
        while stage.guest.called().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        stage.rig = stage.rig.crashed().await;
        stage.guest.release();
        assert_eq!(stage.over(id).await.outcome(), Some(outcome), "{tool}");
        assert_eq!(stage.guest.called().len(), calls, "{tool}");
    }
}
