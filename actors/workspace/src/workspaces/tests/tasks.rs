//! Tasks through the port that other actors have.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use hivekeep_kernel::WorkspaceId;
use hivekeep_link::fake::RequestBehaviour;
use hivekeep_ports::{NetworkMode, TaskAssignment, TaskOutputs, TaskState, TaskWindow, Tasks};
use hivekeep_protocol::{
    Exit, Frame, FrameKind, FromGuest, GuestError, GuestEvent, Spool, TaskAcked, TaskProgress,
    TaskPut, TaskPutReply, TaskReadReply, TaskResultsPush, TaskResultsReply, ToGuest, encode,
};
use hivekeep_store::SubscriptionItem;
use serde_json::json;

use super::{
    stage::{Stage, guest},
    wires::Wires,
};
use crate::tasks::TasksHandle;

type Puts = Arc<Mutex<Vec<TaskPut>>>;

/// A daemon whose guests take every task, and what they took.
async fn taking() -> (Stage, Puts) {
    let puts = Puts::default();
    let taken = puts.clone();
    let network = Wires::new(NetworkMode::Off { reason: "off".to_owned() });
    let stage = Stage::with(network, move |request| match request {
        ToGuest::TaskPut(put) => {
            taken.lock().unwrap_or_else(PoisonError::into_inner).push(put.clone());
            let state = hivekeep_protocol::GuestTaskState::Queued;
            let taken = TaskPutReply { state, repeat: false, differs: false, result: None };
            RequestBehaviour::Reply(Ok(FromGuest::TaskPut(taken)))
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

fn event(event: &GuestEvent) -> Vec<u8> {
    let payload = encode(event).expect("small");
    Frame { kind: FrameKind::Event, id: 0, payload }.to_bytes()
}

fn ended(after: u64, number: u64) -> TaskResultsPush {
    let result = hivekeep_protocol::GuestTaskResult {
        number,
        task_id: format!("t{number}"),
        message_id: "m".into(),
        outcome: hivekeep_protocol::GuestTaskOutcome::Ended(Exit::Code(0)),
        workdir: None,
        stdout: Default::default(),
        stderr: Default::default(),
        elapsed_ms: 1,
    };
    TaskResultsPush {
        after,
        page: TaskResultsReply { results: vec![result], more: false, queued: 1, running: 2 },
    }
}

/// A guest that tells of two results and of progress with the answer to a put, and counts how
/// often it is asked for results, of which it then has none.
async fn telling() -> (Stage, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let network = Wires::new(NetworkMode::Off { reason: "off".to_owned() });
    let stage = Stage::with(network, move |request| match request {
        ToGuest::TaskPut(_) => RequestBehaviour::raw(|id| {
            let progress = TaskProgress {
                task_id: "t1".into(),
                message_id: "m".into(),
                stdout_bytes: 14,
                stderr_bytes: 0,
                tail: b"key is s3cret\n".to_vec(),
            };
            let mut bytes = event(&GuestEvent::TaskProgress(progress));
            bytes.extend(event(&GuestEvent::TaskEnded(ended(0, 1))));
            bytes.extend(event(&GuestEvent::TaskEnded(ended(1, 2))));
            let state = hivekeep_protocol::GuestTaskState::Queued;
            let taken = TaskPutReply { state, repeat: false, differs: false, result: None };
            let reply = Ok::<_, GuestError>(FromGuest::TaskPut(taken));
            let payload = encode(&reply).expect("small");
            bytes.extend(Frame { kind: FrameKind::Reply, id, payload }.to_bytes());
            bytes
        }),
        ToGuest::TaskResults(_) => {
            count.fetch_add(1, Ordering::SeqCst);
            let page = TaskResultsReply { results: vec![], more: false, queued: 0, running: 0 };
            RequestBehaviour::Reply(Ok(FromGuest::TaskResults(page)))
        }
        ToGuest::TaskAck(ack) => {
            let acknowledged = u32::try_from(ack.task_ids.len()).unwrap();
            RequestBehaviour::Reply(Ok(FromGuest::TaskAck(TaskAcked { acknowledged })))
        }
        ToGuest::TaskRead(read) => {
            let bytes = vec![b'x'; read.max_bytes as usize + usize::from(read.stderr_from > 0)];
            let long = bytes.len() as u64 + 5;
            let part =
                |from| Spool { from, bytes: bytes.clone(), kept_bytes: long, total_bytes: long };
            RequestBehaviour::Reply(Ok(FromGuest::TaskRead(TaskReadReply {
                state: hivekeep_protocol::GuestTaskState::Running,
                stdout: part(read.stdout_from),
                stderr: part(read.stderr_from),
            })))
        }
        other => guest(other),
    });
    (stage.await, asked)
}

#[tokio::test]
async fn a_result_that_was_told_is_not_asked_for_until_it_is_acknowledged() {
    let (stage, asked) = telling().await;
    let workspace: WorkspaceId = stage.create("w").await.parse().unwrap();
    let tasks = TasksHandle::new(stage.daemon.shared.clone());
    let sent: BTreeMap<_, _> = [("t1".to_owned(), "m".to_owned())].into();
    let mut hints = tasks.hints(workspace).await.unwrap();
    let before = hints.count();
    tasks.put(workspace, task(&[])).await.unwrap();
    while hints.count() < before + 2 {
        assert!(hints.next().await);
    }
    let page = tasks.results(workspace, 0, 20, &sent).await.unwrap();
    assert_eq!((page.results.len(), page.dropped, page.next_after), (1, 1, 2));
    assert_eq!((page.results[0].task_id.as_str(), page.queued, page.running), ("t1", 1, 2));
    assert!(page.told, "its counts are of before");
    assert_eq!(asked.load(Ordering::SeqCst), 0, "it was told");
    assert_eq!(tasks.acknowledge(workspace, vec!["t1".into()]).await.unwrap(), 1);
    let page = tasks.results(workspace, 0, 20, &sent).await.unwrap();
    assert_eq!((page.results.len(), asked.load(Ordering::SeqCst)), (0, 1));
    assert!(!page.told);
    // What was told over a link of before is asked for again.
    let id = json!({ "workspace_id": workspace.to_string() });
    stage.call("workspace_stop", id.clone()).await.unwrap();
    stage.call("workspace_start", id).await.unwrap();
    let page = tasks.results(workspace, 1, 20, &sent).await.unwrap();
    assert_eq!((page.dropped, asked.load(Ordering::SeqCst)), (0, 2));
}

#[tokio::test]
async fn progress_is_an_event_without_credentials_and_output_is_read_in_bounds() {
    let (stage, _asked) = telling().await;
    let workspace: WorkspaceId = stage.create("w").await.parse().unwrap();
    let tasks = TasksHandle::new(stage.daemon.shared.clone());
    let mut events = stage.daemon.shared.daemon.journal.events().subscribe(None, 64);
    tasks.put(workspace, task(&[])).await.unwrap();
    let told = async {
        loop {
            match events.next().await.unwrap() {
                SubscriptionItem::Event(event) if event.kind == "task.progress" => return event,
                _ => {}
            }
        }
    };
    let told = tokio::time::timeout(std::time::Duration::from_secs(60), told).await.unwrap();
    assert_eq!(told.subject, workspace.to_string());
    let wanted = json!({
        "task_id": "t1", "message_id": "m", "stdout_bytes": 14, "stderr_bytes": 0,
        "last_line": "key is [redacted]",
    });
    assert_eq!(told.data, wanted);

    let window = |stderr_from| TaskWindow {
        task_id: "t1".into(),
        stdout_from: 0,
        stderr_from,
        max_bytes: 7,
    };
    let output = tasks.output(workspace, window(0)).await.unwrap();
    assert_eq!((output.state, &output.stdout.bytes[..]), (TaskState::Running, &b"xxxxxxx"[..]));
    assert_eq!((output.stdout.kept_bytes, output.stdout.total_bytes), (12, 12));
    let refused = tasks.output(workspace, window(1)).await.unwrap_err();
    assert_eq!(refused.code, "guest_misbehaves", "more than was asked for");
}
