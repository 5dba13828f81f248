//! Ingestions from the places of a session: its own workspace, another of its workspaces, a volume, and what is
//! another session's.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    counter::Counter,
    house::{House, PATIENCE},
};

fn ingest(place: &str, path: &str, more: Value) -> Value {
    let mut args = json!({ "place": place, "path": path, "collection": "all" });
    args.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
    args
}

/// Sources with a word, by name.
fn with_word(house: &House, word: &str) -> Vec<String> {
    let args = json!({ "collection": "all", "question": word, "mode": "bm25" });
    let found = house.call("rag_query", args);
    let rows = found["results"].as_array().expect("rows").iter();
    let mut sources: Vec<_> =
        rows.map(|row| row["source"].as_str().expect("one").to_owned()).collect();
    sources.sort();
    sources
}

fn eventually(house: &House, what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < PATIENCE, "{what}\n{}", house.stderr());
        std::thread::sleep(Duration::from_millis(100));
    }
}

pub fn every_workspace_of_a_session_is_ingested(mut house: House, counter: &Counter) {
    house.create("w");
    house.exec(
        "w",
        "mkdir -p /workspace/docs/deep && cd /workspace/docs && echo walrus > a.md && \
         echo heron > deep/b.txt && head -c 4096 /dev/urandom > c.bin && echo hidden > .secret && \
         ln -s /etc/hostname link.md && echo %PDF > bad.pdf",
    );
    let plain = include_str!("../../it/knowledge/plain.pdf");
    house.call("fs.write", json!({ "place": "w", "path": "docs/plain.pdf", "content": plain }));
    let done = house.call("rag_ingest", ingest("w", "docs", json!({})));
    assert_eq!(
        (&done["place"], &done["files"], &done["failed_count"]),
        (&json!("w"), &json!(4), &json!(1)),
        "{done}"
    );
    assert!(done["failed"][0]["why"].as_str().is_some_and(|why| why.contains("PDF")), "{done}");
    assert_eq!(with_word(&house, "pelican"), ["plain.pdf"]);
    assert_eq!(with_word(&house, "walrus"), ["a.md"]);
    assert_eq!(with_word(&house, "heron"), ["deep/b.txt"]);
    assert!(with_word(&house, "hidden").is_empty());
    // By its whole path it is the same, and what went is gone.
    house.exec("w", "rm /workspace/docs/a.md && echo egret > /workspace/docs/d.md");
    let again = house.call("rag_ingest", ingest("w", "/workspace/docs", json!({})));
    assert_eq!((&again["embedded"], &again["removed"]), (&json!(1), &json!(1)), "{again}");
    // The session's own workspace, which has a file of that path too, is another.
    house.call("fs.write", json!({ "path": "docs/d.md", "content": "puffin", "place": "session" }));
    let own = house.call("rag_ingest", ingest("session", "docs", json!({})));
    assert_eq!(
        (&own["place"], &own["embedded"], &own["removed"]),
        (&json!("session"), &json!(1), &json!(0))
    );
    assert_eq!(
        (with_word(&house, "egret"), with_word(&house, "puffin")),
        (vec!["d.md".to_owned()], vec!["d.md".to_owned()])
    );
    // Another session has neither.
    let other = house.attach();
    let refused = other.call("rag_ingest", ingest("w", "docs", json!({}))).expect_err("another's");
    assert!(format!("{refused:?}").contains("not_owner"), "{refused:?}");
    let code = |args: Value| house.refused("rag_ingest", args).code;
    assert_eq!(code(ingest("w", "nothing", json!({}))), "ingestion_path_refused");
    assert_eq!(code(ingest("nobody", ".", json!({}))), "place_unknown");
    // Watched, also by the next daemon.
    let watched = house.call("rag_ingest", ingest("w", "docs", json!({ "watch": true })));
    assert_eq!(watched["watching"], true, "{watched}");
    house.exec("w", "echo osprey > /workspace/docs/e.md");
    eventually(&house, "it is found", || with_word(&house, "osprey") == ["e.md"]);
    house.kill();
    house.start();
    eventually(&house, "the guest is there", || {
        house
            .try_call(
                "exec",
                json!({ "workspace_id": "w", "command": "echo kestrel > /workspace/docs/f.md" }),
            )
            .is_ok()
    });
    eventually(&house, "it goes on", || with_word(&house, "kestrel") == ["f.md"]);
    // What is destroyed ends it.
    house.call("workspace_destroy", json!({ "workspace_id": "w" }));
    eventually(&house, "it ends", || {
        let listed = house.call("rag_collections", json!({ "show_stats": true }));
        listed["collections"][0]["running"].is_null()
    });
    assert!(counter.given().values().all(|times| *times == 1), "{:?}", counter.given());
}

pub fn a_volume_is_ingested(house: House, counter: &Counter) {
    let args = json!({ "label": "books", "size_limit_bytes": 16 << 20 });
    house.call("aegis.volume.create", args);
    for (path, content) in [("one.md", "walrus"), ("deep/two.md", "heron")] {
        let write = json!({ "place": "volume:books", "path": path, "content": content });
        house.call("fs.write", write);
    }
    let done = house.call("rag_ingest", ingest("volume:books", "/", json!({ "watch": true })));
    assert_eq!((&done["files"], &done["place"]), (&json!(2), &json!("volume:books")), "{done}");
    let write = json!({ "place": "volume:books", "path": "three.md", "content": "osprey" });
    house.call("fs.write", write);
    eventually(&house, "it is found", || with_word(&house, "osprey") == ["three.md"]);
    let last = house.call("rag_ingest", ingest("volume:books", ".", json!({ "watch": false })));
    assert_eq!((&last["chunks"], &last["embedded"]), (&json!(3), &json!(0)), "{last}");
    let missing = house.refused("rag_ingest", ingest("volume:none", ".", json!({})));
    assert_eq!(missing.code, "volume_not_found");
    house.call("rag_delete", json!({ "collection": "all" }));
    assert!(counter.given().values().all(|times| *times == 1), "{:?}", counter.given());
}
