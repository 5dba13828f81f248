//! Ingestions of a daemon, driven from outside: the command line, an embedding server that counts, kills.

pub(crate) mod counter;
mod kept;
mod pdf;
mod real;

use std::{os::unix::process::ExitStatusExt, process::Stdio};

use serde_json::json;

use crate::home::{Home, show, wait_until};
use counter::Counter;

/// Passages that are embedded at a time.
const BATCH: u32 = 64;

/// A home whose place `docs` has this folder, and whose embeddings the counter makes.
fn home(counter: &Counter) -> Home {
    let home = Home::new().with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false");
    let folder = home.path("docs");
    std::fs::create_dir_all(&folder).expect("made");
    let config = format!(
        "[session.places.docs]\nfolder = {folder:?}\nread_only = true\n{}",
        counter.config()
    );
    std::fs::write(home.path("config.toml"), config).expect("writes");
    home
}

fn write(home: &Home, name: &str, text: &str) {
    let path = home.path("docs").join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, text).expect("writes");
}

#[test]
fn a_folder_is_ingested_and_asked_from_the_command_line() {
    let counter = Counter::start();
    let home = home(&counter);
    write(&home, "journal.md", "# Journal\n\nThe journal is compacted beside itself.\n");
    write(&home, "web.md", "# Web\n\nPages are fetched by the host.\n");
    let _daemon = home.daemon();
    let folder = home.path("docs");
    let folder = folder.to_str().expect("UTF-8");
    let told = home.ok(&["ingest", folder]);
    assert!(told.contains("docs: 2 files, 2 passages: 2 embedded"), "{told}");
    let told = home.ok(&["ask", "docs", "How is the journal compacted?", "-n", "1"]);
    assert!(told.starts_with("journal.md:1  Journal") && told.contains("beside itself"), "{told}");
    // An edit costs the edit, and leaves nothing of before.
    write(&home, "web.md", "# Web\n\nSearches go through providers.\n");
    let told = home.ok(&["ingest", folder]);
    assert!(told.contains("1 embedded, 1 unchanged, 1 removed"), "{told}");
    let found = home.json(&["ask", "docs", "pages fetched by the host", "--json"])["found"].clone();
    assert!(!found.to_string().contains("are fetched by"), "{found}");
    std::fs::remove_file(home.path("docs/web.md")).expect("removed");
    home.ok(&["ingest", folder]);
    let listed = home.json(&["call", "rag_collections", "--json", r#"{"show_stats": true}"#]);
    assert_eq!(listed["collections"][0]["points_count"], 1, "{listed}");
    assert_eq!(listed["collections"][0]["model"], "count/e");
    let outside = home.run(&["ingest", "/"]);
    assert!(
        !outside.status.success() && show(&outside).contains("session.places"),
        "{}",
        show(&outside)
    );
}

#[test]
fn without_an_embedder_the_keys_are_named_at_once() {
    let home = Home::new();
    let folder = home.path("docs");
    std::fs::create_dir_all(&folder).expect("made");
    std::fs::write(folder.join("a.md"), "text").expect("writes");
    std::fs::write(
        home.path("config.toml"),
        format!("[session.places.docs]\nfolder = {folder:?}\n"),
    )
    .expect("writes");
    let _daemon = home.daemon();
    let refused = home.run(&["ingest", folder.to_str().expect("UTF-8")]);
    let told = show(&refused);
    assert!(!refused.status.success() && told.contains("embedder_not_configured"), "{told}");
    assert!(told.contains("model.alias.embed") && told.contains("ingest.local.folder"), "{told}");
}

/// The daemon is killed at many points of one ingestion: nothing is lost or there twice, and no vector is made
/// twice but those of the batch in flight.
#[test]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs failpoints: `cargo xtask t it`")]
fn an_ingestion_goes_on_after_each_kill() {
    let full = std::env::var_os("TEST_HIVEKEEP_INGEST_FILES").is_some();
    let (files, cuts) = if full { (2_000, 20) } else { (300, 4) };
    let counter = Counter::start();
    let mut home = home(&counter);
    for at in 0..files {
        write(
            &home,
            &format!("{}/{at}.md", at % 20),
            &format!("# File {at}\n\nIts number is {at}, and no other's.\n"),
        );
    }
    let args =
        ["call", "rag_ingest", "--json", r#"{"path": ".", "place": "docs", "collection": "all"}"#];
    for cut in 0..cuts {
        // At a vector that is not written, a batch that is, or a beginning; each time a little later.
        let (point, skip) = match cut % 4 {
            0 => ("ingest.after_embed", cut % 3),
            1 => ("ingest.after_write", cut % 2),
            2 => ("ingest.after_embed", 0),
            _ => ("ingest.after_write", 0),
        };
        home = home.with("FAILPOINTS", &format!("{point}={skip}*off->return(kill)"));
        if cut == 0 {
            let mut daemon = home.daemon();
            let cut_off = home.run(&args);
            assert!(!cut_off.status.success(), "cut {cut}: {}", show(&cut_off));
            daemon.wait();
            continue;
        }
        // It goes on by itself, and may be dead before it serves.
        let mut daemon = home.command(&["daemon"]).stderr(Stdio::null()).spawn().expect("it runs");
        let mut status = None;
        wait_until("the daemon is killed", || {
            status = daemon.try_wait().expect("a child");
            status.is_some()
        });
        assert_eq!(status.and_then(|status| status.signal()), Some(9), "cut {cut}");
    }
    home = home.with("FAILPOINTS", "");
    let _daemon = home.daemon();
    let done = home.json(&args);
    assert_eq!((&done["files"], &done["chunks"]), (&json!(files), &json!(files)), "{done}");
    let listed = home.json(&["call", "rag_collections", "--json", r#"{"show_stats": true}"#]);
    assert_eq!(listed["collections"][0]["points_count"], files, "{listed}");
    let given = counter.given();
    assert_eq!(given.len(), files as usize, "each passage was embedded");
    let again: u32 = given.values().map(|times| times - 1).sum();
    // Each kill costs the batch in flight.
    let most = cuts * BATCH;
    assert!(again <= most, "{again} vectors were made again, {most} may be");
    println!("{cuts} kills: {again} of {} vectors were made again", given.len());
    // Nothing is left to do.
    let before = counter.given();
    assert_eq!(home.json(&args)["embedded"], 0);
    assert_eq!(counter.given(), before);
}
