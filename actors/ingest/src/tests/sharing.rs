//! Collections that are given to workspaces.

use hivekeep_kernel::{SessionId, User};
use hivekeep_testkit::FakeUsers;
use serde_json::json;

use super::stage::{Stage, code, sources};
use crate::Options;

fn question() -> serde_json::Value {
    json!({ "question": "alpha", "mode": "bm25" })
}

#[tokio::test]
async fn whoever_owns_the_workspace_reads_and_nothing_else() {
    let (reader, stranger) = (SessionId::new(), SessionId::new());
    let users = FakeUsers::all(User::Uid(7)).and(reader, User::Uid(8)).and(stranger, User::Uid(8));
    let stage = Stage::of_users(Options::default(), users).await;
    stage.write("a.md", "alpha\n");
    stage.ingest(json!({})).await.expect("ingests");
    stage.owners.give("member", reader);
    let share = |take_back: bool| json!({ "collection": "hostuk-docs", "workspaces": ["member"], "take_back": take_back });
    let unknown = json!({ "collection": "hostuk-docs", "workspaces": ["nobody"] });
    assert_eq!(code(stage.rig.call("rag_share", unknown).await), "workspace_not_found");
    // Only the owner gives.
    let theirs = stage.call_as(reader, "rag_share", share(false)).await;
    assert_eq!(code(theirs), "collection_not_found");
    stage.rig.call("rag_share", share(false)).await.expect("shared");
    stage.rig.call("rag_share", share(false)).await.expect("it is already");
    let found = stage.call_as(reader, "rag_query", question()).await.expect("read");
    assert_eq!(sources(&found), ["a.md"]);
    assert_eq!(
        code(stage.call_as(stranger, "rag_query", question()).await),
        "collection_not_found"
    );
    let listed = stage.call_as(reader, "rag_collections", json!({})).await.expect("lists");
    let row = &listed["collections"][0];
    assert_eq!((&row["name"], &row["given_by"]), (&json!("hostuk-docs"), &json!("uid:7")), "{row}");
    let by_id = json!({ "question": "alpha", "mode": "bm25", "collection": row["id"] });
    assert_eq!(sources(&stage.call_as(reader, "rag_query", by_id).await.expect("read")), ["a.md"]);
    let none = stage.call_as(stranger, "rag_collections", json!({})).await.expect("lists");
    assert_eq!(none["collections"], json!([]));
    // It is read, and nothing else.
    let gone = json!({ "collection": "hostuk-docs" });
    assert_eq!(code(stage.call_as(reader, "rag_delete", gone).await), "collection_not_found");
    let own = json!({ "path": "." });
    stage.call_as(reader, "rag_ingest", own).await.expect("one of its own, of that name");
    assert_eq!(stage.listed().await["given_to"].as_array().expect("a list").len(), 1);
    // Whoever adopts the workspace reads, also after a crash; and then nobody any more.
    stage.owners.give("member", stranger);
    let stage = stage.crashed().await;
    let by_id = json!({ "question": "alpha", "mode": "bm25", "collection": row["id"] });
    stage.call_as(stranger, "rag_query", by_id.clone()).await.expect("read");
    assert_eq!(
        code(stage.call_as(reader, "rag_query", by_id.clone()).await),
        "collection_not_found"
    );
    stage.rig.call("rag_share", share(true)).await.expect("taken back");
    assert_eq!(code(stage.call_as(stranger, "rag_query", by_id).await), "collection_not_found");
    assert!(stage.listed().await["given_to"].is_null());
}

#[tokio::test]
async fn a_name_that_two_have_given_needs_an_id() {
    let (reader, other) = (SessionId::new(), SessionId::new());
    let users = FakeUsers::all(User::Uid(7)).and(reader, User::Uid(8)).and(other, User::Uid(9));
    let stage = Stage::of_users(Options::default(), users).await;
    stage.write("a.md", "alpha\n");
    stage.owners.give("member", reader);
    let share = json!({ "collection": "hostuk-docs", "workspaces": ["member"] });
    for session in [stage.rig.session, other] {
        stage.call_as(session, "rag_ingest", json!({ "path": "." })).await.expect("ingests");
        stage.call_as(session, "rag_share", share.clone()).await.expect("shared");
    }
    assert_eq!(code(stage.call_as(reader, "rag_query", question()).await), "collection_ambiguous");
    let listed = stage.call_as(reader, "rag_collections", json!({})).await.expect("lists");
    for row in listed["collections"].as_array().expect("a list") {
        let by_id = json!({ "question": "alpha", "mode": "bm25", "collection": row["id"] });
        stage.call_as(reader, "rag_query", by_id).await.expect("read");
    }
}
