//! Forks for sessions that do not own the source, and snapshots that are deleted between others.

use std::time::Duration;

use hivekeep_kernel::SessionId;
use hivekeep_ports::{OwnedSnapshot, WorkspaceForks};
use hivekeep_testkit::context;
use serde_json::json;

use super::stage::Stage;
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
    let refused = forks.fork(&cx, &of(stranger), "f").await.unwrap_err();
    assert_eq!(refused.code, "not_owner");
    let fork = forks.fork(&cx, &of(stage.session), "f").await.unwrap();
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
