//! Size of an execution's stream: no record repeats the conversation.

use hivekeep_kernel::ExecutionId;
use hivekeep_ports::ModelMessage;
use hivekeep_runtime::log;
use serde_json::json;

use super::{
    Stage,
    fakes::{says, turns},
};
use crate::execution::state::ExecutionState;

/// Turns, each with one call whose result is of 5 KiB.
const TURNS: usize = 100;

#[tokio::test]
async fn a_stream_is_no_longer_than_what_was_said() {
    let mut stage = Stage::with_worker("").await;
    stage.rig.options.max_turns = TURNS + 1;
    stage.rig = stage.rig.crashed().await;
    stage.models.answer(|request| match turns(request) {
        turn if turn < TURNS => {
            says("I read on.", &[("fs_read", json!({ "bytes": 2_560, "n": turn }))])
        }
        _ => says("Done.", &[]),
    });
    let id = stage.begun("read").await;
    assert_eq!(stage.end(&id).await["status"], "completed");

    let asked = stage.models.asked();
    let said = |message: &ModelMessage| match message {
        ModelMessage::User(text) => text.len(),
        ModelMessage::Assistant { text, calls } => {
            let calls = calls.iter().map(|call| call.name.len() + call.arguments.to_string().len());
            text.len() + calls.sum::<usize>()
        }
        ModelMessage::ToolResult { content, .. } => content.len(),
    };
    let said: usize = asked.last().expect("asked").messages.iter().map(said).sum();
    let parsed: ExecutionId = id.parse().expect("an id");
    let stream = log::stream::<ExecutionState>(parsed).expect("a name");
    let records = log::read_records::<ExecutionState>(&stage.rig.daemon.journal, &stream).await;
    let kept: usize = records
        .expect("read")
        .iter()
        .map(|record| serde_json::to_vec(record).expect("JSON").len())
        .sum();
    assert!(said > TURNS * 5 * 1024, "{said}");
    assert!(kept * 10 <= said * 13, "{kept} bytes of records for {said} bytes of messages");
}
