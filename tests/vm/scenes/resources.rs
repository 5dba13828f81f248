//! Files, logs and events of a workspace as resources.

use serde_json::{Value, json};

use crate::house::House;

pub fn a_workspace_is_read_by_uri_by_its_owner(house: House) {
    let client = house.attach();
    let call = |tool: &str, args: Value| client.call(tool, args).unwrap_or_else(|e| panic!("{e}"));
    call("workspace_create", json!({ "name": "mine" }));
    house.create("theirs");
    let write = |name: &str, path: &str, content: &str| json!({ "workspace_id": name, "path": path, "content": content });
    call("file_write", write("mine", "/work/a b/gr\u{fc}n #1.md", "gr\u{fc}n\n"));
    call("file_write", write("mine", "/work/large", &"x".repeat(1_100_000)));
    house.call("file_write", write("theirs", "/work/secret", "x"));
    call("exec", json!({ "workspace_id": "mine", "command": "printf '\\377' > /work/binary" }));

    let read = |path: &str| client.read(&format!("hivekeep://workspaces/{path}"));
    let refused = |path: &str| read(path).expect_err(path).to_string();
    let text = read("mine/files/work/a%20b/gr%C3%BCn%20%231.md").expect("the file");
    assert_eq!(text, "gr\u{fc}n\n");
    assert!(refused("mine/files/work/large").contains("too_large"));
    assert!(refused("mine/files/work/binary").contains("not_utf8"));
    assert!(refused("mine/files/work/none").contains("not_found"));
    assert!(refused("mine/files/work").contains("is_a_directory"));
    assert!(refused("theirs/files/work/secret").contains("not_owner"));
    assert!(refused("theirs/logs").contains("not_owner"));
    let logs = read("mine/logs").expect("the logs");
    assert!(logs.starts_with("== console\n") && logs.contains("== hypervisor\n"), "{logs}");

    let events = client.read("hivekeep://events/mine").expect("the events");
    let events: Value = serde_json::from_str(&events).expect("JSON");
    let events = events["events"].as_array().expect("a list");
    let kinds: Vec<_> = events.iter().map(|event| event["kind"].as_str().unwrap_or("?")).collect();
    assert!(kinds.iter().any(|kind| kind.starts_with("workspace.")), "{kinds:?}");
    let theirs = client.read("hivekeep://events/theirs").expect_err("not its own");
    assert!(theirs.to_string().contains("not_owner"), "{theirs}");
}
