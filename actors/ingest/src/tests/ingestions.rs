//! What an ingestion does to a collection.

use std::{os::unix::fs::PermissionsExt, sync::atomic::Ordering::SeqCst, time::Duration};

use hivekeep_kernel::{SessionId, User};
use hivekeep_testkit::{FakeUsers, eventually};
use serde_json::json;

use super::stage::{Stage, code, sources};
use crate::Options;

#[tokio::test]
async fn what_is_edited_moved_or_removed_leaves_nothing_stale() {
    let stage = Stage::new(Options::default()).await;
    stage.write("a.md", "# One\n\nalpha alpha\n\n# Two\n\nbeta beta\n");
    stage.write("deep/b.md", "gamma gamma\n");
    let first = stage.ingest(json!({})).await.expect("ingests");
    assert_eq!(
        (&first["files"], &first["chunks"], &first["embedded"]),
        (&json!(2), &json!(3), &json!(3))
    );
    assert_eq!(first["success"], true);
    // Nothing has changed.
    assert_eq!(stage.ingest(json!({})).await.expect("ingests")["embedded"], 0);
    // A section before the others moves them, and they keep their vectors.
    stage.write("a.md", "# New\n\nomega omega\n\n# One\n\nalpha alpha\n\n# Two\n\nbetas betas\n");
    let second = stage.ingest(json!({})).await.expect("ingests");
    assert_eq!((&second["embedded"], &second["removed"]), (&json!(2), &json!(1)), "{second}");
    let found = stage.ask(json!({ "question": "alpha", "mode": "bm25" })).await.expect("asked");
    let row = &found["results"][0];
    assert_eq!(
        (&row["chunkIndex"], &row["line"], &row["section"]),
        (&json!(1), &json!(5), &json!("One"))
    );
    stage.remove("deep/b.md");
    let third = stage.ingest(json!({})).await.expect("ingests");
    assert_eq!((&third["embedded"], &third["removed"]), (&json!(0), &json!(1)));
    assert_eq!(stage.listed().await["points_count"], 3);
    let found = stage.ask(json!({ "question": "gamma", "mode": "bm25" })).await.expect("asked");
    assert!(sources(&found).is_empty());
    assert_eq!(found["context"], "");
}

#[tokio::test]
async fn a_folder_removes_what_is_below_it_alone_and_a_single_file_makes_its_collection() {
    let stage = Stage::new(Options::default()).await;
    stage.write("a/one.md", "alpha\n");
    stage.write("ab/two.md", "beta\n");
    let single = json!({ "path": "a/one.md", "collection": "c" });
    assert_eq!(stage.ingest(single).await.expect("ingests")["chunks"], 1);
    stage.ingest(json!({ "path": "/ab/", "collection": "c" })).await.expect("ingests");
    assert_eq!(stage.listed().await["points_count"], 2);
    // The same file by its folder is the same file.
    let again = stage.ingest(json!({ "path": "a", "collection": "c" })).await.expect("ingests");
    assert_eq!(stage.listed().await["points_count"], 2, "{again}");
    stage.remove("a/one.md");
    stage.write("a/other.md", "gamma\n");
    stage.ingest(json!({ "path": "./a", "collection": "c" })).await.expect("ingests");
    let all = stage
        .ask(json!({ "question": "alpha beta gamma", "collection": "c" }))
        .await
        .expect("asked");
    let mut found = sources(&all);
    found.sort_unstable();
    assert_eq!(found, ["other.md", "two.md"]);
}

#[tokio::test]
async fn an_ingestion_anew_that_finds_nothing_empties_nothing() {
    let stage = Stage::new(Options::default()).await;
    stage.write("a.md", "alpha\n");
    stage.ingest(json!({})).await.expect("ingests");
    let wrong = json!({ "path": "no such folder", "recreate": true });
    assert_eq!(code(stage.ingest(wrong).await), "ingestion_path_refused");
    assert_eq!(stage.listed().await["points_count"], 1);
}

#[tokio::test]
async fn a_file_that_fails_is_named_and_keeps_what_it_has() {
    let stage = Stage::new(Options { max_file_kb: 1, ..Options::default() }).await;
    stage.write("a.md", "alpha\n");
    stage.write("b.md", "beta\n");
    stage.ingest(json!({})).await.expect("ingests");
    stage.write("a.md", &"alpha ".repeat(400));
    stage.write("c.pdf", "%PDF");
    stage.write("d.bin", "\0");
    let done = stage.ingest(json!({})).await.expect("ingests");
    assert_eq!(
        (&done["failed_count"], &done["skipped"], &done["removed"]),
        (&json!(2), &json!(1), &json!(0)),
        "{done}"
    );
    let failed: Vec<_> =
        done["failed"].as_array().expect("a list").iter().map(|it| it["path"].as_str()).collect();
    assert_eq!(failed, [Some("a.md"), Some("c.pdf")]);
    assert_eq!(stage.listed().await["points_count"], 2);
    std::fs::set_permissions(stage.path("b.md"), std::fs::Permissions::from_mode(0o600))
        .expect("set");
}

#[tokio::test]
async fn what_is_skipped_or_read_in_part_is_named() {
    let stage = Stage::new(Options::default()).await;
    let write = |name: &str, bytes: &[u8]| std::fs::write(stage.path(name), bytes).expect("writes");
    write("a.html", b"<meta charset=windows-1251><p>\xcf\xf0\xe8\xe2\xe5\xf2</p>");
    write("b.md", b"\xef\xbb\xbf# One\n\nalpha\n");
    write("c.bin", b"\0");
    write("d.txt", b"\xff\xff");
    write("e.html", b"<meta charset=shift_jis><p>half \x93");
    write("f.md", b" ");
    let done = stage.ingest(json!({})).await.expect("ingests");
    assert_eq!((&done["files"], &done["skipped"]), (&json!(3), &json!(3)), "{done}");
    let named: Vec<_> = done["left_out"].as_array().expect("a list").iter().collect();
    let path = |it: &&serde_json::Value| it["path"].as_str().expect("one").to_owned();
    assert_eq!(named.iter().map(path).collect::<Vec<_>>(), ["c.bin", "d.txt", "e.html", "f.md"]);
    assert!(named.iter().all(|it| it["why"].as_str().is_some_and(|why| !why.is_empty())), "{done}");
    assert_eq!(stage.with_words("Привет").await, ["a.html"]);
    let found = stage.ask(json!({ "question": "alpha", "mode": "bm25" })).await.expect("asked");
    assert_eq!(found["results"][0]["section"], "One", "a mark hides no heading");
}

#[tokio::test]
async fn one_users_ingestions_leave_half_of_the_places_to_others() {
    let other = SessionId::new();
    let users = FakeUsers::all(User::Uid(7)).and(other, User::Uid(8));
    let options = Options { max_running: 2, ..Options::default() };
    let stage = Stage::of_users(options, users).await;
    stage.write("a.md", "alpha\n");
    stage.model.gate.forget_permits(100_000);
    let limit = Duration::from_secs(60);
    let begin = |session, name: &str| {
        let input = json!({ "path": ".", "collection": name });
        stage.rig.begin_as(session, "rag_ingest", input, limit)
    };
    let mut own = begin(stage.rig.session, "one");
    own.progress.recv().await.expect("it runs");
    let refused = begin(stage.rig.session, "two").answer().await.expect_err("half is held");
    assert_eq!((&*refused.code, &refused.details["share"]), ("busy", &json!("ingest.max_running")));
    let mut theirs = begin(other, "one");
    theirs.progress.recv().await.expect("it runs, too");
    stage.model.gate.add_permits(100);
    own.answer().await.expect("ingests");
    theirs.answer().await.expect("ingests");
}

#[tokio::test]
async fn nothing_is_embedded_for_a_disk_that_is_nearly_full() {
    let stage = Stage::new(Options::default()).await;
    stage.write("a.md", "alpha\n");
    stage.free.store(999, SeqCst);
    assert_eq!(code(stage.ingest(json!({})).await), "host_disk_full");
    assert_eq!(stage.model.embedded(), 0);
    stage.free.store(1_000, SeqCst);
    assert_eq!(stage.ingest(json!({})).await.expect("ingests")["embedded"], 1);
}

#[tokio::test]
async fn refusals_name_what_to_do() {
    let stage =
        Stage::new(Options { max_chunks: 3, max_collections: 1, ..Options::default() }).await;
    assert_eq!(code(stage.ingest(json!({})).await), "nothing_to_ingest");
    assert_eq!(code(stage.ingest(json!({ "path": "../x" })).await), "ingestion_path_refused");
    assert_eq!(code(stage.ingest(json!({ "place": "session" })).await), "place_unknown");
    assert_eq!(code(stage.ingest(json!({ "collection": "a b" })).await), "invalid_input");
    assert_eq!(code(stage.ask(json!({ "question": "x" })).await), "collection_not_found");
    stage.write("a.md", "alpha\n");
    stage.model.configured.store(false, SeqCst);
    assert_eq!(code(stage.ingest(json!({})).await), "embedder_not_configured");
    assert!(
        stage.rig.call("rag_collections", json!({})).await.expect("lists")["collections"]
            .as_array()
            .expect("a list")
            .is_empty()
    );
    stage.model.configured.store(true, SeqCst);
    stage.ingest(json!({})).await.expect("ingests");
    assert_eq!(code(stage.ingest(json!({ "collection": "b" })).await), "too_many_collections");
    for name in ["b", "c", "d"] {
        stage.write(&format!("{name}.md"), "text\n");
    }
    assert_eq!(code(stage.ingest(json!({})).await), "ingestion_too_large");
    assert_eq!(stage.listed().await["last_error"]["code"], "ingestion_too_large");
    assert_eq!(code(stage.ask(json!({ "question": " " })).await), "invalid_input");
}

#[tokio::test]
async fn another_model_is_refused_until_the_collection_is_made_anew() {
    let stage = Stage::new(Options::default()).await;
    stage.write("a.md", "alpha\n");
    stage.ingest(json!({})).await.expect("ingests");
    *stage.model.name.lock().expect("not poisoned") = "other";
    let before = stage.model.embedded();
    assert_eq!(code(stage.ingest(json!({})).await), "embedder_mismatch");
    assert_eq!(code(stage.ask(json!({ "question": "alpha" })).await), "embedder_mismatch");
    assert_eq!(stage.model.embedded(), before, "it was not asked");
    stage.ask(json!({ "question": "alpha", "mode": "bm25" })).await.expect("words need no model");
    let done = stage.ingest(json!({ "recreate": true })).await.expect("ingests");
    assert_eq!(done["embedded"], 1);
    assert_eq!(stage.listed().await["model"], "fake/other");
    stage.ask(json!({ "question": "alpha" })).await.expect("asked");
}

#[tokio::test]
async fn a_crash_costs_the_batch_in_flight_alone() {
    let mut stage = Stage::new(Options::default()).await;
    for at in 0..200 {
        stage.write(&format!("{at}.md"), &format!("number {at}\n"));
    }
    stage.model.gate.forget_permits(100_000);
    stage.model.gate.add_permits(2);
    let _call = stage.rig.begin_as(
        stage.rig.session,
        "rag_ingest",
        json!({ "path": "." }),
        Duration::from_secs(60),
    );
    eventually("two batches are embedded", async || stage.model.embedded() == 128).await;
    stage = stage.crashed().await;
    stage.model.gate.add_permits(100);
    eventually("it went on by itself", async || {
        let row = stage.listed().await;
        row["running"].is_null() && row["points_count"] == 200
    })
    .await;
    let given = stage.model.given.lock().expect("not poisoned").clone();
    assert_eq!(given.len(), 200);
    let again: u32 = given.values().map(|times| times - 1).sum();
    assert!(again <= 64, "{again}");
    // What is there is read from its file.
    let found = stage
        .ask(json!({ "question": "number 77", "mode": "bm25", "topK": 1 }))
        .await
        .expect("asked");
    assert_eq!(sources(&found), ["77.md"]);
}

#[tokio::test]
async fn a_cancelled_call_stops_its_ingestion_and_keeps_what_is_done() {
    let stage = Stage::new(Options::default()).await;
    for at in 0..100 {
        stage.write(&format!("{at}.md"), &format!("number {at}\n"));
    }
    stage.model.gate.forget_permits(100_000);
    stage.model.gate.add_permits(1);
    let input = json!({ "path": "." });
    let call =
        stage.rig.begin_as(stage.rig.session, "rag_ingest", input.clone(), Duration::from_secs(60));
    eventually("a batch is written", async || stage.listed().await["points_count"] == 64).await;
    // The same call follows it, another is refused.
    let mut same =
        stage.rig.begin_as(stage.rig.session, "rag_ingest", input.clone(), Duration::from_secs(60));
    same.progress.recv().await.expect("it follows");
    assert_eq!(code(stage.ingest(json!({ "recreate": true })).await), "ingestion_running");
    call.cancel.cancel();
    assert_eq!(code(call.answer().await), "cancelled");
    assert_eq!(code(same.answer().await), "cancelled");
    assert_eq!(stage.listed().await["points_count"], 64);
    stage.model.gate.add_permits(100);
    let done = stage.ingest(json!({})).await.expect("it goes on");
    assert_eq!((&done["embedded"], &done["chunks"]), (&json!(36), &json!(100)));
}

#[tokio::test]
async fn progress_is_told() {
    let stage = Stage::new(Options::default()).await;
    for at in 0..150 {
        stage.write(&format!("{at}.md"), &format!("number {at}\n"));
    }
    let input = json!({ "path": "." });
    let mut call =
        stage.rig.begin_as(stage.rig.session, "rag_ingest", input, Duration::from_secs(60));
    let told = call.progress.recv().await.expect("something is told");
    assert_eq!(told.total, Some(150.0));
    assert!(told.message.contains("of 150 files"), "{}", told.message);
    call.answer().await.expect("ingests");
}
