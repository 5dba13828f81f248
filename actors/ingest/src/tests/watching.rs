//! Collections that are watched.

use hivekeep_kernel::{SessionId, User};
use hivekeep_testkit::{FakeUsers, eventually};
use serde_json::{Value, json};

use super::{
    places::FolderPlaces,
    stage::{Stage, code},
};
use crate::Options;

async fn watch(stage: &Stage) -> Value {
    stage.ingest(json!({ "watch": true })).await.expect("ingests")
}

/// Edits, removes and adds a file, and waits until that is in the answers.
async fn follows(stage: &Stage, mark: &str) {
    stage.write("edited.md", &format!("edited{mark}\n"));
    stage.write(&format!("new/{mark}.md"), &format!("added{mark}\n"));
    let _there = std::fs::remove_file(stage.path("removed.md"));
    eventually("what changed is found", async || {
        stage.with_words(&format!("edited{mark}")).await == ["edited.md"]
            && stage.with_words(&format!("added{mark}")).await == [format!("new/{mark}.md")]
            && stage.with_words("removed").await.is_empty()
    })
    .await;
}

fn begin(stage: &Stage) {
    stage.write("edited.md", "before\n");
    stage.write("removed.md", "removed\n");
}

#[tokio::test]
async fn an_edit_a_removal_and_a_new_file_are_in_the_answers_also_after_a_crash() {
    let mut stage = Stage::new(Options::default()).await;
    begin(&stage);
    let first = watch(&stage).await;
    assert_eq!((&first["watching"], &first["embedded"]), (&json!(true), &json!(2)), "{first}");
    follows(&stage, "one").await;
    let row = stage.listed().await;
    assert_eq!(
        (&row["running"]["watching"], &row["running"]["path"]),
        (&json!(true), &json!("docs:."))
    );
    stage = stage.crashed().await;
    follows(&stage, "two").await;
    // What is renamed while nobody runs is found, too.
    std::fs::rename(stage.path("new/two.md"), stage.path("new/moved.md")).expect("renamed");
    stage = stage.crashed().await;
    eventually("it is found by its new name", async || {
        stage.with_words("addedtwo").await == ["new/moved.md"]
    })
    .await;
    // The last file may go, and its folder is not the place.
    for name in ["edited.md", "new/one.md", "new/moved.md"] {
        stage.remove(name);
    }
    eventually("nothing is left", async || stage.listed().await["points_count"] == 0).await;
    assert_eq!(stage.listed().await["running"]["watching"], true);
    // Each text was embedded once.
    let given = stage.model.given.lock().expect("not poisoned").clone();
    assert!(given.values().all(|times| *times == 1), "{given:?}");
}

#[tokio::test]
async fn what_tells_of_nothing_is_looked_at_from_time_to_time() {
    let options = Options { poll_secs: 1, ..Options::default() };
    let users = FakeUsers::all(User::Uid(7));
    let stage = Stage::of_places(options, users, FolderPlaces::quiet).await;
    begin(&stage);
    watch(&stage).await;
    follows(&stage, "one").await;
    eventually("it says how", async || {
        stage.listed().await["running"]["waits"] == "by a look every 1 s"
    })
    .await;
}

#[tokio::test]
async fn a_watched_collection_has_no_other_ingestion_until_that_is_ended() {
    let stage = Stage::new(Options { max_watched: 1, ..Options::default() }).await;
    begin(&stage);
    watch(&stage).await;
    assert_eq!(watch(&stage).await["watching"], true, "it is told as it is");
    assert_eq!(code(stage.ingest(json!({})).await), "ingestion_running");
    let more = json!({ "watch": true, "collection": "more" });
    assert_eq!(code(stage.ingest(more).await), "busy");
    // It does not take the place of one that does not watch.
    stage.ingest(json!({ "collection": "once" })).await.expect("ingests");
    stage.write("late.md", "late\n");
    let last = stage.ingest(json!({ "watch": false })).await.expect("ends, and ingests");
    assert_eq!((&last["watching"], &last["chunks"]), (&json!(false), &json!(3)), "{last}");
    let row = stage.listed().await;
    assert!(row["running"].is_null() && row["last_error"].is_null(), "{row}");
    stage.ingest(json!({ "watch": false })).await.expect("nothing is watched");
    let stage = stage.crashed().await;
    assert!(stage.listed().await["running"].is_null(), "nothing goes on");
}

#[tokio::test]
async fn one_user_watches_half_of_what_may_be_and_leaves_the_rest_to_others() {
    let other = SessionId::new();
    let users = FakeUsers::all(User::Uid(7)).and(other, User::Uid(8));
    let mut stage = Stage::of_users(Options { max_watched: 2, ..Options::default() }, users).await;
    begin(&stage);
    watch(&stage).await;
    stage = stage.crashed().await;
    let more = || json!({ "path": ".", "watch": true, "collection": "more" });
    let refused = stage.rig.call("rag_ingest", more()).await.expect_err("half is held");
    assert_eq!((&*refused.code, &refused.details["share"]), ("busy", &json!("ingest.max_watched")));
    stage.call_as(other, "rag_ingest", more()).await.expect("another user's");
    stage.ingest(json!({ "watch": false })).await.expect("ends, and ingests");
    stage.rig.call("rag_ingest", more()).await.expect("its place is free again");
}

#[tokio::test]
async fn a_watch_ends_with_its_user() {
    let stage = Stage::new(Options::default()).await;
    begin(&stage);
    watch(&stage).await;
    let before = stage.model.embedded();
    stage.gone.set(User::Uid(7));
    stage.write("late.md", "late\n");
    eventually("nothing runs", async || stage.listed().await["running"].is_null()).await;
    assert_eq!(stage.model.embedded(), before, "nothing of it is embedded");
    let stage = stage.crashed().await;
    assert!(stage.listed().await["running"].is_null());
}

#[tokio::test]
async fn a_first_round_that_fails_ends_it_and_a_later_one_does_not() {
    use std::sync::atomic::Ordering::SeqCst;
    let stage = Stage::new(Options { max_chunks: 3, ..Options::default() }).await;
    for name in ["a", "b", "c", "d"] {
        stage.write(&format!("{name}.md"), &format!("{name}\n"));
    }
    assert_eq!(code(stage.ingest(json!({ "watch": true })).await), "ingestion_too_large");
    assert!(stage.listed().await["running"].is_null());
    stage.remove("d.md");
    watch(&stage).await;
    stage.model.configured.store(false, SeqCst);
    stage.write("a.md", "alpha\n");
    eventually("the error is told", async || {
        let row = stage.listed().await;
        row["last_error"]["code"] == "embedder_not_configured" && row["running"]["watching"] == true
    })
    .await;
    stage.model.configured.store(true, SeqCst);
    stage.write("b.md", "beta\n");
    eventually("it went on", async || stage.with_words("beta").await == ["b.md"]).await;
    assert_eq!(stage.with_words("alpha").await, ["a.md"]);
}
