//! Compaction: long conversations are made shorter, at places that tear nothing, and no summary is paid twice.

use hivekeep_kernel::ToolError;
use hivekeep_ports::{ModelAnswer, ModelMessage, ModelRequest, ModelUsage};
use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::{Stage, fakes::says};
use crate::execution::state::Record;

const SPEC: &str =
    "  execution: { compaction: { tokens: 256, keep_turns: 1 }, budget: { tokens: 1000000 } }\n";
/// Turns of the script.
const TURNS: u64 = 5;

fn asks_for_summary(request: &ModelRequest) -> bool {
    request.tools.is_empty()
}

/// Calls one after the other, numbered by what is left of the conversation.
fn counting(request: &ModelRequest) -> Result<ModelAnswer, ToolError> {
    let last = request.messages.iter().rev().find_map(|message| match message {
        ModelMessage::Assistant { calls, .. } => calls.first()?.arguments["n"].as_u64(),
        _ => None,
    });
    let answer = match last.map_or(0, |last| last + 1) {
        _ if asks_for_summary(request) => says("They looked.", &[]),
        TURNS => says("Done.", &[]),
        n => says("", &[("fs_read", json!({ "n": n })), ("fs_write", json!({ "n": n }))]),
    };
    let input_tokens = 100 * request.messages.len() as u64;
    answer.map(|it| ModelAnswer { usage: ModelUsage { input_tokens, ..it.usage }, ..it })
}

fn shapes(request: &ModelRequest) -> Vec<String> {
    let shape = |message: &ModelMessage| match message {
        ModelMessage::User(text)
            if text.contains("A summary of what came before:]\nThey looked.") =>
        {
            "summary".to_owned()
        }
        ModelMessage::User(text) => format!("user {text}"),
        ModelMessage::Assistant { text, calls } if calls.is_empty() => format!("says {text}"),
        ModelMessage::Assistant { calls, .. } => format!("calls {}", calls[0].arguments["n"]),
        ModelMessage::ToolResult { call, .. } => format!("result {}", call.arguments["n"]),
    };
    request.messages.iter().map(shape).collect()
}

fn split(stage: &Stage) -> (Vec<ModelRequest>, Vec<ModelRequest>) {
    stage.models.asked().into_iter().partition(asks_for_summary)
}

#[tokio::test]
async fn older_turns_are_replaced_whole_and_no_summary_is_asked_twice() {
    let stage = Stage::with_worker(SPEC).await;
    stage.models.answer(counting);
    let id = stage.begun("Mend it").await;
    let end = stage.end(&id).await;
    assert_eq!((&end["status"], &end["last_output"]), (&json!("completed"), &json!("Done.")));
    let (summaries, turns) = split(&stage);
    assert_eq!((summaries.len(), turns.len()), (4, 6));
    let prompt = "user Do it.\n\nTask: Mend it";
    for (nth, turn) in (2_usize..).zip(&turns[2..]) {
        let last = nth - 1;
        let kept = [format!("calls {last}"), format!("result {last}"), format!("result {last}")];
        let wanted = [vec![prompt.to_owned(), "summary".to_owned()], kept.to_vec()].concat();
        assert_eq!(shapes(turn), wanted);
    }
    // The summary is of the one before and of what came since.
    let ModelMessage::User(second) = &summaries[1].messages[0] else { panic!("one") };
    for part in ["USER: Do it.", "They looked.", "CALL fs_read {\"n\":1}", "RESULT of fs_write"] {
        assert!(second.contains(part), "{part}: {second}");
    }
    assert!(!second.contains("{\"n\":0}") && !second.contains("{\"n\":2}"), "{second}");

    let events = stage.closed(&id).await;
    let told: Vec<_> =
        events.iter().filter(|it| it["event_type"] == "conversation_compacted").collect();
    assert_eq!(told[0]["payload"]["kept_from"], json!({ "iteration": 1, "turn": 2 }));
    assert_eq!((&told[0]["payload"]["text"], told.len()), (&json!("They looked."), 4));
    let all = |event: &&Value| {
        ["llm_interaction", "conversation_compacted"]
            .contains(&event["event_type"].as_str().expect("one"))
    };
    let tokens = |key: &str| {
        events.iter().filter(all).map(|it| it["payload"][key].as_u64().expect("one")).sum::<u64>()
    };
    let spent = tokens("input_tokens") + tokens("output_tokens");
    assert_eq!((&end["tokens"], &end["budget"][0]["used"]), (&json!(spent), &json!(spent)));

    let (parsed, records) = stage.records(&id).await;
    for kept in 1..=records.len() {
        let again =
            Stage::reopened(parsed, &records[..kept], |it| it.models.answer(counting)).await;
        eventually("it is over", async || again.status(&id).await["status"] == "completed").await;
        let at =
            |wanted: fn(&Record) -> bool| records[..kept].iter().filter(|it| wanted(it)).count();
        let (summaries, turns) = split(&again);
        let written = at(|record| matches!(record, Record::Compacted { .. }));
        let answered = at(|record| matches!(record, Record::Answered { .. }));
        assert_eq!((summaries.len(), turns.len()), (4 - written, 6 - answered), "at {kept}");
    }
}

#[tokio::test]
async fn a_chat_keeps_what_was_said_since_and_the_operators_setting_holds() {
    let mut stage = Stage::with_worker("").await;
    stage.rig.options.compaction.tokens = 256;
    stage.rig.options.compaction.keep_turns = 1;
    stage.rig = stage.rig.crashed().await;
    stage.models.answer(|request| {
        let said = if asks_for_summary(request) { "They looked." } else { "Yes." };
        let input_tokens = 300;
        says(said, &[])
            .map(|it| ModelAnswer { usage: ModelUsage { input_tokens, ..it.usage }, ..it })
    });
    let begun = json!({ "agent_id": "worker", "intent": "zero", "chat": true });
    let id = stage.good("aegis.task.execute", begun).await["execution_id"].clone();
    let id = id.as_str().expect("an id");
    stage.waits_for(id, "message").await;
    for message in ["one", "two"] {
        stage.continued(id, json!({ "message": message })).await;
        let answered =
            async || stage.events(id).await.last().expect("one")["event_type"] == "llm_interaction";
        eventually("it answers", async || {
            answered().await && stage.status(id).await["waiting_for"] == "message"
        })
        .await;
    }
    let (summaries, turns) = split(&stage);
    assert_eq!((summaries.len(), turns.len()), (1, 3));
    let shown = ["user Do it.\n\nTask: zero", "summary", "user one", "says Yes.", "user two"];
    assert_eq!(shapes(&turns[2]), shown);
}

#[tokio::test]
async fn a_summary_of_no_use_is_a_typed_end() {
    let stage = Stage::with_worker(SPEC).await;
    stage.models.answer(|request| match asks_for_summary(request) {
        true => says(" ", &[]),
        false => counting(request),
    });
    let id = stage.begun("Mend it").await;
    let end = stage.end(&id).await;
    assert_eq!(
        (&end["status"], &end["error_code"]),
        (&json!("failed"), &json!("compaction_failed"))
    );
    assert_eq!(split(&stage).0.len(), 1);
}
