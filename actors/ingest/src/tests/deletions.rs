//! Removal of collections.

use std::time::Duration;

use hivekeep_kernel::{SessionId, User};
use hivekeep_testkit::{FakeUsers, eventually};
use serde_json::{Value, json};

use super::stage::{Stage, code};
use crate::Options;

fn default() -> Value {
    json!({ "collection": "hostuk-docs" })
}

#[tokio::test]
async fn a_deleted_collection_is_gone_and_its_name_free() {
    let other = SessionId::new();
    let users = FakeUsers::all(User::Uid(7)).and(other, User::Uid(8));
    let stage = Stage::of_users(Options { max_collections: 1, ..Options::default() }, users).await;
    assert_eq!(code(stage.rig.call("rag_delete", default()).await), "collection_not_found");
    stage.write("a.md", "alpha\n");
    stage.ingest(json!({})).await.expect("ingests");
    let foreign = stage.rig.begin_as(other, "rag_delete", default(), Duration::from_secs(60));
    assert_eq!(code(foreign.answer().await), "collection_not_found");
    assert_eq!(stage.listed().await["points_count"], 1);
    stage.rig.call("rag_delete", default()).await.expect("deleted");
    assert_eq!(code(stage.ask(json!({ "question": "alpha" })).await), "collection_not_found");
    let points = stage.rig.daemon.folders.state.join("ingest");
    assert_eq!(std::fs::read_dir(&points).expect("a folder").count(), 0, "its files are gone");
    let stage = stage.crashed().await;
    assert!(stage.listed().await.is_null());
    // Of another model, too: nothing is known of it any more.
    *stage.model.name.lock().expect("not poisoned") = "other";
    assert_eq!(stage.ingest(json!({})).await.expect("ingests")["embedded"], 1);
}

#[tokio::test]
async fn what_writes_it_ends_first() {
    let stage = Stage::new(Options::default()).await;
    for at in 0..100 {
        stage.write(&format!("{at}.md"), &format!("number {at}\n"));
    }
    stage.model.gate.forget_permits(100_000);
    stage.model.gate.add_permits(1);
    let input = json!({ "path": "." });
    let call = stage.rig.begin_as(stage.rig.session, "rag_ingest", input, Duration::from_secs(60));
    eventually("a batch is written", async || stage.listed().await["points_count"] == 64).await;
    stage.rig.call("rag_delete", default()).await.expect("deleted");
    assert_eq!(code(call.answer().await), "cancelled");
    assert!(stage.listed().await.is_null());
    stage.model.gate.add_permits(100);
    stage.ingest(json!({ "watch": true })).await.expect("ingests");
    stage.rig.call("rag_delete", default()).await.expect("deleted");
    assert!(stage.listed().await.is_null(), "it is watched no longer");
}
