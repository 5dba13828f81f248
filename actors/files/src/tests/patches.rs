//! `read` and `patch`, and manifests that are judged before they are put in place.

use std::fs;

use hivekeep_ports::{ManifestCheck, ManifestProblem, WorkspaceReadiness};
use serde_json::json;
use std::sync::Arc;

use super::stage::Stage;

/// Finds each `bad` of a text.
struct NoBad;

impl ManifestCheck for NoBad {
    fn dag(&self, text: &str) -> Vec<ManifestProblem> {
        let lines = (1..).zip(text.lines());
        let bad = lines.filter_map(|(line, text)| Some((line, text.find("bad")? + 1)));
        let message = "is bad".to_owned();
        bad.map(|(line, column)| ManifestProblem {
            line,
            column,
            path: String::new(),
            message: message.clone(),
        })
        .collect()
    }
}

#[tokio::test]
async fn lines_are_numbered_and_go_on() {
    let stage = Stage::new().await;
    fs::write(stage.work("f"), "one\ntwo\nthree\n").expect("written");
    let read = async |args| stage.tool("read", args).await;
    let all = read(json!({ "path": "f" })).await.expect("read");
    assert_eq!(all["content"], "     1\tone\n     2\ttwo\n     3\tthree\n");
    assert_eq!((&all["lines"], &all["left"]), (&json!(3), &json!(0)));
    assert!(all.get("next_offset").is_none());
    let part = read(json!({ "path": "f", "offset": 2, "limit": 1 })).await.expect("read");
    assert_eq!((&part["content"], &part["next_offset"]), (&json!("     2\ttwo\n"), &json!(3)));
    let past = read(json!({ "path": "f", "offset": 4 })).await.expect_err("behind the end");
    assert_eq!(past.code, "past_end");
    fs::write(stage.work("f"), b"\x7fELF\0").expect("written");
    let binary = read(json!({ "path": "f" })).await.expect_err("binary");
    assert_eq!((binary.code.as_ref(), &binary.details["size_bytes"]), ("not_utf8", &json!(5)));
}

#[tokio::test]
async fn files_are_made_changed_and_deleted() {
    let stage = Stage::new().await;
    let patch = async |args| stage.tool("patch", args).await;
    let create = json!({ "path": "a/f", "operation": "create", "content": "one\ntwo\n" });
    let made = patch(create).await.expect("made");
    assert_eq!((&made["lines"], &made["replaced"]), (&json!(2), &json!(false)));
    assert!(made.get("manifest_check").is_none());
    let replace = |old: &str| json!({ "path": "a/f", "operation": "replace", "old_string": old, "new_string": "1" });
    assert_eq!(patch(replace("one")).await.expect("replaced")["lines"], 2);
    assert_eq!(patch(replace("three")).await.expect_err("none").code, "no_match");
    let lacking = json!({ "path": "a/f", "operation": "replace", "new_string": "1" });
    assert_eq!(patch(lacking).await.expect_err("no old text").code, "invalid_input");
    assert_eq!(fs::read_to_string(stage.work("a/f")).expect("there"), "1\ntwo\n");
    let delete = |path: &str| json!({ "path": path, "operation": "delete" });
    assert_eq!(patch(delete("a")).await.expect_err("not empty").code, "folder_not_empty");
    patch(delete("a/f")).await.expect("deleted");
    patch(delete("a")).await.expect("deleted");
}

#[tokio::test]
async fn a_manifest_is_put_in_place_only_when_it_is_valid() {
    let stage = Stage::new().await;
    stage.machines.put("w", Some(stage.session()), WorkspaceReadiness::Ready);
    let create = |place: &str, path: &str, text: &str| json!({ "place": place, "path": path, "operation": "create", "content": text });
    let patch = async |args| stage.tool("patch", args).await;
    let unchecked = patch(create("work", "dags/x.yaml", "bad")).await.expect("nobody judges it");
    assert_eq!(unchecked["manifest_check"], "unavailable");
    stage.daemon().ports.offer::<dyn ManifestCheck>(Arc::new(NoBad));
    let good = patch(create("work", "dags/x.yaml", "fine\nso far\n")).await.expect("valid");
    assert_eq!(good["manifest_check"], "passed");
    let paths = ["dags/x.yaml", "/dags/x.yaml", "o/../dags/./x.yaml", "dags/x.YML"];
    for path in paths {
        let error = patch(create("work", path, "a\n  bad\nbad")).await.expect_err(path);
        assert_eq!(error.code, "manifest_refused", "{path}");
        let problem = json!({ "line": 2, "column": 3, "path": "", "message": "is bad" });
        assert_eq!((&error.details["problems"][0], &error.details["count"]), (&problem, &json!(2)));
    }
    let replace = json!({ "path": "dags/x.yaml", "operation": "replace", "old_string": "so far", "new_string": "bad" });
    assert_eq!(patch(replace).await.expect_err("invalid").code, "manifest_refused");
    assert_eq!(fs::read_to_string(stage.work("dags/x.yaml")).expect("there"), "fine\nso far\n");
    assert!(!stage.work("dags/x.YML").exists());
    std::os::unix::fs::symlink("dags", stage.work("alias")).expect("linked");
    std::os::unix::fs::symlink("alias/x.yaml", stage.work("note.txt")).expect("linked");
    for path in ["alias/x.yaml", "note.txt", "alias/new/y.yaml"] {
        let error = patch(create("work", path, "bad")).await.expect_err(path);
        assert_eq!(error.code, "manifest_refused", "{path}");
    }
    // What is no manifest: by its folder, by its name.
    for path in ["x.yaml", "dags.yaml", "dags/x.txt", "dagsx/y.yaml"] {
        let written = patch(create("work", path, "bad")).await.expect(path);
        assert!(written.get("manifest_check").is_none(), "{path}");
    }
    let in_guest = patch(create("w", "/workspace/dags/y.yaml", "bad")).await;
    assert_eq!(in_guest.expect_err("invalid").code, "manifest_refused");
    let relative = patch(create("w", "dags/y.yaml", "bad")).await;
    assert_eq!(relative.expect_err("invalid").code, "manifest_refused");
}
