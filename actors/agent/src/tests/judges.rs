//! Judges and validators over a real journal: what is rejected and told why, what fails closed, and a daemon that
//! dies at each record.

use std::collections::BTreeMap;

use chrono::Utc;
use futures::StreamExt;
use hivekeep_kernel::{ExecutionId, ToolError};
use hivekeep_ports::{ModelAnswer, ModelMessage, ModelRequest};
use hivekeep_runtime::log;
use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::{
    Stage,
    fakes::{says, turns},
    tasks::{TOOLS, opened, types, write},
};
use crate::execution::{
    judging::{JudgedSubject, JudgingRecord},
    state::{ExecutionState, Record},
};

pub(super) type Said = Result<ModelAnswer, ToolError>;

/// A judge's answer.
pub(super) fn judges(score: f64, reasoning: &str) -> Said {
    let answer = json!({ "score": score, "confidence": 0.9, "reasoning": reasoning });
    says(&format!("```json\n{answer}\n```"), &[])
}

/// Prompt of a request.
pub(super) fn prompt(request: &ModelRequest) -> &str {
    match &request.messages[0] {
        ModelMessage::User(text) => text,
        other => panic!("{other:?}"),
    }
}

/// Instruction of the agent that asks: `Judge as NAME.` of a judge, `Do it.` of others.
pub(super) fn asker(request: &ModelRequest) -> &str {
    let first = prompt(request).lines().next().unwrap_or_default();
    first.strip_prefix("Judge as ").map_or("worker", |name| name.trim_end_matches('.'))
}

impl Stage {
    /// A stage with judges, and an agent `worker` of this execution.
    pub(super) async fn judged(judges: &[&str], execution: &str) -> Self {
        let stage = Self::new(TOOLS.map(str::to_owned)).await;
        for judge in judges {
            stage.deploy(judge, &format!("Judge as {judge}."), "").await;
        }
        stage.deploy("worker", "Do it.", execution).await;
        stage
    }

    pub(super) async fn deploy(&self, name: &str, instruction: &str, execution: &str) {
        let text = format!(
            "apiVersion: 100monkeys.ai/v1\nkind: Agent\nmetadata: {{ name: {name}, version: 1.0.0 }}\nspec:\n  \
             runtime: {{ language: python, version: '3.11' }}\n  task: {{ instruction: {instruction} }}\n  \
             tools: [fs.read, fs.write, hold, cmd.run]\n{execution}"
        );
        self.good("create", json!({ "manifest_yaml": text, "force": true })).await;
    }

    /// End of an execution that is begun, and its events once its session has ended.
    async fn through(&self) -> (Value, Vec<Value>) {
        let id = self.begun("Now").await;
        let end = self.end(&id).await;
        (end, self.closed(&id).await)
    }

    fn asked_of(&self, agent: &str) -> Vec<ModelRequest> {
        self.models.asked().into_iter().filter(|it| asker(it) == agent).collect()
    }
}

pub(super) fn payloads<'e>(events: &'e [Value], event_type: &str) -> Vec<&'e Value> {
    let is = |event: &&Value| event["event_type"] == event_type;
    events.iter().filter(is).map(|event| &event["payload"]).collect()
}

/// Type, score and outcome of each verdict.
fn verdicts(events: &[Value]) -> Vec<(String, f64, bool)> {
    let verdicts = payloads(events, "validation_completed").into_iter().map(|it| {
        let kind = it["type"].as_str().expect("a type").to_owned();
        (kind, it["score"].as_f64().expect("one"), it["passed"] == true)
    });
    verdicts.collect()
}

#[tokio::test]
async fn an_output_that_is_rejected_is_done_again_with_the_reasons_until_it_passes() {
    let stage = Stage::judged(
        &["critic"],
        "  execution:\n    mode: iterative\n    max_iterations: 6\n    validation:\n    \
         - { type: exit_code, expected: 3 }\n    - { type: regex, pattern: 'warn', target: stderr }\n    \
         - { type: json_schema, schema: { required: [faults] } }\n    \
         - { type: semantic, judge_agent: critic, criteria: 'Each fault has its line.', min_score: 0.8 }\n",
    )
    .await;
    stage.models.answer(|request| {
        if asker(request) == "critic" {
            let good = prompt(request).contains("line 3");
            return if good { judges(0.8, "Fine.") } else { judges(0.5, "No line is named.") };
        }
        let command = |exit: u64, stderr: &str| {
            says(
                "",
                &[("cmd_run", json!({ "exit": exit, "stderr": stderr })), ("fs_read", json!({}))],
            )
        };
        let round = prompt(request);
        match (round, turns(request)) {
            (it, _) if !it.contains("Previous attempt failed") => says("I ran nothing.", &[]),
            (it, 0) if it.contains("no command was run") => command(1, "warning"),
            (it, 0) if it.contains("exit code 1, 3 is expected") => command(3, ""),
            (_, 0) => command(3, "warning"),
            (it, _) if it.contains("No line is named.") => {
                says("```json\n{ \"faults\": [\"line 3\"] }\n```", &[])
            }
            (it, _) if it.contains("a required property") => says("{ \"faults\": [] }", &[]),
            (_, _) => says("{}", &[]),
        }
    });
    let (end, events) = stage.through().await;
    assert_eq!(
        (&end["status"], &end["iteration_count"]),
        (&json!("completed"), &json!(6)),
        "{end}"
    );
    let verdict = |kind: &str, score, passed| (kind.to_owned(), score, passed);
    let passed =
        |kinds: &[&str]| kinds.iter().map(|kind| verdict(kind, 1.0, true)).collect::<Vec<_>>();
    let expected = [
        vec![verdict("exit_code", 0.0, false)],
        vec![verdict("exit_code", 0.0, false)],
        passed(&["exit_code"]),
        vec![verdict("regex", 0.0, false)],
        passed(&["exit_code", "regex"]),
        vec![verdict("json_schema", 0.0, false)],
        passed(&["exit_code", "regex", "json_schema"]),
        vec![verdict("semantic", 0.5, false)],
        passed(&["exit_code", "regex", "json_schema"]),
        vec![verdict("semantic", 0.8, true)],
    ];
    assert_eq!(verdicts(&events), expected.concat());
    let first = payloads(&events, "validation_completed")[0];
    let expected = json!({
        "iteration": 1, "validator": 1, "type": "exit_code", "passed": false, "score": 0.0, "confidence": 1.0,
        "reasons": ["no command was run"], "unavailable": false,
    });
    assert_eq!(first, &expected);
    let failed = payloads(&events, "iteration_failed");
    assert_eq!(failed.len(), 5);
    assert!(failed.iter().all(|it| it["error"]["code"] == "validation_failed"), "{failed:?}");
    let sequences = events.iter().map(|event| event["sequence"].as_u64().expect("one"));
    assert!(sequences.eq(1..=events.len() as u64), "without a gap");

    // The judge's session is below the worker's, and whoever began the worker pays.
    let judge = payloads(&events, "judge_completed")[1];
    assert_eq!((&judge["score"], &judge["reasoning"]), (&json!(0.8), &json!("Fine.")));
    let opened = stage.children.opened();
    let worker =
        opened.iter().find(|(_, it)| it.agent.as_deref() == Some("worker")).expect("opened").0;
    let critics: Vec<_> =
        opened.iter().filter(|(_, it)| it.agent.as_deref() == Some("critic")).collect();
    assert_eq!(critics.len(), 2);
    assert!(critics.iter().all(|(_, it)| it.parent == worker));
    assert!(stage.models.asked().iter().all(|it| it.session == stage.rig.session));
    let asked = &stage.asked_of("critic")[1];
    assert!(
        prompt(asked).contains("Each fault has its line.") && prompt(asked).contains("Task: Now")
    );
    let of_judge = json!({ "execution_id": judge["execution_id"] });
    let started = stage.good("aegis.task.logs", of_judge).await;
    assert_eq!(started["events"][0]["payload"]["parent"], end["execution_id"]);
}

#[tokio::test]
async fn what_is_not_judged_is_not_taken() {
    let semantic = "  execution: { mode: iterative, validation: [{ type: semantic, judge_agent: critic, criteria: c, \
        min_confidence: 0.95, timeout_seconds: 1 }] }\n";
    let stage = Stage::judged(&["critic"], semantic).await;
    type Row = (fn() -> Said, &'static str, &'static str, usize);
    let rows: [Row; 5] = [
        (|| says("Good.", &[]), "judge_unavailable", "judge_answer_invalid", 1),
        (
            || says("{ \"score\": 2, \"confidence\": 1, \"reasoning\": \"x\" }", &[]),
            "judge_unavailable",
            "from 0 to 1",
            1,
        ),
        (|| Err(ToolError::internal("the wire is cut")), "judge_unavailable", "the wire is cut", 1),
        (|| says("", &[("hold", json!({}))]), "judge_unavailable", "no answer in time", 1),
        (
            || judges(1.0, "I guess."),
            "validation_failed",
            "confidence 0.90, 0.95 is needed: critic: I guess.",
            5,
        ),
    ];
    for (answer, code, said, iterations) in rows {
        stage.models.answer(move |request| match asker(request) {
            "critic" => answer(),
            _ => says("Done.", &[]),
        });
        let (end, events) = stage.through().await;
        assert_eq!((&end["status"], &end["error_code"]), (&json!("failed"), &json!(code)), "{end}");
        assert!(end["last_error"].as_str().expect("text").contains(said), "{said}: {end}");
        assert_eq!(end["iteration_count"], iterations, "another iteration mends no judge");
        assert_eq!(end["last_output"], "Done.");
        let judges = payloads(&events, "judge_started").len();
        assert_eq!(judges, iterations);
    }
    let brief = "  execution: { iteration_timeout: 300ms, validation: [{ type: semantic, judge_agent: critic, criteria: c }] }\n";
    stage.deploy("worker", "Do it.", brief).await;
    stage.models.answer(|request| match asker(request) {
        "critic" => says("", &[("hold", json!({}))]),
        _ => says("Done.", &[]),
    });
    let (end, _) = stage.through().await;
    assert_eq!(end["error_code"], "time_exhausted", "{end}");
    assert!(end["last_error"].as_str().expect("text").contains("the iteration"), "{end}");

    // Whoever cancels an execution cancels its judge.
    let held = stage.children.calls("hold");
    let slow = semantic.replace("timeout_seconds: 1", "timeout_seconds: 60");
    stage.deploy("worker", "Do it.", &slow).await;
    let id = stage.begun("Now").await;
    eventually("the judge holds", async || stage.children.calls("hold") > held).await;
    assert_eq!(
        stage.good("aegis.task.cancel", json!({ "execution_id": id })).await["cancelled"],
        true
    );
    let events = stage.closed(&id).await;
    assert_eq!(
        types(&events)[4..],
        ["judge_started", "execution_cancelled", "judge_failed", "session_closed"],
        "its session ends last"
    );
    let judge = json!({ "execution_id": events[4]["payload"]["execution_id"] });
    assert_eq!(stage.good("aegis.task.status", judge).await["status"], "cancelled");
}

#[tokio::test]
async fn an_output_behind_a_message_is_judged_by_itself() {
    let stage = Stage::judged(
        &["critic"],
        "  execution: { validation: [{ type: semantic, judge_agent: critic, criteria: c }] }\n",
    )
    .await;
    stage.models.answer(|request| match (asker(request), turns(request)) {
        ("critic", 0) if prompt(request).contains("First.") => says("", &[("hold", json!({}))]),
        ("critic", _) => {
            judges(if prompt(request).contains("First.") { 0.1 } else { 0.9 }, "Read.")
        }
        (_, 0) => says("First.", &[]),
        _ => says("Second.", &[]),
    });
    let id = stage.begun("Now").await;
    eventually("its judge works", async || stage.children.calls("hold") == 1).await;
    let more = json!({ "execution_id": id, "message": "and then?" });
    stage.good("agent_continue", more).await;
    stage.children.release();
    let end = stage.end(&id).await;
    assert_eq!((&end["status"], &end["last_output"]), (&json!("completed"), &json!("Second.")));
    let events = stage.closed(&id).await;
    assert_eq!(verdicts(&events), [("semantic".to_owned(), 0.9, true)]);
    assert_eq!(payloads(&events, "judge_started").len(), 2);
}

#[tokio::test]
async fn several_judges_come_to_one_verdict_also_where_there_is_one_place() {
    let mut stage = Stage::judged(
        &["strict", "mild", "broken"],
        "  execution: { validation: [{ type: multi_judge, judges: [strict, mild, broken], criteria: c, \
         min_judges_required: 2, consensus: majority, min_confidence: 0.9 }] }\n",
    )
    .await;
    stage.rig.options.max_running = 1;
    stage.rig = stage.rig.crashed().await;
    let script = |strict: f64| {
        move |request: &ModelRequest| match asker(request) {
            "strict" => judges(strict, "As it is."),
            "mild" => judges(0.9, "Well."),
            "broken" => says("?", &[]),
            _ => says("Done.", &[]),
        }
    };
    stage.models.answer(script(0.7));
    let (end, events) = stage.through().await;
    assert_eq!(end["status"], "completed", "{end}");
    let verdict = payloads(&events, "validation_completed")[0];
    assert_eq!((&verdict["type"], &verdict["score"]), (&json!("multi_judge"), &json!(1.0)));
    assert!((verdict["confidence"].as_f64().expect("one") - 0.97).abs() < 1e-9, "{verdict}");
    assert_eq!(
        verdict["reasons"].as_array().map(Vec::len),
        Some(3),
        "those who gave no answer, too"
    );
    stage.models.answer(script(0.1));
    let (end, events) = stage.through().await;
    assert_eq!((&end["error_code"], verdicts(&events)[0].1), (&json!("validation_failed"), 0.5));
    stage.models.answer(|request| match asker(request) {
        "mild" => judges(0.9, "Well."),
        "worker" => says("Done.", &[]),
        _ => says("?", &[]),
    });
    let (end, _) = stage.through().await;
    assert_eq!(end["error_code"], "judge_unavailable", "two have to answer: {end}");
}

#[tokio::test]
async fn a_call_with_side_effects_is_made_only_when_its_judge_agrees() {
    let stage = Stage::judged(
        &["guard"],
        "  execution: { tool_validation: [{ type: semantic, judge_agent: guard, criteria: 'Nothing is deleted.' }] }\n",
    )
    .await;
    stage.models.answer(|request| match (asker(request), turns(request)) {
        ("guard", _) if prompt(request).contains("\"n\":1") => judges(0.9, "It writes."),
        ("guard", _) if prompt(request).contains("\"n\":2") => judges(0.1, "It deletes."),
        ("guard", _) => says("?", &[]),
        (_, 0) => says(
            "",
            &[("fs_read", json!({})), ("fs_write", json!({ "n": 1 })), ("nothing", json!({}))],
        ),
        (_, 1) => says("", &[("fs_write", json!({ "n": 2 })), ("fs_write", json!([2]))]),
        (_, 2) => says("", &[("fs_write", json!({ "n": 3 }))]),
        _ => says("Done.", &[]),
    });
    let (end, events) = stage.through().await;
    assert_eq!(end["status"], "completed", "{end}");
    assert_eq!((stage.children.calls("fs.write"), stage.children.calls("fs.read")), (1, 1));
    assert_eq!(stage.asked_of("guard").len(), 3, "what reads, or cannot be called, is not judged");
    assert!(prompt(&stage.asked_of("guard")[0]).contains("Nothing is deleted."));
    let failed = payloads(&events, "tool_invocation_failed").into_iter();
    let codes: Vec<_> = failed.map(|it| it["error"]["code"].as_str().expect("a code")).collect();
    assert_eq!(
        codes,
        ["agent_tool_unknown", "call_rejected", "invalid_input", "judge_unavailable"]
    );
    let told = |turn: usize| format!("{:?}", stage.asked_of("worker")[turn].messages);
    assert!(told(2).contains("guard: It deletes.") && told(2).contains("not made"), "{}", told(2));
    let verdict = payloads(&events, "validation_completed")[1];
    let place = (&verdict["iteration"], &verdict["turn"], &verdict["call"]);
    assert_eq!(place, (&json!(1), &json!(2), &json!(1)), "{verdict}");
}

#[tokio::test]
async fn judges_that_cannot_be_asked_are_told_before_anything_is_begun() {
    let stage = Stage::judged(&["good"], "").await;
    stage.models.answer(|_| says("Done.", &[]));
    let of = |judge: &str| {
        format!(
            "  execution: {{ validation: [{{ type: semantic, judge_agent: {judge}, criteria: c }}] }}\n"
        )
    };
    stage.deploy("unsupported", "Judge.", "  advanced: { warm_pool_size: 1 }\n").await;
    stage.deploy("typed", "Judge.", "  input_schema: { required: [essay] }\n").await;
    stage.deploy("judged", "Judge.", &of("good")).await;
    let many: Vec<_> = (0..17).map(|n| format!("j{n}")).collect();
    for judge in &many {
        stage.deploy(judge, "Judge.", "").await;
    }
    let panel = |judges: &[String]| {
        let judges = judges.join(", ");
        format!(
            "  execution: {{ validation: [{{ type: multi_judge, judges: [{judges}], criteria: c }}] }}\n"
        )
    };
    let semantic = "spec.execution.validation[0].judge_agent";
    let calls = "  execution: { tool_validation: [{ type: semantic, judge_agent: nobody, criteria: c }] }\n";
    for (execution, code, field) in [
        (of("nobody"), "agent_not_found", semantic),
        (calls.to_owned(), "agent_not_found", "spec.execution.tool_validation[0].judge_agent"),
        (
            panel(&["good".to_owned(), "nobody".to_owned()]),
            "agent_not_found",
            "spec.execution.validation[0].judges[1]",
        ),
        (of("unsupported"), "agent_field_unsupported", semantic),
        (of("typed"), "input_invalid", semantic),
        (of("judged"), "judges_too_many", semantic),
        (panel(&many), "judges_too_many", "spec.execution.validation[0].judges[16]"),
    ] {
        stage.deploy("worker", "Do it.", &execution).await;
        let refused = stage.refused("aegis.task.execute", json!({ "agent_id": "worker" })).await;
        assert_eq!(
            (refused.code.as_ref(), &refused.details["field"]),
            (code, &json!(field)),
            "{refused}"
        );
        assert!(refused.message.contains(&format!("of `{field}`")), "{refused}");
    }
    assert_eq!(stage.good("aegis.task.list", json!({})).await["total"], 0);
    let text = super::manifest("worker", "1.0.1", "Do it.").replace(
        "  task:",
        "  execution: { tool_validation: [{ type: regex, pattern: a }] }\n  task:",
    );
    let refused = stage.refused("create", json!({ "manifest_yaml": text })).await;
    let problem = &refused.details["problems"][0];
    assert!(problem.to_string().contains("spec.execution.tool_validation[0].type"), "{problem}");
    for execution in [of("good"), panel(&many[..16])] {
        stage.deploy("worker", "Do it.", &execution).await;
        stage.good("aegis.task.execute", json!({ "agent_id": "worker" })).await;
    }
}

/// Calls and outputs that judges accept and reject.
fn twice(request: &ModelRequest) -> Said {
    let again = prompt(request).contains("Previous attempt failed");
    match (asker(request), turns(request)) {
        ("guard", _) => {
            judges(if prompt(request).contains("\"n\":1") { 0.9 } else { 0.1 }, "Seen.")
        }
        ("critic", _) => judges(if again { 0.9 } else { 0.2 }, "Read."),
        (_, 0) if !again => {
            says("", &[("fs_write", json!({ "n": 1 })), ("fs_write", json!({ "n": 2 }))])
        }
        _ => says("Done.", &[]),
    }
}

/// How much of a judge's execution the daemon that died had written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Written {
    Nothing,
    Begun,
    Whole,
}

pub(super) async fn records_of(stage: &Stage, id: ExecutionId) -> Vec<Record> {
    let stream = log::stream::<ExecutionState>(id).expect("a name");
    log::read_records::<ExecutionState>(&stage.rig.daemon.journal, &stream).await.expect("read")
}

fn is_asked(record: &Record) -> bool {
    !asked_in(std::slice::from_ref(record)).is_empty()
}

/// Executions of judges that are asked in these records.
pub(super) fn asked_in(records: &[Record]) -> Vec<ExecutionId> {
    let asked = records.iter().filter_map(|record| match record {
        Record::Judging { about, .. } => match &**about {
            JudgingRecord::Asked { execution, .. } => Some(*execution),
            _ => None,
        },
        _ => None,
    });
    asked.collect()
}

/// An execution that was lived through, with its judges.
struct Lived {
    id: ExecutionId,
    records: Vec<Record>,
    judges: BTreeMap<ExecutionId, Vec<Record>>,
}

const JUDGED_TWICE: &str = "  execution:\n    mode: iterative\n    \
    validation: [{ type: semantic, judge_agent: critic, criteria: c }]\n    \
    tool_validation: [{ type: semantic, judge_agent: guard, criteria: c }]\n";

impl Lived {
    async fn through() -> Self {
        let stage = Stage::judged(&["critic", "guard"], JUDGED_TWICE).await;
        stage.models.answer(twice);
        let text = stage.begun("Now").await;
        assert_eq!(stage.end(&text).await["status"], "completed");
        let whole = stage.closed(&text).await;
        let id = text.parse().expect("an id");
        let records = records_of(&stage, id).await;
        assert_eq!(records.len(), whole.len());
        let mut judges = BTreeMap::new();
        for judge in asked_in(&records) {
            stage.closed(&judge.to_string()).await;
            judges.insert(judge, records_of(&stage, judge).await);
        }
        assert_eq!(judges.len(), 4, "two calls and two outputs");
        Self { id, records, judges }
    }

    /// Goes on from a cancellation that was written while the first judge ran.
    async fn cancelled(&self) {
        let asked = self.records.iter().position(is_asked).expect("asked");
        let mut stage = Stage::judged(&["critic", "guard"], JUDGED_TWICE).await;
        stage.models.answer(twice);
        let prefix = &self.records[..=asked];
        write(&stage, self.id, &[prefix, &[Record::Cancelled { at: Utc::now() }]].concat()).await;
        let judge = asked_in(prefix)[0];
        write(&stage, judge, &self.judges[&judge][..1]).await;
        stage.rig = stage.rig.crashed().await;
        let over = async |id: ExecutionId| {
            let of_it = json!({ "execution_id": id });
            let events = stage.as_operator("aegis.task.logs", of_it.clone()).await.expect("events");
            let last = events["events"].as_array().and_then(|it| it.last().cloned());
            let mut status = stage.as_operator("aegis.task.status", of_it).await.expect("a state");
            (status["status"].take(), last.expect("one")["event_type"].clone())
        };
        let closed = (json!("cancelled"), json!("session_closed"));
        eventually("its session ends", async || over(self.id).await == closed).await;
        assert_eq!(over(judge).await.0, "cancelled");
        assert_eq!(stage.children.calls("fs.write"), 0);
    }

    /// Goes on from the first records, and from as much of the last judge as was written.
    async fn again(&self, kept: usize, written: Written) {
        let mut stage = Stage::judged(&["critic", "guard"], JUDGED_TWICE).await;
        stage.models.answer(twice);
        let prefix = &self.records[..kept];
        write(&stage, self.id, prefix).await;
        let asked = asked_in(prefix);
        for (at, judge) in asked.iter().enumerate() {
            let last = at + 1 == asked.len();
            match if last { written } else { Written::Whole } {
                Written::Nothing => {}
                Written::Begun => write(&stage, *judge, &self.judges[judge][..1]).await,
                Written::Whole => write(&stage, *judge, &self.judges[judge]).await,
            }
        }
        let id = self.id.to_string();
        stage.children.adopt(stage.rig.session, &id, opened(prefix), &TOOLS);
        stage.rig = stage.rig.crashed().await;
        eventually("it is over", async || {
            let state = stage.as_operator("aegis.task.status", json!({ "execution_id": id })).await;
            state.is_ok_and(|state| state["status"] == "completed")
        })
        .await;
        let at = format!("at {kept}, {written:?}");
        let count = |is: fn(&Record) -> bool| prefix.iter().filter(|it| is(it)).count();
        let answers = count(|it| matches!(it, Record::Answered { .. }));
        assert_eq!(stage.asked_of("worker").len(), 3 - answers, "{at}");
        let answered = asked.len() - usize::from(written != Written::Whole);
        let to_judges = stage.asked_of("critic").len() + stage.asked_of("guard").len();
        assert_eq!(to_judges, 4 - answered, "no judge is asked twice: {at}");
        let all = stage.as_operator("aegis.task.list", json!({})).await.expect("listed");
        assert_eq!(all["total"], 5, "none is begun twice: {at}");
        let mended = records_of(&stage, self.id).await;
        let prompts = mended.iter().filter(|it| matches!(it, Record::Prompted { .. })).count();
        assert_eq!((prompts, asked_in(&mended).len()), (2, 4), "{at}");
        let made = count(|it| matches!(it, Record::Called { key: (_, 0, 0), .. }));
        // A call that was let through may have been made.
        let let_through = |about: &JudgingRecord| {
            matches!(about, JudgingRecord::Validated { key, verdict, .. }
                if verdict.passed && matches!(key.subject, JudgedSubject::Call { .. }))
        };
        let doubtful =
            matches!(prefix.last(), Some(Record::Judging { about, .. }) if let_through(about));
        assert_eq!(stage.children.calls("fs.write"), 1 - made - usize::from(doubtful), "{at}");
    }
}

#[tokio::test]
async fn a_daemon_that_dies_asks_no_judge_twice_and_makes_no_iteration_twice() {
    let lived = Lived::through().await;
    let all = [Written::Whole, Written::Begun, Written::Nothing];
    let cuts = (1..=lived.records.len()).flat_map(|kept| all.map(|written| (kept, written)));
    // A judge whose end is recorded was whole.
    let is_asked = |kept: usize| is_asked(&lived.records[kept - 1]);
    let cuts = cuts.filter(|(kept, written)| *written == Written::Whole || is_asked(*kept));
    let lived = &lived;
    lived.cancelled().await;
    let goes_on = |(kept, written)| lived.again(kept, written);
    futures::stream::iter(cuts).for_each_concurrent(8, goes_on).await;
}
