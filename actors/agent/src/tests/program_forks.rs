//! Forks of programs over a real journal: their machine goes on from the request that was held, and that and all later
//! ones are asked with the words of the fork.

use hivekeep_kernel::WorkspaceId;
use hivekeep_ports::{RelayRequest, TaskOutcome};
use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::{
    Stage,
    fakes::says,
    machine::{RelayPlay, whole},
    tasks::{opened, write},
};
use crate::execution::{forks::ForkRecord, state::Record};

const PATH: &str = "/v1/responses";
const DONE: TaskOutcome = TaskOutcome::Exited { exit_code: 0 };
const CHECKPOINTS: &str = "  tools: [fs.read, hold]\n  execution: { checkpoint: turn }\n";
const FIRST: &[&str] = &["task"];
const SECOND: &[&str] = &["task", "two"];
const THIRD: &[&str] = &["task", "two", "three"];

/// Request of a program with this conversation.
fn body(texts: &[&str]) -> String {
    let messages = texts.iter().map(|text| json!({ "role": "user", "content": text }));
    json!({ "model": "m", "input": messages.collect::<Value>() }).to_string()
}

/// Conversation that came to the provider.
fn said(request: &RelayRequest) -> Vec<String> {
    let body: Value = serde_json::from_slice(&request.body).expect("JSON");
    let text = |message: &Value| {
        let text = message.pointer("/content/0/text").unwrap_or(&message["content"]);
        text.as_str().expect("a text").to_owned()
    };
    body["input"].as_array().expect("messages").iter().map(text).collect()
}

/// Answers the first request, and those with words of a fork; holds the others.
fn plays(request: &RelayRequest, _: usize) -> RelayPlay {
    let said = said(request);
    match said.iter().find(|text| text.starts_with("Be ")) {
        Some(words) if words == "Be brief." => RelayPlay::Whole(&["short"]),
        Some(_) => RelayPlay::Whole(&["kind"]),
        None if said.len() == 1 => RelayPlay::Whole(&["one ", "two"]),
        None => RelayPlay::Hang("one "),
    }
}

/// Program that waits for the answer to its second request.
async fn held() -> (Stage, String) {
    let (stage, id) = Stage::with_program(CHECKPOINTS).await;
    stage.machine.play(plays);
    assert_eq!(stage.says_in(None, FIRST).await, "one two");
    drop(stage.machine.sends(PATH, &body(SECOND)).await);
    eventually("it is held", async || stage.machine.relayed().len() == 2).await;
    (stage, id)
}

impl Stage {
    /// Whole answer to the program of a machine, or of the only one.
    async fn says_in(&self, workspace: Option<WorkspaceId>, texts: &[&str]) -> String {
        let answer = match workspace {
            Some(workspace) => self.machine.sends_in(workspace, PATH, &body(texts)).await,
            None => self.machine.sends(PATH, &body(texts)).await,
        };
        let (status, text) = whole(answer).await;
        assert_eq!(status, 200, "{text:?}");
        text.expect("whole")
    }

    /// Machine of an execution, once it is there.
    async fn placed(&self, id: &str) -> WorkspaceId {
        let found = async || {
            let of_it = |record: &Record| match record {
                Record::Placed { workspace, .. } => Some(*workspace),
                _ => None,
            };
            self.records(id).await.1.iter().find_map(of_it)
        };
        eventually("it has a machine", async || found().await.is_some()).await;
        found().await.expect("a machine")
    }

    /// Requests that came to the provider since the first so many.
    fn since(&self, count: usize) -> Vec<RelayRequest> {
        self.machine.relayed().split_off(count)
    }
}

#[tokio::test]
async fn a_forked_programs_request_comes_again_and_is_asked_with_the_words_of_each() {
    let (stage, id) = held().await;
    let saved = stage.machines.calls("snapshot");
    let names: Vec<_> = saved.iter().map(|args| &args["name"]).collect();
    assert_eq!(names, ["turn-0-1-0-0", "turn-0-1-1-0"]);
    assert!(saved.iter().all(|args| args["include_memory"] == true));
    let variations = json!([
        { "instruction": "Be brief." }, { "instruction": "Be kind.", "model": "other" }]);
    let forks = stage.forked(&id, json!({ "variations": variations })).await;
    for (nth, (fork, words, answer, model)) in
        [(&forks[0], "Be brief.", "short", "m"), (&forks[1], "Be kind.", "kind", "other")]
            .into_iter()
            .enumerate()
    {
        let workspace = Some(stage.placed(fork).await);
        let count = stage.machine.relayed().len();
        assert_eq!(stage.says_in(workspace, FIRST).await, "one two", "from the record");
        assert_eq!(stage.says_in(workspace, SECOND).await, answer);
        assert_eq!(stage.says_in(workspace, SECOND).await, answer);
        assert_eq!(stage.says_in(workspace, THIRD).await, answer);
        let asked = stage.since(count);
        let all: Vec<_> = asked.iter().map(said).collect();
        assert_eq!(all, [vec!["task", "two", words], vec!["task", "two", words, "three"]]);
        for request in asked {
            let body: Value = serde_json::from_slice(&request.body).expect("JSON");
            assert_eq!((request.model.as_str(), &body["model"]), (model, &json!(model)));
        }
        let line = json!({ "type": "item.completed",
            "item": { "type": "agent_message", "text": answer } });
        stage.machine.finish_in(workspace, DONE, &line.to_string(), "").await;
        let end = stage.end(fork).await;
        assert_eq!((&end["status"], &end["last_output"]), (&json!("completed"), &json!(answer)));
        assert_eq!((&end["tokens"], &end["forked_from"]), (&json!(30), &json!(id)), "its own");
        let counted = json!({
            "asked": 3, "answered_from_record": 2, "cut": 0, "with_words": 2 });
        assert_eq!(end["model_requests"], counted, "fork {nth}");
    }
    assert_eq!(stage.status(&id).await["status"], "running", "its program waits on");
    assert_eq!(stage.machine.assigned().iter().filter(|it| it.command.is_empty()).count(), 0);
    let forked = stage.machines.calls("fork");
    assert!(forked.len() == 2 && forked.iter().all(|it| it["of"]["snapshot"] == "turn-0-1-1-0"));

    let compared = json!({ "execution_ids": forks });
    let compared = stage.good("agent_compare", compared).await;
    assert_eq!(compared["first_difference"], Value::Null, "its turns are no texts");

    // A fork of a fork has the words of both, each at its place; and one of the first request has none before.
    let of_fork = json!({ "at": { "turn": 2 }, "variations": [{ "instruction": "Be kind." }] });
    let nested = stage.forked(&forks[0], of_fork).await.remove(0);
    let workspace = Some(stage.placed(&nested).await);
    let count = stage.machine.relayed().len();
    assert_eq!(stage.says_in(workspace, SECOND).await, "short", "from the record");
    stage.says_in(workspace, THIRD).await;
    let both = ["task", "two", "Be brief.", "three", "Be kind."];
    assert_eq!(stage.since(count).iter().map(said).collect::<Vec<_>>(), [both]);
    stage.machine.finish_in(workspace, DONE, "", "").await;
    let at = json!({ "at": { "turn": 0 }, "variations": [{ "instruction": "Be brief." }] });
    let early = stage.forked(&id, at).await.remove(0);
    let workspace = Some(stage.placed(&early).await);
    let count = stage.machine.relayed().len();
    assert_eq!(stage.says_in(workspace, FIRST).await, "short");
    assert_eq!(said(&stage.since(count)[0]), ["task", "Be brief."]);

    // A program that writes its conversation anew is asked without the words, and its execution says so.
    let at = json!({ "at": { "turn": 0 }, "variations": [{ "instruction": "Be brief." }] });
    let anew = stage.forked(&id, at).await.remove(0);
    let workspace = Some(stage.placed(&anew).await);
    stage.says_in(workspace, &["task at noon"]).await;
    assert_eq!(stage.status(&anew).await["model_requests"]["with_words"], 0);
}

/// A fork's program is never begun anew, and no whole answer is asked for again, wherever a daemon dies.
#[tokio::test]
async fn a_daemon_that_dies_at_any_record_of_a_programs_fork_goes_on_from_it() {
    let (stage, id) = held().await;
    let variations = json!([{ "instruction": "Be brief." }]);
    let fork = stage.forked(&id, json!({ "variations": variations })).await.remove(0);
    let workspace = Some(stage.placed(&fork).await);
    for texts in [SECOND, THIRD] {
        stage.says_in(workspace, texts).await;
    }
    stage.machine.finish_in(workspace, DONE, "Mended.", "").await;
    stage.closed(&fork).await;
    let (parsed, records) = stage.records(&fork).await;
    let origin = |record: &Record| match record {
        Record::Fork { about, .. } => match &**about {
            ForkRecord::Inherited(origin) => Some(origin.clone()),
            _ => None,
        },
        _ => None,
    };
    let begun = records.iter().position(|record| origin(record).is_some()).expect("a fork");
    let origin = origin(&records[begun]).expect("a fork");
    let (program, machine) = (origin.program.expect("a program"), origin.machine.expect("one"));
    for kept in begun + 1..=records.len() {
        let mut again = Stage::usual().await;
        again.models.answer(|_| says("", &[]));
        again.machine.play(plays);
        let records = &records[..kept];
        write(&again, parsed, records).await;
        again.machine.runs(machine.workspace, &program.task_id, &program.message_id);
        let session = opened(records);
        again.children.adopt(again.rig.session, &fork, session, &["fs.read"]);
        let count = |is: &dyn Fn(&Record) -> bool| records.iter().filter(|it| is(it)).count();
        let placed = count(&|record| matches!(record, Record::Placed { .. }));
        if placed > 0 {
            let own = again.machines.put(session.expect("opened before"));
            again.machine.keep(machine.workspace, own);
        }
        again.rig = again.rig.crashed().await;
        let over =
            eventually("it is over", async || again.status(&fork).await["status"] == "completed");
        let works = async {
            let workspace = Some(again.placed(&fork).await);
            let workspace = match placed {
                0 => workspace,
                _ => Some(again.machines.of(session.expect("opened before"))),
            };
            for texts in [FIRST, SECOND, THIRD] {
                again.says_in(workspace, texts).await;
            }
            again.machine.finish_in(workspace, DONE, "Mended.", "").await;
            std::future::pending().await
        };
        tokio::select! {
            () = over => {}
            () = works => {}
        }
        let answered = count(&|record| matches!(record, Record::ModelAnswered { .. })) - 1;
        let ended = count(&|record| matches!(record, Record::ProgramEnded { .. }));
        let asked = again.machine.relayed();
        assert_eq!(asked.len(), if ended > 0 { 0 } else { 2 - answered }, "at {kept}");
        assert!(asked.iter().all(|request| said(request)[2] == "Be brief."), "at {kept}");
        assert_eq!(again.machines.calls("fork").len(), 1 - placed, "at {kept}");
        let end = again.status(&fork).await;
        assert_eq!((&end["tokens"], &end["last_output"]), (&json!(30), &json!("Mended.")));
        let anew = again.machine.assigned();
        assert!(anew.iter().all(|task| task.command.is_empty()), "it is begun once: {kept}");
    }
}

#[tokio::test]
async fn a_program_is_not_forked_without_its_machine_nor_while_it_waits_for_a_call_too() {
    let (stage, id) = held().await;
    for (tool, more, code) in [
        ("agent_fork", json!({ "at": { "turn": 5 } }), "checkpoint_missing"),
        ("agent_fork", json!({ "variations": [{ "instruction": " " }] }), "invalid_input"),
        ("agent_rewind", json!({ "to": { "turn": 1 } }), "fork_unsupported"),
        ("agent_replay", json!({}), "fork_unsupported"),
    ] {
        let mut asked = more.clone();
        asked["execution_id"] = json!(id);
        let refused = stage.refused(tool, asked).await;
        assert_eq!(refused.code, code, "{tool} {more}");
        if code == "checkpoint_missing" {
            assert_eq!(refused.details["last"], json!({ "iteration": 1, "turn": 1 }));
        }
    }
    // A call that waits would be made by each fork.
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "hold" } });
    let machine = stage.machine.clone();
    let calling = tokio::spawn(async move {
        whole(machine.sends_numbered("/mcp", "p-1", &call.to_string()).await).await
    });
    eventually("it is called", async || stage.children.calls("hold") == 1).await;
    drop(stage.machine.sends(PATH, &body(THIRD)).await);
    let failed = async || {
        let events = stage.events(&id).await;
        events.into_iter().find(|event| event["event_type"] == "checkpoint_failed")
    };
    eventually("it is told", async || failed().await.is_some()).await;
    let failed = failed().await.expect("told");
    assert_eq!(failed["payload"]["at"], json!({ "iteration": 1, "turn": 2 }));
    assert_eq!(failed["payload"]["error"]["code"], "busy");
    stage.children.release();
    assert_eq!(calling.await.expect("answered").0, 200);

    let spec = CHECKPOINTS.replace("turn", "iteration");
    let (seldom, _) = Stage::with_program(&spec).await;
    seldom.machine.play(|_, _| RelayPlay::Whole(&["one ", "two"]));
    for texts in [FIRST, SECOND] {
        seldom.says_in(None, texts).await;
    }
    assert_eq!(seldom.machines.calls("snapshot").len(), 1, "of an iteration");

    // A machine in which the program is not there any more ends its fork, and begins nothing.
    let made = stage.machines.calls("snapshot").len();
    assert_eq!(made, 2, "none beside a call");
    let workspace = stage.placed(&id).await;
    stage.machine.finish_in(Some(workspace), DONE, "Mended.", "").await;
    stage.machine.forget(workspace);
    let fork = stage.forked(&id, json!({})).await.remove(0);
    let end = stage.end(&fork).await;
    assert_eq!((&end["status"], &end["error_code"]), (&json!("failed"), &json!("program_failed")));
}
