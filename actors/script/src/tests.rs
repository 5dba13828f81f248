//! The script tools over a real journal, for two users.

use std::sync::Arc;

use hivekeep_kernel::{SessionId, ToolError, User};
use hivekeep_ports::LateTools;
use hivekeep_testkit::{FakeUsers, Rig, RigServices};
use serde_json::{Value, json};
use tokio::time::Duration;

use crate::{Options, ScriptFamily};

/// The rig's session is the first user's, the other one the second's, whose tier allows one script;
/// one is over.
struct Stage {
    rig: Rig<ScriptFamily>,
    other: SessionId,
    over: SessionId,
}

impl Stage {
    async fn new(options: Options) -> Self {
        let (other, over) = (SessionId::new(), SessionId::new());
        let users = FakeUsers::all(User::Uid(0)).and(other, User::Uid(1)).over(over);
        let services = RigServices {
            sessions: Arc::new(users.allowed(User::Uid(1), "scripts", 1)),
            tools: Arc::new(LateTools::default()),
            offer: Arc::new(|_| ()),
        };
        Self { rig: Rig::new(options, services).await, other, over }
    }

    async fn call(&self, tool: &str, args: Value) -> Result<Value, ToolError> {
        self.rig.call(&format!("aegis.script.{tool}"), args).await
    }

    async fn as_session(
        &self,
        session: SessionId,
        tool: &str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let limit = Duration::from_secs(60);
        self.rig.begin_as(session, &format!("aegis.script.{tool}"), args, limit).answer().await
    }

    async fn good(&self, tool: &str, args: Value) -> Value {
        self.call(tool, args).await.unwrap_or_else(|error| panic!("{tool}: {error}"))
    }

    async fn refused(&self, tool: &str, args: Value) -> String {
        self.call(tool, args).await.expect_err(tool).code.into_owned()
    }

    async fn names(&self, args: Value) -> Vec<String> {
        let listed = self.good("list", args).await;
        let rows = listed["scripts"].as_array().expect("a list").iter();
        rows.map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
    }
}

#[tokio::test]
async fn every_version_is_had_again_also_after_a_crash() {
    let mut stage = Stage::new(Options::default()).await;
    let first =
        json!({ "name": "sum", "code": "1", "tags": ["b", "a", "b"], "description": "Adds" });
    let saved = stage.good("save", first).await;
    assert_eq!((&saved["version"], &saved["tags"]), (&json!(1), &json!(["a", "b"])));
    let id = saved["id"].clone();
    let second = json!({ "id": "sum", "name": "total", "code": "\u{1}".repeat(200 * 1024) });
    assert_eq!(stage.good("update", second).await["version"], 2);
    stage.rig = stage.rig.crashed().await;
    let newest = stage.good("get", json!({ "id": "total" })).await;
    assert_eq!(
        (newest["version"].as_u64(), newest["description"].as_str()),
        (Some(2), Some("Adds"))
    );
    assert_eq!(newest["code"].as_str().map(str::len), Some(200 * 1024));
    assert_eq!(newest["versions"][0]["name"], "sum");
    let old = stage.good("get", json!({ "id": id, "version": 1 })).await;
    assert_eq!((old["code"].as_str(), old["name"].as_str()), (Some("1"), Some("sum")));
    for version in [0, 3] {
        let asked = json!({ "id": id, "version": version });
        assert_eq!(stage.refused("get", asked).await, "script_version_not_found");
    }
}

#[tokio::test]
async fn a_library_is_its_users_alone() {
    let stage = Stage::new(Options::default()).await;
    let id = stage.good("save", json!({ "name": "mine", "code": "1" })).await["id"].clone();
    let change = json!({ "id": id, "name": "x", "code": "2" });
    for (tool, args) in
        [("get", json!({ "id": id })), ("update", change), ("delete", json!({ "id": id }))]
    {
        let refused = stage.as_session(stage.other, tool, args).await.expect_err(tool);
        assert_eq!(refused.code, "script_not_found", "{tool}");
    }
    let listed = stage.as_session(stage.other, "list", json!({})).await.expect("listed");
    assert_eq!(listed["total"], 0);
    let same_name = json!({ "name": "mine", "code": "1" });
    stage.as_session(stage.other, "save", same_name).await.expect("a library of its own");
    let over = stage.as_session(stage.over, "list", json!({})).await.expect_err("over");
    assert_eq!(over.code, "session_ended");
}

#[tokio::test]
async fn a_name_is_taken_once_and_free_when_deleted() {
    let stage = Stage::new(Options::default()).await;
    let id = stage.good("save", json!({ "name": "a", "code": "1" })).await["id"].clone();
    stage.good("save", json!({ "name": "b", "code": "1" })).await;
    assert_eq!(stage.refused("save", json!({ "name": "a", "code": "2" })).await, "name_taken");
    let rename = json!({ "id": "b", "name": "a", "code": "2" });
    assert_eq!(stage.refused("update", rename).await, "name_taken");
    stage.good("delete", json!({ "id": "a" })).await;
    assert_eq!(stage.refused("delete", json!({ "id": id })).await, "script_not_found");
    let change = json!({ "id": id, "name": "a", "code": "2" });
    assert_eq!(stage.refused("update", change).await, "script_not_found");
    assert_eq!(stage.refused("get", json!({ "id": "a" })).await, "script_not_found");
    let kept = stage.good("get", json!({ "id": id })).await;
    assert!(kept["deleted_at"].is_string() && kept["code"] == "1", "{kept}");
    stage.good("save", json!({ "name": "a", "code": "3" })).await;
    assert_eq!(stage.names(json!({})).await, ["a", "b"]);
}

#[tokio::test]
async fn a_list_is_filtered_and_goes_on_to_its_end() {
    let stage = Stage::new(Options::default()).await;
    for (name, tag, description) in [
        ("Backup", "ops", "copies disks"),
        ("clean", "ops", "removes"),
        ("zip", "x", "BACKUP of files"),
    ] {
        let script =
            json!({ "name": name, "code": "1", "tags": [tag], "description": description });
        stage.good("save", script).await;
    }
    assert_eq!(stage.names(json!({ "tag": "ops" })).await, ["Backup", "clean"]);
    assert_eq!(stage.names(json!({ "q": "backup" })).await, ["Backup", "zip"]);
    let page = stage.good("list", json!({ "limit": 2 })).await;
    assert_eq!((&page["next"], &page["total"]), (&json!("clean"), &json!(3)));
    assert_eq!(stage.names(json!({ "limit": 2, "after": "clean" })).await, ["zip"]);
}

#[tokio::test]
async fn a_full_library_gives_up_deleted_scripts_only() {
    let mut stage = Stage::new(Options { max_scripts: 3, max_library_mb: 1 }).await;
    let code = "x".repeat(256 * 1024);
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(stage.good("save", json!({ "name": name, "code": code })).await["id"].clone());
    }
    assert_eq!(
        stage.refused("save", json!({ "name": "d", "code": "1" })).await,
        "script_library_full"
    );
    stage.good("update", json!({ "id": "c", "name": "c", "code": code })).await;
    let more = json!({ "id": "c", "name": "c", "code": "1" });
    assert_eq!(stage.refused("update", more.clone()).await, "script_library_full");
    stage.good("delete", json!({ "id": "a" })).await;
    stage.good("delete", json!({ "id": "b" })).await;
    assert_eq!(stage.good("update", more).await["version"], 3);
    assert_eq!(stage.refused("get", json!({ "id": ids[0] })).await, "script_not_found");
    stage.good("get", json!({ "id": ids[1] })).await;
    stage.rig = stage.rig.crashed().await;
    assert_eq!(stage.refused("get", json!({ "id": ids[0] })).await, "script_not_found");
    stage.good("get", json!({ "id": ids[1] })).await;
}

#[tokio::test]
async fn limits_are_bytes_and_one_name_is_given_once() {
    let stage = Stage::new(Options::default()).await;
    let long = json!({ "name": "ä".repeat(65), "code": "1" });
    assert_eq!(stage.refused("save", long).await, "too_large");
    let code = json!({ "name": "a", "code": "ä".repeat(128 * 1024 + 1) });
    assert_eq!(stage.refused("save", code).await, "too_large");
    let many = (0..16).map(|_| stage.call("save", json!({ "name": "same", "code": "1" })));
    let saved = futures::future::join_all(many).await;
    assert_eq!(saved.iter().filter(|saved| saved.is_ok()).count(), 1);
}

#[tokio::test]
async fn a_tier_bounds_its_users_scripts_and_nobody_elses() {
    let stage = Stage::new(Options::default()).await;
    let save = async |name: &str| {
        stage.as_session(stage.other, "save", json!({ "name": name, "code": "1" })).await
    };
    save("one").await.expect("the first");
    let refused = save("two").await.expect_err("the tier allows one");
    assert_eq!(refused.code, "script_library_full");
    for name in ["one", "two"] {
        stage.good("save", json!({ "name": name, "code": "1" })).await;
    }
}
