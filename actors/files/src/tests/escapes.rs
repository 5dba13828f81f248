//! Paths and links that lead out of a place, and things that are not files.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::PathBuf,
};

use serde_json::json;

use super::stage::{Stage, every_tool};

/// Everything in the folder outside.
fn outside(stage: &Stage) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(stage.outside("")).expect("there");
    let paths = entries.map(|entry| entry.expect("read").path());
    paths.map(|path| (path.clone(), fs::read(&path).unwrap_or_default())).collect()
}

#[tokio::test]
async fn no_path_and_no_link_leads_out() {
    let stage = Stage::new().await;
    fs::write(stage.outside("f"), "secret").expect("written");
    fs::create_dir(stage.outside("d")).expect("made");
    let before = outside(&stage);
    let absolute = stage.outside("");
    symlink(&absolute, stage.work("abs")).expect("linked");
    symlink("../outside", stage.work("rel")).expect("linked");
    symlink("../outside/f", stage.work("file")).expect("linked");
    symlink("../outside/new", stage.work("dangling")).expect("linked");
    symlink("/proc/self/root", stage.work("proc")).expect("linked");
    symlink("/proc/self/cwd", stage.work("cwd")).expect("linked");
    symlink("loop", stage.work("loop")).expect("linked");
    let through = absolute.strip_prefix("/").expect("absolute").to_str().expect("UTF-8");
    let paths = [
        "../outside/f",
        "a/../../outside/f",
        "/../outside/f",
        "abs/f",
        "abs/d",
        "abs/new",
        "rel/f",
        "rel/d",
        "rel/new",
        "rel/x/y",
        "file",
        "file/.",
        "dangling",
        "cwd/x",
        "loop",
        "loop/x",
        &format!("proc/{through}f"),
    ];
    for path in paths {
        for (tool, args) in every_tool(path) {
            fs::write(stage.work("mine"), "mine").expect("written");
            // A link itself may be deleted, moved and replaced by another file.
            if ["delete", "file_delete", "file_rename"].contains(&tool)
                && !path.trim_start_matches('/').contains('/')
            {
                continue;
            }
            let answer = stage.call(tool, args).await;
            if let Ok(found) = &answer {
                assert!(
                    tool == "file_exists" && found["exists"] == false,
                    "{tool} {path}: {found}"
                );
                continue;
            }
            let refused = answer.as_ref().is_err_and(|error| {
                ["outside_place", "invalid_path", "not_a_directory", "not_found"]
                    .contains(&error.code.as_ref())
            });
            assert!(refused, "{tool} {path}: {answer:?}");
            assert_eq!(outside(&stage), before, "{tool} {path}");
        }
    }
    for (tool, pattern) in [("grep", "secret"), ("glob", "**")] {
        let found = stage.good(tool, json!({ "path": "/", "pattern": pattern })).await.to_string();
        assert!(!found.contains("secret") && !found.contains("outside/"), "{tool}: {found}");
    }
    stage.good("delete", json!({ "path": "rel", "recursive": true })).await;
    stage.good("delete", json!({ "path": "file" })).await;
    assert_eq!(outside(&stage), before, "a link is deleted, not what it leads to");
}

#[tokio::test]
async fn links_that_stay_inside_are_followed() {
    let stage = Stage::new().await;
    fs::create_dir_all(stage.work("real/deep")).expect("made");
    symlink("real/deep", stage.work("short")).expect("linked");
    symlink("../f", stage.work("real/deep/up")).expect("linked");
    stage.good("write", json!({ "path": "short/up", "content": "one" })).await;
    assert_eq!(fs::read_to_string(stage.work("real/f")).expect("written there"), "one");
    let edit = json!({ "path": "short/up", "target_content": "one", "replacement_content": "two" });
    stage.good("edit", edit).await;
    assert!(stage.work("real/deep/up").is_symlink());
    assert_eq!(stage.good("read", json!({ "path": "real/f" })).await["content"], "two");
}

#[tokio::test]
async fn what_is_no_file_is_neither_read_nor_replaced() {
    let stage = Stage::new().await;
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, stage.work("pipe"), rustix::fs::FileType::Fifo, mode, 0)
        .expect("made");
    let _socket = std::os::unix::net::UnixListener::bind(stage.work("sock")).expect("bound");
    for path in ["pipe", "sock"] {
        for tool in ["read", "write", "edit", "multi_edit"] {
            let (_, args) =
                every_tool(path).into_iter().find(|(name, _)| *name == tool).expect("a tool");
            assert_eq!(stage.refused(tool, args).await, "not_a_file", "{tool} {path}");
        }
    }
    let all = stage.good("grep", json!({ "path": ".", "pattern": "." })).await;
    assert_eq!(all["count"], 0);
    fs::create_dir(stage.work("d")).expect("made");
    for tool in ["read", "write", "edit"] {
        let (_, args) =
            every_tool("d").into_iter().find(|(name, _)| *name == tool).expect("a tool");
        assert_eq!(stage.refused(tool, args).await, "is_a_directory", "{tool}");
    }
    for path in ["/", ".", "d/..", "d/."] {
        for tool in ["write", "delete"] {
            let (_, args) =
                every_tool(path).into_iter().find(|(name, _)| *name == tool).expect("a tool");
            assert!(stage.call(tool, args).await.is_err(), "{tool} {path}");
        }
    }
    assert!(stage.work("d").is_dir());
}

#[tokio::test]
async fn a_second_name_of_a_file_keeps_the_old_content() {
    let stage = Stage::new().await;
    fs::write(stage.outside("f"), "secret").expect("written");
    fs::hard_link(stage.outside("f"), stage.work("f")).expect("linked");
    stage.good("write", json!({ "path": "f", "content": "mine" })).await;
    assert_eq!(fs::read_to_string(stage.outside("f")).expect("there"), "secret");
}

#[tokio::test]
async fn odd_names_are_told_and_refused_as_they_should_be() {
    let stage = Stage::new().await;
    let name = std::ffi::OsStr::from_bytes(b"odd \xff");
    fs::write(stage.work("").join(name), "hit").expect("written");
    fs::write(stage.work("new\nline"), "hit").expect("written");
    let listed = stage.good("list", json!({ "path": "." })).await;
    assert_eq!(listed["total"], 2);
    let found = stage.good("grep", json!({ "path": ".", "pattern": "hit" })).await;
    assert_eq!(found["count"], 2);
    let long = "x".repeat(256);
    for (path, code) in
        [("a\0b", "invalid_path"), (long.as_str(), "invalid_path"), ("", "invalid_path")]
    {
        assert_eq!(stage.refused("read", json!({ "path": path })).await, code);
        let write = json!({ "path": path, "content": "x" });
        assert_eq!(stage.refused("write", write).await, code);
    }
    let mut deep = stage.work("deep");
    for _ in 0..600 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).expect("made");
    stage.good("delete", json!({ "path": "deep", "recursive": true })).await;
    assert!(!stage.work("deep").exists());
}
