//! DAGs whose steps an agent chooses.

use hivekeep_plan::progress::{RetryFrom, RunOutcome::*};
use hivekeep_ports::ModelMessage;
use serde_json::{Value, json};

use super::{ALL, Stage};
use crate::run::RunFold;

const HEAD: &str = "type: agent\nllm: { provider: p, model: m, system: 'Be ${params.how}.' }\n\
    params: [{ name: how, default: short }]\nworking_dir: .\n";
const STEPS: &str = r#"
tasks: [{ name: t, description: "It is ${params.how}." }, { name: u, description: x }]
steps:
- { id: draft, description: Draft it., run: "echo drafted >> log; echo seen; test $(wc -l < log) -ge 2" }
- { id: child, action: dag.run, with: { dag: note, params: { a: "1" } } }
- { id: review, action: human.task, with: { prompt: "Good, ${draft.outputs.x}?" } }
- { name: left out, run: touch never }
---
name: note
description: Note it.
working_dir: .
params: [{ name: a, default: x }, { name: b, default: y }]
steps: [{ run: "echo ${params.a}${params.b} >> log" }]
"#;

fn status(task: &str, status: &str) -> (&'static str, Value) {
    ("set_task_status", json!({ "task": task, "status": status, "reason": "so" }))
}

fn error(run: &RunFold) -> String {
    let found = run.left.values().find_map(|left| left.error.clone());
    found.map(|error| error.message).unwrap_or_default()
}

#[tokio::test]
async fn an_agent_does_steps_until_no_task_is_open_whatever_dies() {
    let mut stage = Stage::new().await;
    let done = [
        ("draft", json!({})),
        ("draft", json!({})),
        ("child", json!({ "a": "9", "b": "2" })),
        ("nothing", json!({})),
        ("ask_user", json!({ "question": "Which?" })),
        ("ask_user", json!({ "question": "Which?" })),
        ("review", json!({})),
        status("t", "completed"),
        status("t", "completed"),
        status("u", "skipped"),
    ];
    stage.agents.call(&done);
    let id = stage.begin(&format!("{HEAD}{STEPS}"), Value::Null).await.expect("begun");
    for at in 1..8 {
        while stage.agents.questions().len() < at && stage.people.all().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        stage.rig = stage.rig.crashed().await;
    }
    stage.people.reply(json!({ "answer": "the blue one" })).await;
    stage.people.reply(json!({})).await;
    let run = stage.over(id).await;
    let log = run.decisions.as_ref().expect("it has an agent");
    assert_eq!(run.outcome(), Some(Succeeded), "{:#?}", run.left);
    assert_eq!(stage.file("log").as_deref(), Some("drafted\ndrafted\n12\n"));
    assert_eq!((log.all.len(), stage.file("never")), (done.len(), None));

    let last = stage.agents.questions().pop().expect("it is asked");
    let system = last.system.expect("it is told");
    for said in ["Be short.", "- t (completed): It is short.", "- u (open): x", "the blue one"] {
        assert!(system.contains(said), "{said}: {system}");
    }
    let told = last.messages.iter().filter_map(|message| match message {
        ModelMessage::ToolResult { content, is_error, .. } => Some((*is_error, content.as_str())),
        _ => None,
    });
    let told: Vec<_> = told.collect();
    for (at, (is_error, part)) in [
        (false, "\"status\":\"failed\""),
        (false, "seen"),
        (false, "succeeded"),
        (true, "`nothing` is not here"),
        (false, "the blue one"),
        (true, "asked before"),
        (false, "succeeded"),
        (false, "noted"),
        (true, "already"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(told[at].0, is_error, "{told:#?}");
        assert!(told[at].1.contains(part), "{part}: {told:#?}");
    }
    let tool = |name: &str| last.tools.iter().find(|tool| tool.name == name).expect("offered");
    let offered = tool("child").input_schema["properties"].as_object().expect("one").clone();
    assert_eq!(offered.keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!((&*tool("child").description, last.tools.len()), ("Note it.", 6));
    assert_eq!(tool("left_out").description, "Does the step `left out`.");
}

#[tokio::test]
async fn an_agent_that_gets_nowhere_fails_by_its_reason_and_a_retry_goes_on() {
    let stage = Stage::new().await;
    let steps =
        "steps: [{ id: a, run: 'echo a >> log; exit 3' }]\ntasks: [{ name: t, description: d }]\n";
    let again = || ("a", json!({}));
    let stalls = || ("", json!({}));
    for (calls, outcome, why) in [
        (vec![stalls(), stalls()], Failed, "chose nothing, twice"),
        (vec![stalls(), again(), stalls(), status("t", "completed")], PartlySucceeded, "status 3"),
        (vec![status("t", "skipped")], Succeeded, ""),
        (vec![status("t", "failed")], Failed, "gave tasks up: `t`: so"),
    ] {
        stage.agents.call(&calls);
        let run = stage.ran(&format!("{HEAD}{steps}"), Value::Null).await;
        assert_eq!(run.outcome(), Some(outcome), "{calls:?}: {:#?}", run.left);
        assert!(error(&run).contains(why), "{why}: {}", error(&run));
    }
    let often: Vec<_> = (0..9).map(|_| again()).collect();
    stage.agents.call(&often);
    let bounded = HEAD.replace("model: m", "model: m, max_tool_iterations: 7");
    let id = stage.begin(&format!("{bounded}{steps}"), Value::Null).await.expect("begun");
    let run = stage.over(id).await;
    assert!(run.left.values().any(|left| {
        left.error.as_ref().is_some_and(|error| error.message.contains("made 7 decisions"))
    }));
    let a = "a\n".repeat(6);
    assert_eq!(stage.file("log").as_deref(), Some(&*a), "five times and no more");
    let settled: Vec<_> = often[..7].iter().cloned().chain([status("t", "completed")]).collect();
    stage.agents.call(&settled);
    stage.runs().retry(ALL, id, RetryFrom::Failed).await.expect("it goes on");
    assert_eq!(stage.over(id).await.outcome(), Some(PartlySucceeded));
    let child = "steps: [{ id: lost, action: dag.run, with: { dag: broken } }]\n\
        tasks: [{ name: t, description: d }]\n---\nname: broken\nsteps: [{ run: 'exit 7' }]\n";
    stage.agents.call(&[("lost", json!({})), status("t", "skipped")]);
    stage.ran(&format!("{HEAD}{child}"), Value::Null).await;
    let told = stage.agents.questions().pop().expect("it is asked").messages;
    assert!(format!("{told:?}").contains("status 7"), "what became of its run: {told:#?}");
    for (text, part) in [
        (HEAD.replace("provider: p", "provider: down"), "it is down"),
        (HEAD.replace("provider: p", "provider: cut"), "cut short"),
        (HEAD.replace("'Be ${params.how}.'", "x, top_p: 1"), "`top_p` of `llm`"),
    ] {
        stage.agents.call(&[]);
        let run = stage.ran(&format!("{text}{steps}"), Value::Null).await;
        let refused = run.refused().map(|error| error.message.clone());
        assert!(refused.unwrap_or_else(|| error(&run)).contains(part), "{part}");
    }
    let approves = steps.replace("exit 3'", "exit 3', approval: { prompt: x }");
    assert!(stage.refusal(&format!("{HEAD}{approves}")).await.contains("`approval`"));
}
