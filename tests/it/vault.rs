//! The vault through the daemon's doors, and through a `kill -9`.

use serde_json::{Value, json};

use crate::{
    home::{Home, show, wait_until},
    wire::Wire,
};

fn call(wire: &mut Wire, id: i64, arguments: Value) -> Value {
    let answer = wire.call(id, "vault", arguments);
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    answer["result"]["structuredContent"].clone()
}

#[test]
fn notes_are_kept_beside_the_state_and_outlive_client_and_daemon() {
    let home = Home::new();
    let mut daemon = home.daemon();
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    wire.initialize();
    let listed = wire.ask(1, "tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().expect("tools");
    let vault = tools.iter().find(|tool| tool["name"] == "vault").expect("the tool is listed");
    assert_eq!(vault["inputSchema"]["required"], json!(["action"]));
    let text = "---\ntitle: Plan\n---\nThe first line. #idea\n";
    let write = json!({"action": "write", "path": "projects/plan.md", "content": text});
    assert_eq!(call(&mut wire, 2, write)["created"], true);
    let tag =
        json!({"action": "tags", "path": "projects/plan.md", "tags_action": "add", "tag": "x"});
    assert_eq!(call(&mut wire, 3, tag)["tags"], json!(["x", "idea"]));
    let found = call(&mut wire, 4, json!({"action": "search", "query": "first", "tag": "idea"}));
    assert_eq!(found["results"][0]["path"], "projects/plan.md");
    let refused = wire.call(5, "vault", json!({"action": "read", "path": "../mcp-token"}));
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    let (status, _) = wire.finish();
    assert!(status.success());

    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    let _again = home.daemon();
    let args = ["call", "vault", "-a", "action=read", "-a", "path=projects/plan.md", "--json"];
    let read = home.json(&args);
    let now = "---\ntitle: Plan\ntags:\n  - x\n---\nThe first line. #idea\n";
    assert_eq!(read["content"], now);
    let on_disk = std::fs::read_to_string(home.path("state/vault/projects/plan.md"));
    assert_eq!(on_disk.expect("a file like any other"), now);
}

#[test]
fn a_daemon_whose_vault_is_missing_serves_everything_else() {
    let missing = "/nonexistent/vault";
    let home = Home::new().with("HIVEKEEP_VAULT__PATH", missing);
    let _daemon = home.daemon();
    let refused = home.run(&["call", "vault", "-a", "action=stats"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("vault_unavailable") && said.contains(missing), "{}", show(&refused));
    home.ok(&["call", "workspace_list"]);
    wait_until("the vault says what it lacks", || {
        home.ok(&["ps"]).lines().any(|line| line.contains("vault") && line.contains("unavailable"))
    });
    let checked = home.run(&["check", "--json"]);
    let checked: Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    let findings = checked["findings"].as_array().expect("findings");
    let line = findings.iter().find(|finding| finding["what"] == "vault").expect("a line");
    assert_eq!((&line["ok"], &line["needed"]), (&json!(false), &json!(false)), "{line}");
}

/// The note is the old one until the rename and the new one after it, and nothing is left over.
#[test]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs failpoints: `cargo xtask t it`")]
fn a_kill_in_the_middle_of_a_write_leaves_a_whole_note() {
    for (point, expected) in [("vault.before_rename", "old"), ("vault.after_rename", "new")] {
        let home = Home::new();
        {
            let _daemon = home.daemon();
            let args =
                ["call", "vault", "-a", "action=write", "-a", "path=a.md", "-a", "content=old"];
            home.ok(&args);
        }
        let armed = format!("{point}=return(kill)");
        let home = home.with("FAILPOINTS", &armed);
        let mut daemon = home.daemon();
        let args = ["call", "vault", "-a", "action=write", "-a", "path=a.md", "-a", "content=new"];
        let cut_off = home.run(&args);
        assert!(!cut_off.status.success(), "{point}: {}", show(&cut_off));
        daemon.wait();
        let staging = home.path("state/vault/.hivekeep");
        let left = std::fs::read_dir(&staging).expect("a folder").count();
        // A draft has no name before it is whole, where the file system can do that.
        assert!(left <= usize::from(expected == "old"), "{point}: what the kill left");

        let home = home.with("FAILPOINTS", "");
        let _again = home.daemon();
        let args = ["call", "vault", "-a", "action=read", "-a", "path=a.md", "--json"];
        assert_eq!(home.json(&args)["content"], expected, "{point}");
        assert!(!staging.exists(), "{point}: litter");
        let listed = std::fs::read_dir(home.path("state/vault")).expect("a folder");
        assert_eq!(listed.count(), 1, "{point}");
    }
}
