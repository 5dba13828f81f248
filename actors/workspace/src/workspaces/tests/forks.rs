//! Forks for sessions that do not own the source, and snapshots that are deleted between others.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use hivekeep_kernel::{SessionId, lock};
use hivekeep_link::fake::RequestBehaviour;
use hivekeep_ports::{NetworkMode, OwnedSnapshot, WorkspaceForks};
use hivekeep_protocol::{FromGuest, TasksKept, ToGuest};
use hivekeep_testkit::context;
use serde_json::json;

use super::{
    stage::{Stage, guest},
    wires::Wires,
};
use crate::snapshot::fork::WorkspaceForksHandle;

#[tokio::test]
async fn another_session_has_a_fork_of_its_own_where_the_daemon_says_so() {
    let stage = Stage::open().await;
    let id = stage.create("w").await;
    for name in ["a", "b"] {
        let made = json!({ "workspace_id": id, "action": "create", "name": name });
        stage.call("snapshot", made).await.unwrap();
    }
    let (shared, manager) = (stage.daemon.shared.clone(), stage.daemon.manager.clone());
    let forks = WorkspaceForksHandle { shared, manager };
    let stranger = SessionId::new();
    let cx = context(stranger, "fork", Duration::from_secs(30), Default::default());
    let workspace = id.parse().unwrap();
    let of = |owner| OwnedSnapshot { workspace, owner, snapshot: "a".to_owned() };
    let refused = forks.fork(&cx, &of(stranger), "f", false, None).await.unwrap_err();
    assert_eq!(refused.code, "not_owner");
    let fork = forks.fork(&cx, &of(stage.session), "f", false, None).await.unwrap();
    let found = stage.daemon.shared.directory.card(&fork.to_string()).unwrap();
    assert_eq!(found.owner, Some(stranger));
    let look = forks.fork_to_read(&cx, &of(stage.session), 600).await.unwrap().to_string();
    let read = stage.daemon.shared.directory.card(&look).unwrap();
    assert_eq!(read.owner, Some(stranger));
    let lifetime = read.lifetime.expect("it ends by itself");
    assert_eq!(lifetime.at_end, crate::lifetime::AtEnd::Destroy);

    let delete = |name: &str, keep_newer: bool| json!({ "workspace_id": id, "action": "delete", "name": name, "keep_newer": keep_newer });
    let needed = stage.call("snapshot", delete("a", true)).await.unwrap_err();
    assert_eq!(needed.details["dependents"].as_array().unwrap().len(), 2, "by its forks alone");
    let more = json!({ "workspace_id": id, "action": "create", "name": "c" });
    stage.call("snapshot", more).await.unwrap();
    let needed = stage.call("snapshot", delete("b", false)).await.unwrap_err();
    assert_eq!(needed.details["dependents"], json!(["c"]));
    stage.call("snapshot", delete("b", true)).await.unwrap();
    for name in ["c", "a"] {
        let back = json!({ "workspace_id": id, "action": "restore", "name": name });
        stage.call("snapshot", back).await.unwrap();
    }
}

/// A guest is told to keep its tasks before it is told who it is, and one that cannot makes no fork.
#[tokio::test]
async fn a_fork_that_keeps_the_tasks_of_its_source_says_so_before_it_is_another_machine() {
    let (told, knows) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(true)));
    let script = {
        let (told, knows) = (told.clone(), knows.clone());
        move |request: &ToGuest| match request {
            ToGuest::TasksKeep(it) if *lock(&knows) => {
                lock(&told).push(it.machine_id.clone());
                RequestBehaviour::Reply(Ok(FromGuest::TasksKeep(TasksKept { open: 1 })))
            }
            ToGuest::Reidentify(it) => {
                lock(&told).push(format!("is {}", it.machine_id));
                guest(request)
            }
            _ => guest(request),
        }
    };
    let wires = Wires::new(NetworkMode::Off { reason: "off".to_owned() });
    let stage = Stage::with(wires, script).await;
    let id = stage.create("w").await;
    for (name, memory) in [("disk", false), ("all", true)] {
        let made = json!({ "workspace_id": id, "action": "create", "name": name, "include_memory": memory });
        stage.call("snapshot", made).await.unwrap();
    }
    let (shared, manager) = (stage.daemon.shared.clone(), stage.daemon.manager.clone());
    let forks = WorkspaceForksHandle { shared, manager };
    let cx = || context(stage.session, "fork", Duration::from_secs(30), Default::default());
    let (workspace, owner) = (id.parse().unwrap(), stage.session);
    let of = |name: &str| OwnedSnapshot { workspace, owner, snapshot: name.to_owned() };
    let refused = forks.fork(&cx(), &of("disk"), "f", true, None).await.unwrap_err();
    assert_eq!(refused.code, "invalid_input", "nothing runs on a disk");
    forks.fork(&cx(), &of("all"), "plain", false, None).await.unwrap();
    assert!(matches!(&std::mem::take(&mut *lock(&told))[..], [is] if is.starts_with("is ")));
    forks.fork(&cx(), &of("all"), "keeps", true, None).await.unwrap();
    let [kept, is] = &std::mem::take(&mut *lock(&told))[..] else { panic!("not both") };
    assert_eq!(is, &format!("is {kept}"));
    *lock(&knows) = false;
    let refused = forks.fork(&cx(), &of("all"), "old", true, None).await.unwrap_err();
    assert_eq!(refused.code, "guest_unsupported");
    assert!(lock(&told).is_empty() && stage.daemon.shared.directory.card("old").is_err());
}
