//! What the tools change, and what they answer.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
};

use serde_json::json;

use hivekeep_file_engine::{
    EditFileText, EditOutcome, FileError, FileErrorKind, FileOutcome, FileRoot, Occurrences,
    ReadText, TextEdit, run,
};

use super::stage::{Stage, every_tool};

#[tokio::test]
async fn a_day_of_work() {
    let stage = Stage::new().await;
    let wrote =
        stage.good("write", json!({ "path": "/src/main.rs", "content": "fn main() {}\n" })).await;
    assert_eq!((&wrote["bytes_written"], &wrote["replaced"]), (&json!(13), &json!(false)));
    stage.good("create_dir", json!({ "path": "out/reports" })).await;
    stage.good("create_dir", json!({ "path": "out/reports" })).await;
    let root = stage.good("list", json!({ "path": "/" })).await;
    let names: Vec<_> =
        root["entries"].as_array().expect("a list").iter().map(|e| &e["name"]).collect();
    assert_eq!((names, &root["total"]), (vec![&json!("out"), &json!("src")], &json!(2)));
    let edit = json!({ "path": "src/main.rs", "target_content": "{}", "replacement_content": "{ run() }" });
    assert_eq!(stage.good("edit", edit).await["applied"], 1);
    let read = stage.good("read", json!({ "path": "src/main.rs" })).await;
    assert_eq!(read["content"], "fn main() { run() }\n");
    let found = stage.good("grep", json!({ "path": "/", "pattern": r"run\(" })).await;
    assert_eq!(found["matches"], json!(["src/main.rs:1:fn main() { run() }"]));
    assert_eq!((&found["count"], &found["left"]), (&json!(1), &json!(0)));
    assert_eq!(
        stage.good("glob", json!({ "path": "/", "pattern": "*.rs" })).await["paths"],
        json!(["src/main.rs"])
    );
    assert_eq!(stage.refused("delete", json!({ "path": "src" })).await, "folder_not_empty");
    stage.good("delete", json!({ "path": "src", "recursive": true })).await;
    assert_eq!(stage.refused("read", json!({ "path": "src/main.rs" })).await, "not_found");
    let left: Vec<_> = fs::read_dir(stage.work("")).expect("there").collect();
    assert_eq!(left.len(), 1, "no drafts are left: {left:?}");
}

#[tokio::test]
async fn a_file_keeps_its_mode_and_owner_and_no_old_tail() {
    let stage = Stage::new().await;
    let path = stage.work("script");
    fs::write(&path, "a long line that is replaced by less\nend\n").expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).expect("set");
    let root = rustix::process::geteuid().is_root();
    if root {
        std::os::unix::fs::chown(&path, Some(12_345), Some(54_321)).expect("given away");
    }
    let edit = json!({ "path": "script", "target_content": "a long line that is replaced by less",
        "replacement_content": "b" });
    assert_eq!(stage.good("edit", edit).await["size_bytes"], 6);
    assert_eq!(fs::read_to_string(&path).expect("there"), "b\nend\n");
    let written = stage.good("write", json!({ "path": "script", "content": "" })).await;
    assert_eq!(written["replaced"], true);
    let now = fs::metadata(&path).expect("there");
    assert_eq!((now.mode() & 0o7777, now.len()), (0o751, 0));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).expect("set");
    stage.good("write", json!({ "path": "script", "content": "#!/bin/sh\n" })).await;
    assert_eq!(fs::metadata(&path).expect("there").mode() & 0o7777, 0o755, "lends no rights");
    if root {
        assert_eq!((now.uid(), now.gid()), (12_345, 54_321));
    }
}

#[tokio::test]
async fn edits_land_together_or_not_at_all() {
    let stage = Stage::new().await;
    fs::write(stage.work("f"), "one two two three").expect("written");
    let edit = |old: &str, new: &str| json!({ "target_content": old, "replacement_content": new });
    let edits = |edits: Vec<serde_json::Value>| json!({ "path": "f", "edits": edits });
    let none = edits(vec![edit("one", "1"), edit("four", "4")]);
    let error = stage.call("multi_edit", none).await.expect_err("no four");
    assert_eq!((error.code.as_ref(), &error.details["edit"]), ("no_match", &json!(2)));
    let many =
        stage.call("multi_edit", edits(vec![edit("two", "2")])).await.expect_err("two of two");
    assert_eq!((many.code.as_ref(), &many.details["occurrences"]), ("many_matches", &json!(2)));
    assert_eq!(fs::read_to_string(stage.work("f")).expect("there"), "one two two three");
    let both = edits(vec![edit("one two", "1"), edit("1 two", "12")]);
    assert_eq!(stage.good("multi_edit", both).await["applied"], 2);
    assert_eq!(fs::read_to_string(stage.work("f")).expect("there"), "12 three");
}

#[tokio::test]
async fn edits_of_one_file_at_once_all_land() {
    let stage = Stage::new().await;
    let lines: Vec<_> = (0..24).map(|number| format!("<{number}>")).collect();
    fs::write(stage.work("f"), lines.join("\n")).expect("written");
    let edit = |number: i32| {
        let (old, new) = (format!("<{number}>"), format!("[{number}]"));
        json!({ "path": "f", "target_content": old, "replacement_content": new })
    };
    // More at once than are tried again: who loses each time says so, and what was answered is there.
    let stage = &stage;
    let all = (0..24)
        .map(|number| async move { (number, stage.call("edit", edit(number)).await) })
        .collect::<Vec<_>>();
    let all = futures::future::join_all(all).await;
    let text = fs::read_to_string(stage.work("f")).expect("there");
    for (number, outcome) in all {
        match outcome {
            Ok(_) => assert!(text.contains(&format!("[{number}]")), "{number} was lost"),
            Err(error) => {
                assert_eq!(error.code, "file_contended");
                assert!(text.contains(&format!("<{number}>")), "{number} landed");
            }
        }
    }
}

#[tokio::test]
async fn large_files_go_by_ranges_and_binary_ones_are_told() {
    let stage = Stage::new().await;
    let text = "añ€😀".repeat(10_000);
    fs::write(stage.work("t"), &text).expect("written");
    let (mut read, mut offset) = (String::new(), 0);
    loop {
        let part =
            stage.good("read", json!({ "path": "t", "offset": offset, "limit": 1_001 })).await;
        read += part["content"].as_str().expect("text");
        let Some(next) = part["next_offset"].as_u64() else { break };
        offset = next;
    }
    assert!(read == text, "ranges add up to the file");
    let inside = stage.good("read", json!({ "path": "t", "offset": 2, "limit": 8 })).await;
    assert_eq!((&inside["offset"], &inside["content"]), (&json!(3), &json!("€😀")));
    let root = FileRoot::folder(&stage.work("")).expect("opened");
    for offset in 0..20 {
        let asked = ReadText { path: "t".to_owned(), offset, limit: 1 };
        let Ok(FileOutcome::ReadText(read)) = run(&root, &asked.into(), &|| false) else {
            panic!("{offset} is not read");
        };
        assert!(read.next_offset > offset && !read.text.is_empty(), "{offset} makes progress");
    }
    for bytes in [&b"\xff\xfe"[..], b"a\0b", b"cut \xe2\x82"] {
        fs::write(stage.work("b"), bytes).expect("written");
        assert_eq!(stage.refused("read", json!({ "path": "b" })).await, "not_utf8", "{bytes:?}");
    }
    let sparse = fs::File::create(stage.work("large")).expect("made");
    sparse.set_len(17 * 1024 * 1024).expect("grown");
    let edit = json!({ "path": "large", "target_content": "x", "replacement_content": "y" });
    assert_eq!(stage.refused("edit", edit).await, "too_large");
}

#[tokio::test]
async fn a_place_for_reading_is_only_read() {
    let stage = Stage::new().await;
    fs::write(stage.work("f"), "secret").expect("written");
    for (tool, mut args) in every_tool("f") {
        args["place"] = json!("look");
        match stage.call(tool, args).await {
            Ok(answer) => {
                assert!(
                    ["read", "=read", "grep", "file_exists", "stat", "get"].contains(&tool)
                        && answer["place"] == "look",
                    "{tool}: {answer}"
                );
            }
            Err(error) if ["list", "glob", "dir_list", "stat"].contains(&tool) => {
                assert_eq!(error.code, "not_a_directory")
            }
            Err(error) => assert_eq!(error.code, "place_read_only", "{tool}"),
        }
    }
    assert_eq!(fs::read_to_string(stage.work("f")).expect("there"), "secret");
    let unknown = json!({ "path": "f", "place": "elsewhere" });
    assert_eq!(stage.refused("read", unknown).await, "place_unknown");
}

#[tokio::test]
async fn lists_go_on_to_their_end() {
    let stage = Stage::new().await;
    for number in 0..25 {
        fs::write(stage.work(&format!("f{number:02}")), "x").expect("written");
    }
    let (mut names, mut after) = (Vec::new(), json!(null));
    loop {
        let page = stage.good("list", json!({ "path": ".", "limit": 10, "after": after })).await;
        assert_eq!(page["total"], 25);
        let page_names = page["entries"].as_array().expect("a list").iter();
        names.extend(page_names.map(|entry| entry["name"].as_str().expect("a name").to_owned()));
        after = page["next"].clone();
        if after.is_null() {
            break;
        }
    }
    let all: Vec<_> = (0..25).map(|number| format!("f{number:02}")).collect();
    assert_eq!(names, all);
}

#[tokio::test]
async fn searches_count_beyond_their_limit_and_name_what_they_could_not_read() {
    let stage = Stage::new().await;
    fs::write(stage.work("a"), "hit\n".repeat(30)).expect("written");
    fs::write(stage.work("bin"), b"hit\n\0hit\n").expect("written");
    let late = [&b"hit\n".repeat(60_000)[..], b"\0hit\n"].concat();
    fs::write(stage.work("late"), late).expect("written");
    let wide: Vec<u8> = "\u{feff}hit\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(stage.work("wide"), wide).expect("written");
    fs::write(stage.work("long"), "hit".repeat(1_000)).expect("written");
    let found = stage.good("grep", json!({ "path": ".", "pattern": "hit", "limit": 5 })).await;
    assert_eq!(found["matches"].as_array().map(Vec::len), Some(5));
    assert_eq!(found["left"].as_u64(), found["count"].as_u64().map(|count| count - 5));
    assert_eq!((&found["binary_files"], &found["unreadable_count"]), (&json!(2), &json!(2)));
    let named = found["unreadable"].to_string();
    assert!(named.contains("bin: binary") && named.contains("at byte 240000"), "{named}");
    for (file, count) in [("bin", 1), ("late", 60_000), ("wide", 1)] {
        let found = stage.good("grep", json!({ "path": file, "pattern": "hit" })).await;
        assert_eq!(found["count"], count, "{file}");
    }
    let long = stage.good("grep", json!({ "path": "long", "pattern": "hit" })).await;
    assert!(
        long["matches"][0].as_str().is_some_and(|line| line.len() < 600 && line.ends_with("[…]"))
    );
    let paths = stage.good("glob", json!({ "path": ".", "pattern": "*", "limit": 1 })).await;
    assert_eq!((&paths["paths"], &paths["left"]), (&json!(["a"]), &json!(4)));
    let mut deep = stage.work("deep");
    for _ in 0..260 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).expect("made");
    let unread = stage.good("glob", json!({ "path": "deep", "pattern": "*" })).await;
    assert_eq!(unread["unreadable_count"], 1, "{unread}");
    for (tool, pattern) in [("grep", "("), ("glob", "[")] {
        let args = json!({ "path": ".", "pattern": pattern });
        assert_eq!(stage.refused(tool, args).await, "invalid_pattern");
    }
}

#[tokio::test]
async fn files_are_moved_looked_for_and_deleted() {
    let stage = Stage::new().await;
    fs::write(stage.work("a"), "one").expect("written");
    let to = |new: &str| json!({ "oldPath": "a", "newPath": new });
    let moved = stage.good("file_rename", to("deep/b")).await;
    assert_eq!((&moved["newPath"], &moved["success"]), (&json!("deep/b"), &json!(true)));
    fs::write(stage.work("a"), "two").expect("written");
    assert_eq!(stage.refused("file_rename", to("deep/b")).await, "file_exists");
    let replace = json!({ "oldPath": "a", "newPath": "deep/b", "overwrite": true });
    stage.good("file_rename", replace).await;
    assert_eq!(fs::read_to_string(stage.work("deep/b")).expect("there"), "two");
    assert_eq!(stage.refused("file_rename", to("c/d")).await, "not_found");
    assert!(!stage.work("c").exists(), "nothing is made for what is not there");
    let into_itself = json!({ "oldPath": "deep", "newPath": "deep/x/y" });
    assert_eq!(stage.refused("file_rename", into_itself).await, "invalid_path");
    for (path, exists, is_dir) in [
        ("deep", true, true),
        ("deep/b", true, false),
        ("deep/b/c", false, false),
        ("no", false, false),
    ] {
        let found = stage.good("file_exists", json!({ "path": path })).await;
        assert_eq!((&found["exists"], &found["isDir"]), (&json!(exists), &json!(is_dir)), "{path}");
    }
    let listed = stage.good("dir_list", json!({ "path": "/deep/" })).await;
    let entry = json!({ "name": "b", "path": "deep/b", "isDir": false, "size": 3 });
    assert_eq!(listed["entries"], json!([entry]));
    assert_eq!(stage.refused("file_delete", json!({ "path": "deep" })).await, "folder_not_empty");
    stage.good("file_delete", json!({ "path": "deep/b" })).await;
    stage.good("file_delete", json!({ "path": "deep" })).await;
    stage.good("dir_create", json!({ "path": "x/y" })).await;
    assert!(stage.work("x/y").is_dir() && !stage.work("deep").exists());
}

#[tokio::test]
async fn edits_replace_the_first_or_each_and_count() {
    let stage = Stage::new().await;
    fs::write(stage.work("f"), "a b a b a").expect("written");
    let root = FileRoot::folder(&stage.work("")).expect("opened");
    let edit = |which, new: String| -> Result<EditOutcome, FileError> {
        let edits = vec![TextEdit { which, old: "a".to_owned(), new }];
        let asked = EditFileText { path: "f".to_owned(), edits, expected: None };
        match run(&root, &asked.into(), &|| false)? {
            FileOutcome::EditFileText(done) => Ok(done),
            other => panic!("{other:?}"),
        }
    };
    let done = edit(Occurrences::First, "aa".to_owned()).expect("edited");
    assert_eq!(
        (done.occurrences, fs::read_to_string(stage.work("f")).expect("there").as_str()),
        (3, "aa b a b a")
    );
    let done = edit(Occurrences::All, "aa".to_owned()).expect("edited");
    assert_eq!(
        (done.occurrences, fs::read_to_string(stage.work("f")).expect("there").as_str()),
        (4, "aaaa b aa b aa")
    );
    let refused = edit(Occurrences::All, "x".repeat(3 << 20)).expect_err("too large");
    assert_eq!(refused.kind, FileErrorKind::TooLarge);
}

#[tokio::test]
async fn languages_are_told_and_listed() {
    let stage = Stage::new().await;
    let told = stage.good("lang_detect", json!({ "path": "no/such/file.kts" })).await;
    assert_eq!(told["language"], "kotlin");
    let all = stage.good("lang_list", json!({})).await;
    let rust = all["languages"].as_array().expect("a list").iter().find(|row| row["id"] == "rust");
    assert_eq!(rust.expect("known")["extensions"], json!([".rs"]));
}
