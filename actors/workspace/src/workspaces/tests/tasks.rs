//! Tasks through the port that other actors have.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use hivekeep_kernel::{
    WorkspaceId,
    ports::{NetworkMode, TaskAssignment, TaskState, Tasks},
};
use hivekeep_protocol::{FromGuest, TaskPut, TaskTaken, ToGuest};
use serde_json::json;

use super::{
    stage::{Stage, guest},
    wires::Wires,
};
use crate::{link::fake::Act, tasks::TasksHandle};

type Puts = Arc<Mutex<Vec<TaskPut>>>;

/// A daemon whose guests take every task, and what they took.
async fn taking() -> (Stage, Puts) {
    let puts = Puts::default();
    let taken = puts.clone();
    let network = Wires::new(NetworkMode::Off { reason: "off".to_owned() });
    let stage = Stage::with(network, move |request| match request {
        ToGuest::TaskPut(put) => {
            taken.lock().unwrap_or_else(PoisonError::into_inner).push(put.clone());
            let state = hivekeep_protocol::TaskState::Queued;
            let taken = TaskTaken { state, repeat: false, differs: false, result: None };
            Act::Reply(Ok(FromGuest::TaskPut(taken)))
        }
        other => guest(other),
    });
    (stage.await, puts)
}

fn task(env: &[(&str, &str)]) -> TaskAssignment {
    TaskAssignment {
        message_id: "m".into(),
        task_id: "t".into(),
        command: "true".into(),
        workdir: None,
        env: env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        timeout_secs: 300,
    }
}

#[tokio::test]
async fn a_task_has_the_workspaces_environment_under_its_own() {
    let (stage, puts) = taking().await;
    let id = stage.create("w").await;
    let vars = json!({ "SHARED": "theirs", "OTHER": "kept" });
    stage.call("set_env", json!({ "workspace_id": id, "vars": vars })).await.unwrap();
    let tasks = TasksHandle::new(stage.daemon.shared.clone());
    let workspace: WorkspaceId = id.parse().unwrap();
    let taken = tasks.put(workspace, task(&[("SHARED", "mine")])).await.unwrap();
    assert_eq!((taken.state, taken.repeat), (TaskState::Queued, false));
    let puts = puts.lock().unwrap_or_else(PoisonError::into_inner);
    let [put] = &puts[..] else { panic!("{puts:?}") };
    let env: BTreeMap<_, _> = put.env.iter().cloned().collect();
    assert_eq!(
        env,
        [("OTHER", "kept"), ("SHARED", "mine")].map(|(n, v)| (n.into(), v.into())).into()
    );
}

#[tokio::test]
async fn what_cannot_be_put_is_refused_with_its_reason() {
    let (stage, puts) = taking().await;
    let id = stage.create("w").await;
    let tasks = TasksHandle::new(stage.daemon.shared.clone());
    let workspace: WorkspaceId = id.parse().unwrap();
    let refused = tasks.put(workspace, task(&[("LD_PRELOAD", "x")])).await.unwrap_err();
    assert_eq!(refused.code, "invalid_input");
    let refused = tasks.put(WorkspaceId::new(), task(&[])).await.unwrap_err();
    assert_eq!(refused.code, "workspace_not_found");
    stage.call("workspace_stop", json!({ "workspace_id": id })).await.unwrap();
    let refused = tasks.put(workspace, task(&[])).await.unwrap_err();
    assert_eq!(refused.code, "workspace_state");
    assert!(puts.lock().unwrap_or_else(PoisonError::into_inner).is_empty());
}

#[tokio::test]
async fn a_new_link_is_a_hint_and_a_gone_workspace_has_no_more() {
    let (stage, _puts) = taking().await;
    let id = stage.create("w").await;
    let tasks = TasksHandle::new(stage.daemon.shared.clone());
    let workspace: WorkspaceId = id.parse().unwrap();
    let count = || async { tasks.hints(workspace).await.unwrap().count() };
    let before = count().await;
    stage.call("workspace_stop", json!({ "workspace_id": id })).await.unwrap();
    stage.call("workspace_start", json!({ "workspace_id": id })).await.unwrap();
    assert!(count().await > before);
    let mut hints = tasks.hints(workspace).await.unwrap();
    stage.call("workspace_destroy", json!({ "workspace_id": id })).await.unwrap();
    while hints.next().await {}
    assert_eq!(tasks.hints(workspace).await.unwrap_err().code, "workspace_not_found");
}
