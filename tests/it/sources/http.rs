//! A source over streamable HTTP that wants a credential.

use serde_json::json;

use super::{
    error,
    guarded::{self, HALF, LOOK, TOKEN},
    quick, wait_for,
};
use crate::wire::Wire;

#[test]
fn a_credential_is_read_from_its_file_and_each_refusal_has_its_own_state() {
    let url = guarded::start();
    let home = quick();
    let write = |more: &str| {
        let trust = "[policy]\nsource_default = \"allow\"";
        let config = format!("{trust}\n[source.servers.odd]\nurl = \"{url}\"\n{more}");
        std::fs::write(home.path("config.toml"), config).expect("writes");
    };
    write("");
    let daemon = home.daemon();
    wait_for(&home, "auth_required");
    drop(daemon);

    let file = home.path("token");
    write(&format!("token_file = {file:?}"));
    std::fs::write(&file, "wrong\n").expect("writes");
    let _daemon = home.daemon();
    wait_for(&home, "auth_invalid");
    std::fs::write(&file, "over\n").expect("writes");
    wait_for(&home, "auth_expired");
    std::fs::write(&file, HALF).expect("writes");
    wait_for(&home, "auth_invalid");
    // It is read again at each try.
    std::fs::write(&file, format!("{TOKEN}\n")).expect("writes");
    let row = wait_for(&home, "ready");
    assert_eq!((&row["transport"], &row["server"]), (&json!("http"), &json!("guarded 1")));
    let mut wire = Wire::mcp(&home);
    let answer = wire.call(1, "mcp__odd__hello", json!({}));
    assert_eq!(answer["result"]["content"][0]["text"], "let in", "{answer}");
    for (what, text) in [
        ("its output", std::fs::read_to_string(home.path("daemon.out")).unwrap_or_default()),
        ("its sources", home.ok(&["call", "source_list", "--json"])),
    ] {
        assert!(!text.contains(TOKEN), "{what} tells the token");
    }
}

#[test]
fn a_call_to_a_source_that_lets_nobody_in_says_who_has_to_do_what() {
    let url = guarded::start();
    let home = quick();
    let config = format!(
        "[policy]\nsource_default = \"allow\"\n[source.servers.odd]\nurl = \"{url}\"\ntoken_file = {:?}",
        home.path("token"),
    );
    std::fs::write(home.path("config.toml"), config).expect("writes");
    std::fs::write(home.path("token"), TOKEN).expect("writes");
    let daemon = home.daemon();
    wait_for(&home, "ready");
    drop(daemon);
    // What it listed is kept, and its credential is none any more.
    std::fs::write(home.path("token"), "wrong").expect("writes");
    let _daemon = home.daemon();
    wait_for(&home, "auth_invalid");
    let mut wire = Wire::mcp(&home);
    let refused = error(&wire.call(1, "mcp__odd__hello", json!({})));
    assert_eq!(refused["code"], "source_auth_failed", "{refused}");
    assert_eq!(refused["details"]["outcome"], "nothing_done");
    // One that is let in for less than a call.
    std::fs::write(home.path("token"), LOOK).expect("writes");
    wait_for(&home, "ready");
    let refused = error(&wire.call(2, "mcp__odd__hello", json!({})));
    assert_eq!(refused["code"], "source_auth_failed", "{refused}");
    assert_eq!(refused["details"]["outcome"], "nothing_done");
}
