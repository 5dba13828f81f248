//! What a member of a team reaches, and what it does not.

use std::os::unix::fs::symlink;

use super::*;

/// A vault with a part of `a`, one of `a-b`, and something that is nobody's.
async fn house() -> VaultShared {
    let house = VaultShared::open(Options::default()).await;
    for (path, text) in [
        ("teams/a/own.md", "---\ntags: [t]\n---\nneedle own"),
        ("teams/a-b/other.md", "needle other #t"),
        ("teams/other.md", "needle beside #t"),
        ("root.md", "needle root #t"),
    ] {
        house.ok(json!({"action": "write", "path": path, "content": text})).await;
    }
    house.handle.write("teams/a/cards/x.json", b"{\"name\": \"x\"}".to_vec()).await.unwrap();
    house.handle.write("teams/a-b/cards/y.json", b"{\"name\": \"y\"}".to_vec()).await.unwrap();
    house
}

fn member(mut args: Value) -> Value {
    args["as_member"] = json!("a/x");
    args
}

/// Every file outside the part of `a`, with its text.
fn outside(house: &VaultShared) -> Vec<(std::path::PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![house.at("")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            if path == house.at("teams/a") || path == house.at(".hivekeep") {
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

/// Ways of naming what is not in the part.
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

async fn with_links() -> VaultShared {
    let house = house().await;
    symlink(house.at("teams/a-b"), house.at("teams/a/link")).unwrap();
    symlink("../other.md", house.at("teams/a/link.md")).unwrap();
    symlink("../..", house.at("teams/a/up")).unwrap();
    house
}

#[tokio::test]
async fn a_members_paths_begin_at_its_team() {
    let house = house().await;
    let read = house.ok(member(json!({"action": "read", "path": "own.md"}))).await;
    assert_eq!(read["path"], "own.md");
    let card = house.ok(member(json!({"action": "read", "path": "cards/x.json"}))).await;
    assert_eq!(card["content"], "{\"name\": \"x\"}");
    // A card is the daemon's to write.
    let write = json!({"action": "write", "path": "cards/x.json", "content": "{}"});
    assert_eq!(house.code(member(write)).await, "not_a_note");
    house.ok(member(json!({"action": "write", "path": "n/new.md", "content": "x"}))).await;
    assert_eq!(std::fs::read_to_string(house.at("teams/a/n/new.md")).unwrap(), "x");
    // By the whole path it is not there.
    let whole = json!({"action": "read", "path": "teams/a/own.md"});
    assert_eq!(house.code(member(whole.clone())).await, "note_not_found");
    house.ok(whole).await;
    for wrong in ["a", "a/x/y", "../a", "/x", ""] {
        let read = json!({"action": "read", "path": "own.md", "as_member": wrong});
        assert_eq!(house.code(read).await, "invalid_input", "{wrong}");
    }
}

#[tokio::test]
async fn no_path_and_no_link_leads_out() {
    let house = with_links().await;
    let before = outside(&house);
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
            let refused = house.call(member(args.clone())).await.expect_err(&args.to_string());
            assert!(!refused.to_text().contains("needle"), "{args}: {refused}");
        }
        let batch = json!({"action": "batch_read", "paths": [path, "own.md"]});
        let batch = house.ok(member(batch)).await;
        let (row, own) = (&batch["notes"][0], &batch["notes"][1]);
        assert!(row["error"].is_string() && row.get("content").is_none_or(Value::is_null), "{row}");
        assert!(own["content"].as_str().is_some_and(|text| text.contains("needle own")));
    }
    assert_eq!(outside(&house), before);
    assert!(!house.at("teams/a/stolen.md").exists() && house.at("teams/a/own.md").exists());
}

#[tokio::test]
async fn nothing_outside_is_found_listed_or_counted() {
    let house = with_links().await;
    let paths = |rows: &Value| -> Vec<String> {
        let rows = rows.as_array().expect("rows").iter();
        rows.map(|row| row["path"].as_str().expect("a path").to_owned()).collect()
    };
    for search in [
        json!({"action": "search", "query": "needle", "max_results": 0}),
        json!({"action": "search", "query": "needle", "tag": "t"}),
        json!({"action": "search", "query": "needle.*", "regex": true, "path_prefix": "."}),
    ] {
        let found = house.ok(member(search)).await;
        assert_eq!(paths(&found["results"]), ["own.md"], "{found}");
    }
    let listed = house.ok(member(json!({"action": "list", "recursive": true}))).await;
    let listed = paths(&listed["entries"]);
    assert!(listed.contains(&"own.md".to_owned()), "{listed:?}");
    let others = |path: &String| path.contains("other") || path.contains("root");
    assert!(!listed.iter().any(others), "{listed:?}");
    let stats = house.ok(member(json!({"action": "stats"}))).await;
    assert_eq!(stats["total_notes"], 1, "{stats}");
    assert_eq!(paths(&stats["recent_files"]), ["own.md"]);
    for at in ["..", "../a-b", "link", "up", "/", "x/../.."] {
        let list = member(json!({"action": "list", "path": at}));
        assert!(house.call(list).await.is_err(), "{at}");
        let search = member(json!({"action": "search", "query": "needle", "path_prefix": at}));
        let found = house.call(search).await;
        assert!(found.as_ref().map_or(true, |found| found["result_count"] == 0), "{at}: {found:?}");
    }
}

#[tokio::test]
async fn a_part_that_is_a_link_is_none() {
    let house = house().await;
    symlink(house.at("teams/a-b"), house.at("teams/c")).unwrap();
    for mut args in [
        json!({"action": "read", "path": "other.md"}),
        json!({"action": "list"}),
        json!({"action": "write", "path": "other.md", "content": "x"}),
    ] {
        args["as_member"] = json!("c/x");
        assert!(house.call(args.clone()).await.is_err(), "{args}");
    }
    let text = std::fs::read_to_string(house.at("teams/a-b/other.md")).unwrap();
    assert_eq!(text, "needle other #t");
}
