//! Files of a place through the daemon's doors: with and without a workspace's name, and scripts through a
//! `kill -9`.

use serde_json::json;

use crate::{
    home::{Home, show},
    wire::Wire,
};

#[test]
fn a_call_without_a_workspace_works_in_the_place() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let home = Home::new();
    let config =
        format!("[session.places.work]\nfolder = {:?}\nread_only = false\n", folder.path());
    std::fs::write(home.path("config.toml"), config).expect("writes");
    let mut daemon = home.daemon();
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    wire.initialize();
    let mut call = |id, tool: &str, arguments| {
        let answer = wire.call(id, tool, arguments);
        (answer["result"]["isError"] == true, answer["result"]["structuredContent"].clone())
    };
    let write = json!({ "path": "src/main.rs", "content": "fn main() {}", "mode": "0755" });
    let (_, written) = call(1, "file_write", write);
    assert_eq!(
        (&written["place"], &written["mode"]),
        (&json!("work"), &json!("0755")),
        "{written}"
    );
    let edit = json!({ "workspace_id": null, "path": "src/main.rs", "old_string": "main", "new_string": "run" });
    assert_eq!(call(2, "file_edit", edit).1["replacements"], 1);
    let (_, read) = call(3, "file_read", json!({ "path": "/src/main.rs", "place": "work" }));
    assert_eq!(
        (&read["content"], &read["language"]),
        (&json!("fn run() {}"), &json!("rust")),
        "{read}"
    );
    let elsewhere = json!({ "path": "/src/main.rs", "workspace_id": "nowhere" });
    assert!(call(4, "file_read", elsewhere).0, "a workspace that is not there is not the place");
    let (_, saved) = call(5, "aegis_script_save", json!({ "name": "hi", "code": "echo" }));
    assert_eq!(saved["version"], 1, "by the name with underscores");
    drop(wire);
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    let _again = home.daemon();
    let kept = home.json(&["call", "aegis.script.get", "-a", "id=hi", "--json"]);
    assert_eq!(kept["code"], "echo");
}

#[test]
fn a_place_that_is_not_there_is_named_with_those_that_are() {
    let home = Home::new();
    let _daemon = home.daemon();
    let refused = home.run(&["call", "file_read", "-a", "path=a", "-a", "place=nowhere"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("place_unknown") && said.contains("session"), "{}", show(&refused));
}
