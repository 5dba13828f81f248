//! One input, one answer: in a folder of the host, a workspace and a volume.

use std::fs;

use hivekeep_ports::WorkspaceReadiness;
use serde_json::{Value, json};

use super::stage::Stage;

/// Content of the file `f` before each call.
const BEFORE: &[u8] = b"one gr\xc3\xbcn\r\ntwo\nthree\r\nfour two\r\n";

/// Tool, input without its place, and the content of `f` after it where that is not as before.
fn cases() -> Vec<(&'static str, Value, Option<&'static str>)> {
    let edit = |old: &str, new: &str, all: bool| json!({ "path": "f", "old_string": old, "new_string": new, "replace_all": all });
    vec![
        ("file_write", json!({ "path": "f", "content": "x", "mode": "0755" }), Some("x")),
        ("file_write", json!({ "path": "f", "content": "x", "mode": "1777" }), Some("x")),
        ("file_write", json!({ "path": "f", "content": "x", "mode": "4755" }), None),
        ("file_write", json!({ "path": "f", "content": "x", "mode": "rwx" }), None),
        ("file_write", json!({ "path": "new/er/a b.rs", "content": "" }), None),
        ("file_write", json!({ "path": "folder", "content": "x" }), None),
        ("file_read", json!({ "path": "f" }), None),
        ("file_read", json!({ "path": "f", "offset": 7, "limit": 3 }), None),
        ("file_read", json!({ "path": "f", "offset": 5, "limit": 2 }), None),
        ("file_read", json!({ "path": "f", "limit": 0 }), None),
        ("file_read", json!({ "path": "f", "offset": 1000 }), None),
        ("file_read", json!({ "path": "none" }), None),
        ("file_read", json!({ "path": "folder" }), None),
        ("file_read", json!({ "path": "f/below" }), None),
        ("file_read", json!({ "path": "binary" }), None),
        ("file_read", json!({ "path": "a\0b" }), None),
        ("file_edit", edit("two", "2", false), Some("one grün\r\n2\nthree\r\nfour two\r\n")),
        ("file_edit", edit("two", "2", true), Some("one grün\r\n2\nthree\r\nfour 2\r\n")),
        ("file_edit", edit("three\nfour", "3\n4", false), Some("one grün\r\ntwo\n3\r\n4 two\r\n")),
        ("file_edit", edit("grün\ntwo\nthree\nfour", "a\nb", false), Some("one a\r\nb two\r\n")),
        ("file_edit", edit("five", "5", false), None),
        ("file_edit", json!({ "path": "binary", "old_string": "a", "new_string": "b" }), None),
        ("file_edit", json!({ "path": "none", "old_string": "a", "new_string": "b" }), None),
        ("fs.read", json!({ "path": "f", "limit": 5 }), None),
        ("fs.write", json!({ "path": "f", "content": "y" }), Some("y")),
        (
            "fs.edit",
            json!({ "path": "f", "target_content": "one", "replacement_content": "1" }),
            Some("1 grün\r\ntwo\nthree\r\nfour two\r\n"),
        ),
        (
            "fs.edit",
            json!({ "path": "f", "target_content": "two", "replacement_content": "1" }),
            None,
        ),
        ("fs.grep", json!({ "pattern": "t[wh]" }), None),
        ("fs.list", json!({ "path": "folder" }), None),
        ("file_exists", json!({ "path": "folder" }), None),
        ("file_rename", json!({ "oldPath": "f", "newPath": "folder" }), None),
        ("file_delete", json!({ "path": "folder" }), None),
    ]
}

#[tokio::test]
async fn an_input_has_the_same_answer_in_each_place() {
    let stage = Stage::new().await;
    let home = stage.machines.home.clone();
    let (guest, volume) = (home.join("guest"), home.join("volume"));
    let folders = [stage.work(""), guest.clone(), volume];
    stage.machines.put("mine", Some(stage.session()), WorkspaceReadiness::Ready);
    let places = ["work".to_owned(), format!("mine:{}", guest.display()), "volume:v".to_owned()];
    let bare = |text: String, place: &str, folder: &std::path::Path| {
        let text = text.replace(&format!("{}/", folder.display()), "").replace(place, "PLACE");
        text.replace("./", "")
    };
    for (tool, input, after) in cases() {
        let mut answers = Vec::new();
        for (place, folder) in places.iter().zip(&folders) {
            // The place has a handle of the folder itself.
            for name in ["folder", "new"] {
                drop(fs::remove_dir_all(folder.join(name)));
            }
            fs::create_dir_all(folder.join("folder/in")).expect("made");
            fs::write(folder.join("f"), BEFORE).expect("written");
            fs::write(folder.join("binary"), b"a\xff\xfe").expect("written");
            let mut input = input.clone();
            input["place"] = json!(place);
            let answer = match stage.tool(tool, input).await {
                Ok(done) => done.to_string(),
                Err(error) => {
                    format!("{} {} {}", error.code, error.message, json!(error.next_step))
                }
            };
            let answer = bare(answer, place, folder);
            let now = fs::read(folder.join("f")).expect("it is there");
            assert_eq!(
                String::from_utf8_lossy(&now),
                after.map_or(String::from_utf8_lossy(BEFORE), Into::into),
                "{tool} in {place}: {answer}"
            );
            answers.push(answer);
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{tool} {input}: {answers:#?}");
    }
}

#[tokio::test]
async fn a_workspace_by_its_id_is_that_place_whatever_places_are_called() {
    let stage = Stage::new().await;
    // A folder of the host has the name, too.
    stage.machines.put("work", Some(stage.session()), WorkspaceReadiness::Ready);
    let path = stage.outside("f").display().to_string();
    let args = json!({ "workspace_id": "work", "path": path, "content": "x", "mode": "0600" });
    let written = stage.tool("file_write", args).await.expect("written");
    assert_eq!((&written["path"], &written["mode"]), (&json!(path), &json!("0600")));
    let both = json!({ "workspace_id": "work", "place": "work", "path": path });
    let refused = stage.tool("file_read", both).await.expect_err("one of the two");
    assert_eq!(refused.code, "invalid_input");
    let nowhere = json!({ "workspace_id": "none", "path": path });
    let refused = stage.tool("file_read", nowhere).await.expect_err("it is not there");
    assert_eq!(refused.code, "workspace_not_found");
}
