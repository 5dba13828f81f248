//! Confinement of a team's member to its part of the vault.

use std::os::unix::fs::symlink;

use super::*;

/// Makes a vault with a part of `a`, one of `a-b`, and something in neither.
async fn sample_vault() -> TestVault {
    let vault = TestVault::open(Options::default()).await;
    for (path, text) in [
        ("teams/a/own.md", "---\ntags: [t]\n---\nneedle own"),
        ("teams/a-b/other.md", "needle other #t"),
        ("teams/other.md", "needle beside #t"),
        ("root.md", "needle root #t"),
    ] {
        vault.ok(json!({"action": "write", "path": path, "content": text})).await;
    }
    vault.handle.write("teams/a/cards/x.json", b"{\"name\": \"x\"}".to_vec()).await.unwrap();
    vault.handle.write("teams/a-b/cards/y.json", b"{\"name\": \"y\"}".to_vec()).await.unwrap();
    vault
}

fn member(mut args: Value) -> Value {
    args["as_member"] = json!("a/x");
    args
}

/// Every file outside the part of `a`, with its text.
fn outside(vault: &TestVault) -> Vec<(std::path::PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![vault.at("")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            if path == vault.at("teams/a") || path == vault.at(".hivekeep") {
                continue;
            }
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(path),
                false => found.push((path.clone(), std::fs::read_to_string(&path).unwrap())),
            }
        }
    }
    found.sort();
    found
}

/// Paths that name something outside the part.
const ELSEWHERE: [&str; 8] = [
    "../a-b/other.md",
    "../../root.md",
    "/root.md",
    "x/../../other.md",
    "link/other.md",
    "link.md",
    "up/root.md",
    "..",
];

async fn with_links() -> TestVault {
    let vault = sample_vault().await;
    symlink(vault.at("teams/a-b"), vault.at("teams/a/link")).unwrap();
    symlink("../other.md", vault.at("teams/a/link.md")).unwrap();
    symlink("../..", vault.at("teams/a/up")).unwrap();
    vault
}

#[tokio::test]
async fn a_members_paths_begin_at_its_team() {
    let vault = sample_vault().await;
    let read = vault.ok(member(json!({"action": "read", "path": "own.md"}))).await;
    assert_eq!(read["path"], "own.md");
    let card = vault.ok(member(json!({"action": "read", "path": "cards/x.json"}))).await;
    assert_eq!(card["content"], "{\"name\": \"x\"}");
    // Only the daemon writes cards.
    let write = json!({"action": "write", "path": "cards/x.json", "content": "{}"});
    assert_eq!(vault.code(member(write)).await, "not_a_note");
    vault.ok(member(json!({"action": "write", "path": "n/new.md", "content": "x"}))).await;
    assert_eq!(std::fs::read_to_string(vault.at("teams/a/n/new.md")).unwrap(), "x");
    // The full path does not exist in the member's part.
    let whole = json!({"action": "read", "path": "teams/a/own.md"});
    assert_eq!(vault.code(member(whole.clone())).await, "note_not_found");
    vault.ok(whole).await;
    for wrong in ["a", "a/x/y", "../a", "/x", ""] {
        let read = json!({"action": "read", "path": "own.md", "as_member": wrong});
        assert_eq!(vault.code(read).await, "invalid_input", "{wrong}");
    }
}

#[tokio::test]
async fn no_path_and_no_link_leads_out() {
    let vault = with_links().await;
    let before = outside(&vault);
    for path in ELSEWHERE {
        for args in [
            json!({"action": "read", "path": path}),
            json!({"action": "write", "path": path, "content": "gotcha"}),
            json!({"action": "write", "path": path, "content": "gotcha", "mode": "append"}),
            json!({"action": "delete", "path": path, "confirm": true}),
            json!({"action": "frontmatter", "frontmatter_action": "get", "path": path}),
            json!({"action": "frontmatter", "frontmatter_action": "set", "path": path, "key": "k", "value": 1}),
            json!({"action": "tags", "tags_action": "list", "path": path}),
            json!({"action": "tags", "tags_action": "add", "path": path, "tag": "x"}),
            json!({"action": "replace", "path": path, "old_string": "needle", "new_string": "x"}),
            json!({"action": "move", "path": path, "new_path": "stolen.md"}),
            json!({"action": "move", "path": "own.md", "new_path": path, "overwrite": true}),
        ] {
            let refused = vault.call(member(args.clone())).await.expect_err(&args.to_string());
            assert!(!refused.to_text().contains("needle"), "{args}: {refused}");
        }
        let batch = json!({"action": "batch_read", "paths": [path, "own.md"]});
        let batch = vault.ok(member(batch)).await;
        let (row, own) = (&batch["notes"][0], &batch["notes"][1]);
        assert!(row["error"].is_string() && row.get("content").is_none_or(Value::is_null), "{row}");
        assert!(own["content"].as_str().is_some_and(|text| text.contains("needle own")));
    }
    assert_eq!(outside(&vault), before);
    assert!(!vault.at("teams/a/stolen.md").exists() && vault.at("teams/a/own.md").exists());
}

#[tokio::test]
async fn nothing_outside_is_found_listed_or_counted() {
    let vault = with_links().await;
    let paths = |rows: &Value| -> Vec<String> {
        let rows = rows.as_array().expect("rows").iter();
        rows.map(|row| row["path"].as_str().expect("a path").to_owned()).collect()
    };
    for search in [
        json!({"action": "search", "query": "needle", "max_results": 0}),
        json!({"action": "search", "query": "needle", "tag": "t"}),
        json!({"action": "search", "query": "needle.*", "regex": true, "path_prefix": "."}),
    ] {
        let found = vault.ok(member(search)).await;
        assert_eq!(paths(&found["results"]), ["own.md"], "{found}");
    }
    let listed = vault.ok(member(json!({"action": "list", "recursive": true}))).await;
    let listed = paths(&listed["entries"]);
    assert!(listed.contains(&"own.md".to_owned()), "{listed:?}");
    let others = |path: &String| path.contains("other") || path.contains("root");
    assert!(!listed.iter().any(others), "{listed:?}");
    let stats = vault.ok(member(json!({"action": "stats"}))).await;
    assert_eq!(stats["total_notes"], 1, "{stats}");
    assert_eq!(paths(&stats["recent_files"]), ["own.md"]);
    for at in ["..", "../a-b", "link", "up", "/", "x/../.."] {
        let list = member(json!({"action": "list", "path": at}));
        assert!(vault.call(list).await.is_err(), "{at}");
        let search = member(json!({"action": "search", "query": "needle", "path_prefix": at}));
        let found = vault.call(search).await;
        assert!(found.as_ref().map_or(true, |found| found["result_count"] == 0), "{at}: {found:?}");
    }
}

#[tokio::test]
async fn a_part_that_is_a_link_is_none() {
    let vault = sample_vault().await;
    symlink(vault.at("teams/a-b"), vault.at("teams/c")).unwrap();
    for mut args in [
        json!({"action": "read", "path": "other.md"}),
        json!({"action": "list"}),
        json!({"action": "write", "path": "other.md", "content": "x"}),
    ] {
        args["as_member"] = json!("c/x");
        assert!(vault.call(args.clone()).await.is_err(), "{args}");
    }
    let text = std::fs::read_to_string(vault.at("teams/a-b/other.md")).unwrap();
    assert_eq!(text, "needle other #t");
}
