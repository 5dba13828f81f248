//! What a kill leaves of watched and of deleted collections.

use serde_json::{Value, json};

use super::{Counter, home, write};
use crate::home::{Home, show, wait_until};

fn call(home: &Home, tool: &str, args: Value) -> Value {
    home.json(&["call", tool, "--json", &args.to_string()])
}

fn listed(home: &Home) -> Value {
    call(home, "rag_collections", json!({ "show_stats": true }))["collections"].clone()
}

fn finds(home: &Home, word: &str) -> bool {
    let args = json!({ "collection": "all", "question": word, "mode": "bm25" });
    call(home, "rag_query", args)["results"].as_array().is_some_and(|rows| !rows.is_empty())
}

#[test]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs failpoints: `cargo xtask t it`")]
fn a_killed_daemon_goes_on_watching() {
    let counter = Counter::start();
    let mut home = home(&counter);
    write(&home, "a.md", "walrus\n");
    let args = json!({ "path": ".", "place": "docs", "collection": "all", "watch": true });
    // Killed before and after the first round is durable: nobody was answered, and it goes on all the same.
    for (point, word) in [
        ("ingest.after_plan", "heron"),
        ("ingest.before_end", "egret"),
        ("ingest.after_round", "puffin"),
    ] {
        home = home.with("FAILPOINTS", &format!("{point}=return(kill)"));
        let mut daemon = home.daemon();
        let cut = home.run(&["call", "rag_ingest", "--json", &args.to_string()]);
        assert!(!cut.status.success(), "{point}: {}", show(&cut));
        daemon.wait();
        home = home.with("FAILPOINTS", "");
        let daemon = home.daemon();
        write(&home, &format!("{word}.md"), &format!("{word}\n"));
        wait_until("it is found", || {
            listed(&home)[0]["running"]["watching"] == true && finds(&home, word)
        });
        // And once more, while nothing is written.
        drop(daemon);
        let _daemon = home.daemon();
        write(&home, "again.md", &format!("again {word}s\n"));
        wait_until("it is found", || finds(&home, &format!("again {word}s")));
        std::fs::remove_file(home.path("docs/a.md")).expect("removed");
        wait_until("it is gone", || !finds(&home, "walrus"));
        write(&home, "a.md", "walrus\n");
        call(&home, "rag_delete", json!({ "collection": "all" }));
    }
}

#[test]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs failpoints: `cargo xtask t it`")]
fn a_killed_deletion_leaves_nothing() {
    let counter = Counter::start();
    let mut home = home(&counter);
    write(&home, "a.md", "walrus\n");
    let args = json!({ "path": ".", "place": "docs", "collection": "all" });
    for point in ["ingest.after_deleted", "ingest.after_discard"] {
        home = home.with("FAILPOINTS", &format!("{point}=return(kill)"));
        let mut daemon = home.daemon();
        assert_eq!(call(&home, "rag_ingest", args.clone())["chunks"], 1);
        let cut = home.run(&["call", "rag_delete", "--json", r#"{"collection": "all"}"#]);
        assert!(!cut.status.success(), "{point}: {}", show(&cut));
        daemon.wait();
        home = home.with("FAILPOINTS", "");
        let _daemon = home.daemon();
        wait_until("it is gone", || listed(&home) == json!([]));
        let left = std::fs::read_dir(home.path("state/ingest")).expect("a folder").count();
        assert_eq!(left, 0, "{point}: its files");
        let made = call(&home, "rag_ingest", args.clone());
        assert_eq!((&made["chunks"], &made["embedded"]), (&json!(1), &json!(1)), "{point}");
        call(&home, "rag_delete", json!({ "collection": "all" }));
    }
}
