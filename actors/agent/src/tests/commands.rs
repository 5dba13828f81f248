//! Commands of an execution whose daemon dies: the guest that ran one is asked what came of it.

use hivekeep_kernel::{ExecutionId, Layer, ToolError};
use hivekeep_ports::{ModelAnswer, ModelMessage, ModelRequest};
use hivekeep_runtime::log;
use hivekeep_testkit::eventually;
use serde_json::json;

use super::{
    Stage,
    fakes::{says, turns},
    tasks::{TOOLS, opened, types, worker, write},
};
use crate::execution::state::{ExecutionState, Record};

async fn stage() -> Stage {
    let stage = Stage::new(TOOLS.map(str::to_owned)).await;
    let manifest = worker("").replace("fs.read, fs_write, hold, hold.read, deny", "cmd.run");
    assert!(manifest.contains("tools: [cmd.run]"), "{manifest}");
    stage.good("create", json!({ "manifest_yaml": manifest })).await;
    stage
}

fn last_result(request: &ModelRequest) -> &str {
    match request.messages.last() {
        Some(ModelMessage::ToolResult { content, .. }) => content,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_command_that_runs_when_the_daemon_dies_is_read_and_not_run_again() {
    let mut stage = stage().await;
    stage.models.answer(|request| match turns(request) {
        0 => says("", &[("cmd_run", json!({ "title": "hold" }))]),
        _ => says("Done.", &[]),
    });
    let id = stage.begun("die").await;
    eventually("it runs", async || stage.children.calls("cmd.run") == 1).await;
    stage.rig = stage.rig.crashed().await;
    assert_eq!(stage.end(&id).await["status"], "completed");
    assert_eq!(stage.children.effects().values().collect::<Vec<_>>(), [&1]);
    let asked = stage.models.asked();
    assert!(last_result(&asked[1]).contains("from the guest"), "{asked:?}");
}

/// A daemon that dies at each record, with a guest that knows the command which may have begun, and with one that does
/// not.
#[tokio::test]
async fn a_command_has_its_effect_once_at_each_record() {
    let script = |request: &ModelRequest| -> Result<ModelAnswer, _> {
        match turns(request) {
            0 => says("", &[("cmd_run", json!({ "n": 1 })), ("cmd_run", json!({ "n": 2 }))]),
            _ => says("Done.", &[]),
        }
    };
    let whole = stage().await;
    whole.models.answer(script);
    let id = whole.begun("live").await;
    whole.closed(&id).await;
    let parsed: ExecutionId = id.parse().expect("an id");
    let stream = log::stream::<ExecutionState>(parsed).expect("a name");
    let records = log::read_records::<ExecutionState>(&whole.rig.daemon.journal, &stream).await;
    let records = records.expect("read");
    let keys: Vec<String> = whole.children.effects().keys().cloned().collect();
    assert_eq!(keys, [format!("{id}/0.0.0.0"), format!("{id}/0.0.0.1")]);

    for (kept, knows) in (1..=records.len()).flat_map(|kept| [(kept, true), (kept, false)]) {
        let at = |is: fn(&Record) -> bool| records[..kept].iter().filter(|it| is(it)).count();
        let done = at(|record| matches!(record, Record::Called { .. }));
        let answered = at(|record| matches!(record, Record::Answered { .. }));
        let doubtful = keys.get(done).filter(|_| answered == 1);
        if doubtful.is_none() && !knows {
            continue;
        }
        let mut again = stage().await;
        again.models.answer(script);
        write(&again, parsed, &records[..kept]).await;
        let session = opened(&records[..kept]);
        again.children.adopt(again.rig.session, &id, session, &TOOLS);
        // What the daemon had done that died.
        let refusals = [
            ToolError::effect_unknown(Layer::Guest),
            ToolError::foreign(Layer::Policy, "denied", "it is denied now"),
            ToolError::foreign(Layer::Guest, "guest_disk_full", "the script does not fit"),
        ];
        again.children.refuse_again(refusals[kept % 3].clone());
        let begun = done + usize::from(doubtful.is_some() && knows);
        again.children.effects().extend(keys[..begun].iter().cloned().map(|key| (key, 1)));
        again.rig = again.rig.crashed().await;
        eventually("it is over", async || {
            let state = again.as_operator("aegis.task.status", json!({ "execution_id": id })).await;
            state.is_ok_and(|state| state["status"] == "completed")
        })
        .await;
        let unknown = usize::from(doubtful.is_some() && !knows);
        let effects = again.children.effects().clone();
        assert!(effects.values().all(|times| *times == 1), "at {kept}: {effects:?}");
        assert_eq!(effects.len(), 2 - unknown, "at {kept}: {effects:?}");
        let logs = json!({ "execution_id": id, "limit": 200 });
        let logs = again.as_operator("aegis.task.logs", logs).await.expect("events");
        let events = logs["events"].as_array().expect("events");
        let interrupted =
            types(events).into_iter().filter(|it| it.ends_with("_interrupted")).count();
        assert_eq!(interrupted, unknown, "at {kept}");
    }
}
