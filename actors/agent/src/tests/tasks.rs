//! Executions over a real journal: a whole life, what a model does wrong, bounds, and a daemon that dies at each
//! record.

use std::time::Duration;

use hivekeep_kernel::{ExecutionId, view::ToolView};
use hivekeep_ports::{ModelAnswer, ModelMessage, ModelRequest};
use hivekeep_runtime::log::{self, Decision, Log, LogError};
use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::{
    Stage,
    fakes::{says, turns},
};
use crate::execution::state::{ExecutionState, Record};

pub(super) const TOOLS: [&str; 8] =
    ["fs.read", "fs.write", "hold", "hold.read", "deny", "cmd.run", "web.fetch", "fs.glob"];

impl Stage {
    /// A stage with an agent `worker` that has all tools, and what `spec` says beside that.
    pub(super) async fn with_worker(spec: &str) -> Self {
        let stage = Self::new(TOOLS.map(str::to_owned)).await;
        stage.good("create", json!({ "manifest_yaml": worker(spec) })).await;
        stage
    }

    pub(super) async fn begun(&self, intent: &str) -> String {
        let asked = json!({ "agent_id": "worker", "intent": intent });
        let started = self.good("aegis.task.execute", asked).await;
        assert_eq!(started["status"], "started");
        started["execution_id"].as_str().expect("an id").to_owned()
    }

    /// End of an execution.
    pub(super) async fn end(&self, id: &str) -> Value {
        let wait = json!({ "execution_id": id, "timeout_seconds": 50 });
        self.good("aegis.task.wait", wait).await
    }

    pub(super) async fn events(&self, id: &str) -> Vec<Value> {
        let page = json!({ "execution_id": id, "limit": 200 });
        let logs = self.good("aegis.task.logs", page).await;
        let events = logs["events"].as_array().expect("events").clone();
        assert_eq!(logs["total"], events.len());
        events
    }

    /// Waits until the last record is there: the session is ended.
    pub(super) async fn closed(&self, id: &str) -> Vec<Value> {
        eventually("its session ends", async || {
            self.events(id).await.last().is_some_and(|it| it["event_type"] == "session_closed")
        })
        .await;
        self.events(id).await
    }
}

/// Manifest of an agent `worker`.
pub(super) fn worker(spec: &str) -> String {
    format!(
        "apiVersion: 100monkeys.ai/v1\nkind: Agent\nmetadata: {{ name: worker, version: 1.0.0 }}\nspec:\n  \
         runtime: {{ language: python, version: '3.11' }}\n  task: {{ instruction: Do it. }}\n  \
         tools: [fs.read, fs_write, hold, hold.read, deny]\n{spec}"
    )
}

pub(super) fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event_type"].as_str().expect("a type")).collect()
}

/// Two turns with calls, and an end.
pub(super) fn working(request: &ModelRequest) -> Result<ModelAnswer, hivekeep_kernel::ToolError> {
    match turns(request) {
        0 => says("I look.", &[("fs_read", json!({ "path": "a" })), ("fs.read", json!({}))]),
        1 => says("", &[("fs_write", json!({ "n": 1 })), ("fs_write", json!({ "n": 2 }))]),
        _ => says("Done.", &[]),
    }
}

#[tokio::test]
async fn a_session_that_could_not_be_ended_is_told() {
    let stage = Stage::with_worker("").await;
    stage.models.answer(working);
    stage.children.end_none();
    let id = stage.begun("Mend it").await;
    assert_eq!(stage.end(&id).await["status"], "completed");
    let last = async || stage.events(&id).await.pop().expect("events");
    eventually("it is told", async || last().await["event_type"] == "session_left_open").await;
    assert_eq!(last().await["payload"]["error"]["code"], "journal_failed");
}

#[tokio::test]
async fn an_execution_asks_calls_and_ends_with_its_result() {
    let stage = Stage::with_worker("").await;
    stage.models.answer(working);
    let id = stage.begun("Mend it").await;
    let end = stage.end(&id).await;
    assert_eq!((&end["status"], &end["last_output"]), (&json!("completed"), &json!("Done.")));
    assert_eq!((&end["iteration_count"], &end["tokens"]), (&json!(1), &json!(45)));
    assert!(end["ended_at"].is_string() && end["last_error"].is_null(), "{end}");
    let same = stage.good("aegis.agent.wait", json!({ "execution_id": id })).await;
    assert_eq!(same, end);
    assert_eq!(stage.good("aegis.task.status", json!({ "execution_id": id })).await, end);

    let (session, child) = stage.children.opened().remove(0);
    assert_eq!((child.parent, child.name.as_str()), (stage.rig.session, id.as_str()));
    assert_eq!(child.agent.as_deref(), Some("worker"));
    assert!(child.tools.contains("fs.write"), "as it is declared: {:?}", child.tools);
    let events = stage.closed(&id).await;
    assert_eq!(stage.children.ended(), [session]);
    assert_eq!(
        types(&events),
        [
            "execution_started",
            "session_opened",
            "iteration_started",
            "llm_interaction",
            "tool_invocation_completed",
            "tool_invocation_completed",
            "llm_interaction",
            "tool_invocation_completed",
            "tool_invocation_completed",
            "llm_interaction",
            "execution_completed",
            "session_closed",
        ]
    );
    let sequences = events.iter().map(|event| event["sequence"].as_u64().expect("one"));
    assert!(sequences.eq(1..=12), "without a gap");
    assert_eq!(events[3]["payload"]["provider_kind"], "scripted");
    assert_eq!(events[7]["payload"]["name"], "fs_write");
    let page = json!({ "execution_id": id, "limit": 2, "offset": 2 });
    let page = stage.good("aegis.task.logs", page).await;
    assert_eq!((&page["events"][0], &page["total"]), (&events[2], &json!(12)));

    let asked = stage.models.asked();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[0].messages, [ModelMessage::User("Do it.\n\nTask: Mend it".to_owned())]);
    let names: Vec<_> = asked[0].tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["fs_read", "fs_write", "hold", "hold_read", "deny"]);
    let last = &asked[2].messages;
    assert_eq!(last.len(), 1 + 3 + 3);
    let ModelMessage::ToolResult { call, content, is_error } = &last[5] else { panic!("{last:?}") };
    assert_eq!((call.name.as_str(), *is_error), ("fs_write", false));
    assert!(content.contains("fs.write"), "{content}");
}

#[tokio::test]
async fn whoever_asks_sees_its_own_and_an_operator_all() {
    let stage = Stage::with_worker("").await;
    let unset = stage.refused("aegis.task.execute", json!({ "agent_id": "worker" })).await;
    assert_eq!(unset.code, "llm_not_configured");
    stage.models.answer(|_| says("Done.", &[]));
    let none = stage.good("aegis.task.list", json!({})).await;
    assert_eq!(none, json!({ "executions": [], "total": 0 }), "nothing was begun");
    let (first, second) = (stage.begun("one").await, stage.begun("two").await);
    stage.closed(&first).await;
    stage.closed(&second).await;

    let agent = stage.good("export", json!({ "name": "worker" })).await["id"].clone();
    for filter in [json!({ "limit": 1 }), json!({ "limit": 1, "agent_id": agent })] {
        let listed = stage.good("aegis.task.list", filter).await;
        assert_eq!((&listed["total"], &listed["executions"][0]["id"]), (&json!(2), &json!(second)));
        assert_eq!(listed["executions"][0]["summary"], "two");
    }
    let log = stage.good("logs", json!({ "agent_id": "worker", "offset": 1, "limit": 2 })).await;
    assert_eq!((&log["total"], &log["tool"]), (&json!(4), &json!("aegis.agent.logs")));
    assert_eq!(log["events"].as_array().map(Vec::len), Some(2));

    let of_first = || json!({ "execution_id": first });
    for tool in ["status", "logs", "cancel", "wait"] {
        let tool = format!("aegis.task.{tool}");
        let hidden = stage.as_other(&tool, of_first()).await.expect_err(&tool);
        assert_eq!(hidden.code, "execution_not_found", "{tool}");
        stage.as_operator(&tool, of_first()).await.expect(&tool);
    }
    assert_eq!(stage.as_other("aegis.task.list", json!({})).await.expect("listed")["total"], 0);
    let over = stage.good("aegis.task.cancel", of_first()).await;
    assert_eq!((&over["cancelled"], &over["error"]), (&json!(false), &json!("it is completed")));
    let removed = stage.good("aegis.task.remove", of_first()).await;
    assert_eq!(removed["removed"], true);
    assert_eq!(stage.refused("aegis.task.status", of_first()).await.code, "execution_not_found");
    let unknown = json!({ "agent_id": "nobody" });
    assert_eq!(stage.refused("aegis.task.execute", unknown).await.code, "agent_not_found");
}

#[tokio::test]
async fn a_wait_ends_in_time_and_a_cancellation_cuts_short() {
    let stage = Stage::with_worker("").await;
    stage.models.answer(|_| says("", &[("hold", json!({}))]));
    let id = stage.begun("wait").await;
    eventually("it holds", async || stage.children.calls("hold") == 1).await;
    // What an execution begins is paid by who began the execution.
    let (child, _) = stage.children.opened().remove(0);
    let further = json!({ "agent_id": "worker", "intent": "further" });
    let begun = stage.call_as(child, ToolView::default(), "aegis.task.execute", further).await;
    let further = json!({ "execution_id": begun.expect("begun")["execution_id"] });
    eventually("it holds, too", async || stage.children.calls("hold") == 2).await;
    assert_eq!(stage.children.opened().iter().filter(|(_, it)| it.parent == child).count(), 1);
    assert!(stage.models.asked().iter().all(|asked| asked.session == stage.rig.session));
    stage.good("aegis.task.cancel", further).await;
    let wait = json!({ "execution_id": id, "timeout_seconds": 1 });
    let waited = stage.good("aegis.task.wait", wait).await;
    assert_eq!(waited["status"], "timed_out");
    assert!(waited["next_step"].as_str().expect("text").contains("aegis.task.wait"));
    let kept = stage.as_operator("aegis.task.remove", json!({ "execution_id": id })).await;
    assert_eq!(kept.expect("answered")["removed"], false);
    let of_it = json!({ "execution_id": id });
    assert_eq!(stage.good("aegis.task.cancel", of_it).await["cancelled"], true);
    let end = stage.end(&id).await;
    assert_eq!((&end["status"], end["ended_at"].is_string()), (&json!("cancelled"), true));
    let events = stage.closed(&id).await;
    let last = &types(&events)[4..];
    assert_eq!(
        last,
        [
            "child_started",
            "child_ended",
            "execution_cancelled",
            "tool_invocation_failed",
            "session_closed"
        ],
        "the call has ended before its session"
    );
    stage.models.be_silent(true);
    let id = stage.begun("ask").await;
    eventually("it asks", async || stage.events(&id).await.len() == 3).await;
    stage.good("aegis.task.cancel", json!({ "execution_id": id })).await;
    assert_eq!(types(&stage.closed(&id).await)[3..], ["execution_cancelled", "session_closed"]);
}

#[tokio::test]
async fn calls_that_cannot_be_made_are_told_and_end_an_iteration_after_three_turns() {
    let stage = Stage::with_worker("").await;
    stage.models.answer(|request| match turns(request) {
        0 => says("", &[("fs_raed", json!({})), ("deny", json!({}))]),
        1 => says("", &[("fs_read", json!([1])), ("fs_write", json!({ "fail": true }))]),
        2 => says("", &[("fs_read", json!({ "bytes": 20_000 }))]),
        3..=5 => says("", &[("cmd_run", json!({}))]),
        _ => says("Done.", &[]),
    });
    let id = stage.begun("err").await;
    let end = stage.end(&id).await;
    assert_eq!((&end["status"], &end["error_code"]), (&json!("failed"), &json!("calls_unusable")));
    let asked = stage.models.asked();
    assert_eq!(asked.len(), 6, "a call that could be made begins the count anew");
    let results = |turn: usize| {
        let told = asked[turn].messages.iter().rev().map_while(|message| match message {
            ModelMessage::ToolResult { content, is_error, .. } => {
                Some((content.clone(), *is_error))
            }
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    let [denied, unknown] = &results(1)[..] else { panic!("two") };
    assert!(unknown.0.starts_with("agent_tool_unknown: ") && unknown.1, "{unknown:?}");
    assert!(denied.0.starts_with("denied: ") && denied.1, "{denied:?}");
    let [failed, malformed] = &results(2)[..] else { panic!("two") };
    assert!(malformed.0.starts_with("invalid_input: "), "{malformed:?}");
    assert!(failed.0.contains("Next: look first"), "{failed:?}");
    let [large] = &results(3)[..] else { panic!("one") };
    assert!(
        large.0.len() < 17_000 && large.0.contains("[cut: the first 1638"),
        "{}",
        large.0.len()
    );
    assert!(!large.1);
    assert_eq!(stage.children.calls("cmd_run") + stage.children.calls("cmd.run"), 0);
}

#[tokio::test]
async fn bounds_end_an_execution_by_their_names() {
    let mut stage =
        Stage::with_worker("  execution: { mode: iterative, max_iterations: 2 }\n").await;
    stage.rig.options.max_turns = 2;
    stage.rig = stage.rig.crashed().await;
    stage.models.answer(|_| says("", &[("fs_read", json!({}))]));
    let id = stage.begun("turn").await;
    let end = stage.end(&id).await;
    assert_eq!(end["error_code"], "turns_exhausted");
    assert_eq!((&end["iteration_count"], stage.models.asked().len()), (&json!(2), 4));
    let again = &stage.models.asked()[2].messages;
    let ModelMessage::User(prompt) = &again[0] else { panic!("{again:?}") };
    assert!(prompt.contains("Previous attempt failed: turns_exhausted"), "{prompt}");

    stage.rig.options.max_tokens = 15;
    stage.rig = stage.rig.crashed().await;
    let id = stage.begun("pay").await;
    let end = stage.end(&id).await;
    assert_eq!((&end["error_code"], &end["tokens"]), (&json!("tokens_exhausted"), &json!(15)));

    for (stop, code) in [
        (hivekeep_ports::ModelStop::MaxTokens, "answer_cut_short"),
        (hivekeep_ports::ModelStop::Refused, "model_refused"),
    ] {
        stage.models.answer(move |_| says("Half", &[]).map(|it| ModelAnswer { stop, ..it }));
        let id = stage.begun("stop").await;
        let end = stage.end(&id).await;
        assert_eq!((&end["error_code"], &end["last_output"]), (&json!(code), &json!("Half")));
    }
    stage.models.answer(|_| Err(hivekeep_kernel::ToolError::internal("the wire is cut")));
    let id = stage.begun("fail").await;
    assert_eq!(stage.end(&id).await["error_code"], "internal");
}

#[tokio::test]
async fn time_is_bounded_for_an_iteration_and_for_all() {
    let spec = "  execution: { mode: iterative, max_iterations: 9, iteration_timeout: 300ms }\n  \
        security: { resources: { timeout: 500ms } }\n";
    let stage = Stage::with_worker(spec).await;
    stage.models.answer(|_| says("", &[("hold", json!({}))]));
    let id = stage.begun("hold").await;
    let end = stage.end(&id).await;
    assert_eq!(end["error_code"], "time_exhausted");
    assert!(end["last_error"].as_str().expect("text").contains("the execution"), "{end}");
    let events = stage.closed(&id).await;
    assert!(types(&events).contains(&"iteration_failed"), "{events:?}");
    stage.models.be_silent(true);
    let id = stage.begun("silent").await;
    assert_eq!(stage.end(&id).await["error_code"], "time_exhausted");
}

/// A life with calls of each kind: what was answered is not asked again, and what may have been done is not done again.
#[tokio::test]
async fn a_daemon_that_dies_at_any_record_goes_on_from_it() {
    let script = |request: &ModelRequest| match turns(request) {
        0 => says("", &[("fs_read", json!({ "n": 0 })), ("hold_read", json!({}))]),
        1 => says("", &[("fs_write", json!({ "n": 1 })), ("fs_write", json!({ "n": 2 }))]),
        _ => says("Done.", &[]),
    };
    let stage = Stage::with_worker("").await;
    stage.models.answer(script);
    let id = stage.begun("live").await;
    eventually("it holds", async || stage.children.calls("hold.read") == 1).await;
    stage.children.release();
    let whole = stage.closed(&id).await;
    let parsed: ExecutionId = id.parse().expect("an id");
    let stream = log::stream::<ExecutionState>(parsed).expect("a name");
    let records = log::read_records::<ExecutionState>(&stage.rig.daemon.journal, &stream).await;
    let records = records.expect("read");
    assert_eq!(records.len(), whole.len());

    for kept in 1..=records.len() {
        let mut again = Stage::with_worker("").await;
        again.models.answer(script);
        write(&again, parsed, &records[..kept]).await;
        let session = opened(&records[..kept]);
        again.children.adopt(again.rig.session, &id, session, &TOOLS);
        again.rig = again.rig.crashed().await;
        eventually("it is over", async || {
            again.children.release();
            let state = again.as_operator("aegis.task.status", json!({ "execution_id": id })).await;
            state.is_ok_and(|state| state["status"] == "completed")
        })
        .await;
        eventually("its session ends", async || {
            !again.children.ended().is_empty() || kept == records.len()
        })
        .await;
        let at =
            |count: &dyn Fn(&Record) -> bool| records[..kept].iter().filter(|it| count(it)).count();
        let answers = at(&|record| matches!(record, Record::Answered { .. }));
        assert_eq!(
            again.models.asked().len(),
            3 - answers,
            "no whole answer is asked twice: {kept}"
        );
        let written = at(&|record| matches!(record, Record::Called { key: (0, 1, _), .. }));
        // The first call without a result may have been made by the daemon that died.
        let doubtful = usize::from(answers == 2 && written < 2);
        assert_eq!(again.children.calls("fs.write"), 2 - written - doubtful, "at {kept}");
        let logs = json!({ "execution_id": id, "limit": 200 });
        let logs = again.as_operator("aegis.task.logs", logs).await.expect("events");
        let events = logs["events"].as_array().expect("events");
        let sequences = events.iter().map(|event| event["sequence"].as_u64().expect("one"));
        assert!(sequences.eq(1..=events.len() as u64), "no sequence twice or missing");
        let interrupted =
            types(events).into_iter().filter(|it| it.ends_with("_interrupted")).count();
        assert_eq!(interrupted, doubtful, "at {kept}");
    }
}

pub(super) fn opened(records: &[Record]) -> Option<hivekeep_kernel::SessionId> {
    records.iter().find_map(|record| match record {
        Record::Opened { session, .. } => Some(*session),
        _ => None,
    })
}

/// Writes the first records of an execution.
pub(super) async fn write(stage: &Stage, id: ExecutionId, records: &[Record]) {
    let stream = log::stream::<ExecutionState>(id).expect("a name");
    let log = Log::<ExecutionState>::of(stage.rig.daemon.journal.clone(), stream, None);
    for record in records {
        let record = record.clone();
        let written = log.decide::<LogError>(|_| Ok(Decision::record(record))).expect("decided");
        written.await.expect("written");
    }
}

#[tokio::test]
async fn a_call_that_a_crash_cut_is_made_again_if_it_may_be() {
    for (tool, declared, again, told) in [
        ("hold_read", "hold.read", 2, "hold.read"),
        ("hold", "hold", 1, "whether it took effect is not known"),
    ] {
        let mut stage = Stage::with_worker("").await;
        stage.models.answer(move |request| match turns(request) {
            0 => says("", &[(tool, json!({}))]),
            _ => says("Done.", &[]),
        });
        let id = stage.begun("die").await;
        eventually("it holds", async || stage.children.calls(declared) == 1).await;
        stage.rig = stage.rig.crashed().await;
        eventually("it is over", async || {
            stage.children.release();
            tokio::time::sleep(Duration::from_millis(5)).await;
            let of_it = json!({ "execution_id": id });
            stage.good("aegis.task.status", of_it).await["status"] == "completed"
        })
        .await;
        assert_eq!(stage.children.calls(declared), again, "{tool}");
        let asked = stage.models.asked();
        assert_eq!(asked.len(), 2, "{tool}");
        let ModelMessage::ToolResult { content, .. } = asked[1].messages.last().expect("one")
        else {
            panic!("{asked:?}")
        };
        assert!(content.contains(told), "{tool}: {content}");
    }
}
