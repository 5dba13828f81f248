//! File tools on workspaces, and the workspace of a session's own.

use std::thread;

use serde_json::{Value, json};

use super::crash::die_at;
use crate::{house::House, leaks};

/// Names of the workspaces there are.
fn names(house: &House) -> Vec<String> {
    let name = |row: &Value| row["name"].as_str().expect("a name").to_owned();
    house.list().iter().map(name).collect()
}

/// Waits for the session's own workspace; its name.
fn own(house: &House) -> String {
    let found = names(house).into_iter().find(|name| name.starts_with("session-"));
    let name = found.expect("it was made");
    house.wait_state(&name, "running");
    name
}

pub fn every_file_tool_works_in_a_workspace(house: House) {
    house.create("w");
    let call = |tool: &str, mut args: Value| {
        args["place"] = json!("w");
        let answer = house.call(tool, args);
        assert_eq!(answer["place"], "w", "{tool}: {answer}");
        answer
    };
    let write = json!({ "path": "src/main.rs", "content": "fn main() {}\n" });
    assert_eq!(call("fs.write", write)["path"], "/workspace/src/main.rs");
    assert_eq!(house.exec("w", "cat /workspace/src/main.rs"), "fn main() {}\n");
    let large = "0123456789abcde\n".repeat(200_000);
    call("fs.write", json!({ "path": "/var/tmp/large", "content": large }));
    let read = call("fs.read", json!({ "path": "/var/tmp/large", "limit": 4_194_304 }));
    assert!(read["content"] == json!(large), "three megabytes come back");
    call("fs.create_dir", json!({ "path": "out/deep" }));
    let edit = json!({ "path": "src/main.rs", "target_content": "{}", "replacement_content": "{ run() }" });
    assert_eq!(call("fs.edit", edit)["applied"], 1);
    let edits = json!([{ "target_content": "main", "replacement_content": "start" }, { "target_content": "run", "replacement_content": "go" }]);
    call("fs.multi_edit", json!({ "path": "src/main.rs", "edits": edits }));
    let grep = json!({ "path": ".", "pattern": r"go\(\)", "gitignore": true });
    let found = call("fs.grep", grep);
    assert_eq!(found["matches"], json!(["/workspace/src/main.rs:1:fn start() { go() }"]));
    let glob = call("fs.glob", json!({ "path": "/workspace", "pattern": "**/*.rs" }));
    assert_eq!(glob["paths"], json!(["/workspace/src/main.rs"]));
    assert_eq!(call("fs.list", json!({ "path": "." }))["total"], 2);
    let moved = json!({ "oldPath": "src/main.rs", "newPath": "src/lib.rs" });
    assert_eq!(call("file_rename", moved)["newPath"], "/workspace/src/lib.rs");
    assert_eq!(call("file_exists", json!({ "path": "src/main.rs" }))["exists"], false);
    assert_eq!(call("dir_list", json!({ "path": "src" }))["entries"][0]["name"], "lib.rs");
    call("dir_create", json!({ "path": "src/bin" }));
    let lines = call("read", json!({ "path": "src/lib.rs" }));
    assert_eq!(lines["content"], "     1\tfn start() { go() }\n");
    let patch = json!({ "path": "src/lib.rs", "operation": "replace", "old_string": "go", "new_string": "on" });
    assert_eq!(call("patch", patch)["lines"], 1);
    call("file_delete", json!({ "path": "src/bin" }));
    call("fs.delete", json!({ "path": "src", "recursive": true }));
    assert_eq!(house.exec("w", "ls /workspace").trim(), "out");
    // Nothing waits for what is no file, and absolute links lead where they lead in the guest.
    house.exec("w", "mkfifo /workspace/pipe; echo of the guest > /etc/hk; ln -s /etc/hk /workspace/link; ln -s /dev/zero /workspace/zero");
    for path in ["pipe", "zero", "/dev/null"] {
        let args = json!({ "place": "w", "path": path });
        assert_eq!(house.refused("fs.read", args).code, "not_a_file", "{path}");
    }
    assert_eq!(call("fs.read", json!({ "path": "link" }))["content"], "of the guest\n");
    let kernel = call("fs.glob", json!({ "path": "/", "pattern": "kcore" }));
    assert!(kernel["unreadable_count"].as_u64() >= Some(1) && kernel["count"] == 0, "{kernel}");
    let search = json!({ "path": "/etc", "pattern": "root", "limit": 5 });
    assert!(call("fs.grep", search)["count"].as_u64() > Some(0));
    // Another session has neither this workspace nor the first one's own.
    let other = house.attach();
    let refused = other.call("dir_list", json!({ "place": "w", "path": "." }));
    let refused = refused.expect_err("it is another session's");
    assert!(format!("{refused:?}").contains("not_owner"), "{refused:?}");
}

pub fn a_session_has_one_workspace_of_its_own(mut house: House) {
    thread::scope(|scope| {
        for n in 0..4 {
            let house = &house;
            scope.spawn(move || {
                let args = json!({ "path": format!("f{n}"), "content": "x" });
                let written = house.call("fs.write", args);
                assert_eq!(written["place"], "session");
            });
        }
    });
    let name = own(&house);
    assert_eq!(names(&house), [name.as_str()], "four calls made one");
    assert_eq!(house.exec(&name, "ls /workspace"), "f0\nf1\nf2\nf3\n");
    house.call("workspace_stop", json!({ "workspace_id": name }));
    let read = house.call("file_read", json!({ "path": "f3" }));
    assert_eq!((&read["content"], &read["place"]), (&json!("x"), &json!("session")));
    house.call("workspace_destroy", json!({ "workspace_id": name }));
    // Killed right after its creation, and before that was acknowledged.
    for point in ["places.after_created", "create.before_created"] {
        die_at(&mut house, point, |house| {
            let answer = house.try_call("fs.write", json!({ "path": "f", "content": point }));
            assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
        });
        let left = names(&house);
        house.call("fs.write", json!({ "path": "f", "content": "again" }));
        assert_eq!(names(&house), [name.as_str()], "{point}: it was {left:?}");
        if point == "places.after_created" {
            assert_eq!(left, [name.as_str()], "found again, not made again");
        }
        house.call("workspace_destroy", json!({ "workspace_id": name }));
        leaks::check(&house);
    }
}
