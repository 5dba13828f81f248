//! Files of volumes, and ways out of them that guests lay.

use std::{os::unix::fs::symlink, path::PathBuf};

use hivekeep_kernel::WorkspaceId;
use hivekeep_ports::VolumeRequest;
use serde_json::{Value, json};

use super::stage::Stage;
use crate::Options;

/// Root of the volume `v`, as a workspace has it.
async fn mounted(stage: &Stage) -> PathBuf {
    stage.make("v", 16).await;
    let request =
        VolumeRequest { volume: "v".to_owned(), path: "/data".to_owned(), read_only: false };
    let attached = stage.volumes().attach(stage.rig().session, WorkspaceId::new(), &[request]);
    stage.volumes().mount(&attached.expect("attached")).await.expect("mounted").remove(0).folder
}

fn at(path: &str) -> Value {
    json!({ "volume_id": "v", "path": path })
}

fn write(path: &str, content: &str) -> Value {
    json!({ "volume_id": "v", "path": path, "content": content })
}

#[tokio::test]
async fn bytes_come_back_as_they_are_with_their_encoding_told() {
    let Some(stage) = Stage::open(Options::default()).await else { return };
    stage.make("v", 16).await;
    let text = stage.good("file.write", write("notes/ä.md", "größe\n")).await;
    assert_eq!((&text["bytes_written"], &text["replaced"]), (&json!(8), &json!(false)));
    let read = stage.good("file.read", at("/notes/ä.md")).await;
    assert_eq!((&read["content"], &read["encoding"]), (&json!("größe\n"), &json!("utf-8")));
    assert_eq!((&read["content_type"], &read["size_bytes"]), (&json!("text/markdown"), &json!(8)));
    assert!(read["next_offset"].is_null(), "{read}");

    let bytes = json!({ "volume_id": "v", "path": "b", "content": "/wAB", "encoding": "base64" });
    stage.good("file.write", bytes).await;
    let read = stage.good("file.read", at("b")).await;
    assert_eq!((&read["content"], &read["encoding"]), (&json!("/wAB"), &json!("base64")));
    let as_text = json!({ "volume_id": "v", "path": "b", "encoding": "utf-8" });
    assert_eq!(stage.refused("file.read", as_text).await, "not_utf8");
    let broken = json!({ "volume_id": "v", "path": "b", "content": "!", "encoding": "base64" });
    assert_eq!(stage.refused("file.write", broken).await, "invalid_input");
    assert_eq!(stage.good("file.read", at("b")).await["content"], "/wAB");

    // Ranges go on to the end and cut no character.
    let long = "aä".repeat(100);
    stage.good("file.write", write("long", &long)).await;
    let (mut whole, mut offset) = (String::new(), json!(0));
    while !offset.is_null() {
        let range = json!({ "volume_id": "v", "path": "long", "offset": offset, "limit": 8 });
        let read = stage.good("file.read", range).await;
        whole.push_str(read["content"].as_str().expect("text"));
        offset = read["next_offset"].clone();
    }
    assert_eq!(whole, long);
}

#[tokio::test]
async fn folders_are_made_listed_and_deleted() {
    let Some(stage) = Stage::open(Options::default()).await else { return };
    let root = mounted(&stage).await;
    assert_eq!(stage.good("file.list", at("/")).await["total"], 0, "a new volume is empty");
    assert_eq!(stage.good("file.mkdir", at("a/b")).await["created"], true);
    assert_eq!(stage.good("file.mkdir", at("a/b")).await["created"], false);
    stage.good("file.write", write("a/f", "1")).await;
    assert_eq!(stage.refused("file.mkdir", at("a/f")).await, "not_a_directory");
    assert_eq!(stage.refused("file.write", write("a/b", "1")).await, "is_a_directory");
    for n in 0..5 {
        std::fs::write(root.join(format!("a/b/{n}")), "x").expect("written");
    }
    let page = stage
        .good("file.list", json!({ "volume_id": "v", "path": "a/b", "limit": 2, "after": "1" }));
    let page = page.await;
    assert_eq!((&page["next"], &page["total"]), (&json!("3"), &json!(5)));
    assert_eq!(page["entries"][0]["name"], "2");
    assert_eq!(stage.good("file.delete", at("a")).await["deleted"], true);
    assert_eq!(stage.refused("file.list", at("a")).await, "not_found");
    assert_eq!(stage.refused("file.delete", at("/")).await, "invalid_path");
    assert_eq!(stage.refused("file.read", at("none")).await, "not_found");
}

#[tokio::test]
async fn no_path_and_no_link_leads_out_and_nothing_but_files_is_opened() {
    let Some(stage) = Stage::open(Options::default()).await else { return };
    let root = mounted(&stage).await;
    let outside = stage.folder().join("outside");
    std::fs::create_dir(&outside).expect("made");
    std::fs::write(outside.join("secret"), "s").expect("written");
    symlink(&outside, root.join("absolute")).expect("linked");
    symlink("../../../outside", root.join("relative")).expect("linked");
    symlink("/proc/self/root", root.join("magic")).expect("linked");
    symlink("loop", root.join("loop")).expect("linked");
    std::fs::create_dir(root.join("d")).expect("made");
    let fifo = rustix::fs::CWD;
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(fifo, root.join("fifo"), rustix::fs::FileType::Fifo, mode, 0)
        .expect("made");
    let long = "x".repeat(300);
    for path in [
        "../outside/secret",
        "absolute/secret",
        "relative/secret",
        "d/../../outside/secret",
        "magic/etc/passwd",
        "loop/x",
        "a\0b",
        &long,
    ] {
        for (tool, args) in [
            ("file.read", at(path)),
            ("file.list", at(path)),
            ("file.write", write(path, "overwritten")),
            ("file.mkdir", at(path)),
            ("file.delete", at(path)),
        ] {
            let refused = stage.call(tool, args).await.expect_err(path);
            assert_eq!(refused.code, "invalid_path", "{tool} {path:?}: {refused}");
        }
    }
    assert_eq!(stage.refused("file.read", at("fifo")).await, "volume_not_a_file");
    assert_eq!(stage.refused("file.write", write("fifo", "x")).await, "volume_not_a_file");
    // A link goes, not what it leads to; and it is replaced, not followed.
    stage.good("file.write", write("absolute", "a file now")).await;
    stage.good("file.delete", at("relative")).await;
    stage.good("file.delete", at("magic")).await;
    let secret = std::fs::read_to_string(outside.join("secret")).expect("read");
    assert_eq!((secret.as_str(), outside.read_dir().expect("a folder").count()), ("s", 1));
    assert_eq!(std::fs::read_to_string(root.join("absolute")).expect("a file"), "a file now");
}
