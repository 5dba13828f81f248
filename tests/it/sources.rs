//! Other MCP servers as sources of tools: one that misbehaves on request, in a sandbox, driven from outside.

mod guarded;
mod http;
mod npm;

use std::{
    os::unix::fs::MetadataExt,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    home::{Home, PATIENCE, wait_until},
    wire::Wire,
};

/// Program of the server that misbehaves.
fn odd_server() -> PathBuf {
    let daemon = PathBuf::from(env!("CARGO_BIN_EXE_hivekeep"));
    let program = daemon.parent().expect("a folder").join("examples/odd_mcp_server");
    assert!(program.exists(), "{} is not built: run with --examples", program.display());
    program
}

/// A home whose daemon may be asked as often as a test likes.
fn quick() -> Home {
    Home::new().with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false")
}

/// A home with the odd server as a source: more keys of it, and more of the configuration.
fn home_with(server: &str, more: &str) -> Home {
    let home = quick();
    let (program, mark) = (odd_server(), home.path("mark"));
    let folder = program.parent().expect("a folder");
    let config = format!(
        "[source.servers.odd]\ncommand = [{program:?}, {mark:?}]\nfolders = [\"{}:ro\"]\n{server}\n{more}",
        folder.display(),
    );
    std::fs::write(home.path("config.toml"), config).expect("writes");
    home
}

/// As [`home_with`], and the operator trusts it.
fn home() -> Home {
    home_with("timeout_secs = 5", "[policy]\nsource_default = \"allow\"")
}

/// The row of a source.
fn row(home: &Home, name: &str) -> Value {
    let listed = home.json(&["call", "source_list", "--json"]);
    let rows = listed["sources"].as_array().expect("a list");
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{listed}")).clone()
}

/// The row of a source, once it is in a state.
fn state(home: &Home, name: &str, state: &str) -> Value {
    let began = Instant::now();
    loop {
        let last = row(home, name);
        if last["state"] == state {
            return last;
        }
        assert!(began.elapsed() < PATIENCE, "not {state}: {last}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn wait_for(home: &Home, wanted: &str) -> Value {
    state(home, "odd", wanted)
}

fn ready(home: &Home, name: &str) -> Value {
    state(home, name, "ready")
}

fn names(wire: &mut Wire, id: i64) -> Vec<String> {
    let listed = wire.ask(id, "tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// The error of a refused or failed call.
fn error(answer: &Value) -> Value {
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let whole = answer["result"]["content"][1]["text"].as_str().expect("the whole error");
    serde_json::from_str::<Value>(whole).expect("JSON")["error"].clone()
}

#[test]
fn what_is_valid_is_offered_and_the_rest_is_named_with_its_reason() {
    let home = home();
    let _daemon = home.daemon();
    let row = wait_for(&home, "ready");
    assert_eq!((&row["server"], &row["transport"]), (&json!("odd 1"), &json!("stdio")));
    let tools: Vec<_> = row["tools"].as_array().expect("a list").iter().collect();
    assert!(tools.contains(&&json!("mcp__odd__echo")), "{row}");
    let left_out = row["left_out"].as_array().expect("a list");
    for (name, why) in [
        ("two.names", "has the same name"),
        ("Not A Name", "letters, digits"),
        ("wide", "longer than 16384 bytes"),
        ("untyped", "not an object"),
        ("afar", "not valid"),
        ("schemaless", "inputSchema"),
        ("hinting", "not valid"),
        ("the rest of its list", "begins again"),
    ] {
        let found = left_out.iter().find(|one| one["name"] == name);
        let found = found.unwrap_or_else(|| panic!("{name} is not left out: {row}"));
        assert!(found["why"].as_str().is_some_and(|text| text.contains(why)), "{found}");
    }

    let mut wire = Wire::mcp(&home);
    let listed = wire.ask(1, "tools/list", json!({}));
    let echo = listed["result"]["tools"].as_array().expect("a list").iter();
    let echo = echo.clone().find(|tool| tool["name"] == "mcp__odd__echo").expect("listed").clone();
    assert_eq!(echo["description"], "Say a text again.");
    // What it says of itself is believed only where the operator says so.
    assert_eq!(echo["annotations"]["readOnlyHint"], false, "{echo}");
    let answer = wire.call(2, "mcp__odd__echo", json!({ "text": "héllo" }));
    assert_eq!(text(&answer), "héllo");
    let counted = wire.call(3, "mcp__odd__count", json!({ "text": "four" }));
    assert_eq!(counted["result"]["structuredContent"], json!({ "count": 4 }), "{counted}");
    let wrong = wire.call(4, "mcp__odd__echo", json!({ "text": 4 }));
    assert_eq!(error(&wrong)["code"], "invalid_input");

    let strange = wire.call(8, "mcp__odd__strange", json!({}));
    assert_eq!(text(&strange), "cut \u{fffd} here");
    let unknown = strange["result"]["content"][1]["text"].as_str().expect("told in its place");
    assert!(unknown.contains("`hologram` is left out"), "{unknown}");

    let conflict = wire.call(5, "mcp__odd__two_names", json!({}));
    let refused = error(&conflict);
    assert_eq!(
        (&refused["code"], &refused["details"]["policy"]),
        (&json!("denied"), &json!("availability"))
    );
    assert!(!names(&mut wire, 6).contains(&"mcp__odd__two_names".to_owned()));

    // Found by what it does, and called from the command line.
    let found = wire.call(7, "aegis.tools.search", json!({ "query": "say a text again" }));
    let first = &found["result"]["structuredContent"]["tools"][0];
    assert_eq!(
        (&first["name"], &first["source"]),
        (&json!("mcp__odd__echo"), &json!("mcp")),
        "{found}"
    );
    let said = home.json(&["call", "mcp__odd__echo", "-a", "text=again", "--json"]);
    assert_eq!(said["content"][0]["text"], "again");
    assert!(home.ok(&["call", "mcp__odd__echo", "--help"]).contains("Say a text again"));
}

#[test]
fn pictures_sounds_and_files_pass_through_whole() {
    let home = home();
    let _daemon = home.daemon();
    wait_for(&home, "ready");
    let mut wire = Wire::mcp(&home);
    let answer = wire.call(1, "mcp__odd__picture", json!({}));
    let content = answer["result"]["content"].as_array().expect("a list");
    assert_eq!(
        (&content[0]["type"], &content[0]["mimeType"]),
        (&json!("image"), &json!("image/png"))
    );
    assert!(content[0]["data"].as_str().is_some_and(|data| data.starts_with("iVBORw0KGgo")));
    assert_eq!((&content[1]["type"], &content[1]["data"]), (&json!("audio"), &json!("AAAA")));
    assert_eq!(content[2]["resource"]["text"], "whole", "{answer}");
}

#[test]
fn a_server_sees_its_own_home_and_nothing_of_the_host() {
    let home = home_with("env = { GIVEN = \"yes\" }", "[policy]\nsource_default = \"allow\"");
    let _daemon = home.daemon();
    wait_for(&home, "ready");
    let look = || -> Value {
        let seen = home.json(&["call", "mcp__odd__look", "--json"]);
        serde_json::from_str(seen["content"][0]["text"].as_str().expect("a text")).expect("JSON")
    };
    let seen = look();
    assert_eq!(seen["seen"], json!(["/srv/source"]), "{seen}");
    assert_eq!(seen["interfaces"], json!(["lo"]), "{seen}");
    assert_eq!(seen["written"], true);
    assert_eq!(seen["sets_the_kernel"], false);
    for process in of_mark(&home.path("mark").to_string_lossy()) {
        let user = std::fs::metadata(&process).map_or(u32::MAX, |meta| meta.uid());
        assert_ne!(user, 0, "{} is root of the host", process.display());
    }
    let mut variables: Vec<_> = seen["variables"].as_array().expect("a list").iter().collect();
    variables.retain(|one| !one.as_str().is_some_and(|one| one.starts_with("PWD=")));
    assert_eq!(variables.len(), 5, "{seen}");
    assert!(variables.contains(&&json!("GIVEN=yes")));
    // Its home outlives it.
    assert_eq!(look()["kept"], "yes");
}

#[test]
fn a_failure_a_lie_a_death_and_a_silence_are_told_apart_and_cost_nobody_else() {
    let home = home();
    let _daemon = home.daemon();
    wait_for(&home, "ready");
    let mut wire = Wire::mcp(&home);
    let failed = error(&wire.call(1, "mcp__odd__fail", json!({ "text": "rain" })));
    assert_eq!(failed["code"], "source_tool_failed");
    assert!(failed["message"].as_str().is_some_and(|text| text.contains("because of rain")));
    let lied = error(&wire.call(2, "mcp__odd__lie", json!({})));
    assert_eq!(
        (&lied["code"], &lied["details"]["outcome"]),
        (&json!("source_answer_refused"), &json!("unknown"))
    );

    let mark = home.path("mark").to_string_lossy().into_owned();
    let left = error(&wire.call(3, "mcp__odd__leave", json!({})));
    assert_eq!(
        (&left["code"], &left["details"]["outcome"]),
        (&json!("source_unreachable"), &json!("unknown"))
    );
    // What it had started went with it, and another one is there.
    wait_for(&home, "ready");
    wait_until("nothing is left of the first", || processes(&mark) == 2);
    assert_eq!(text(&wire.call(4, "mcp__odd__echo", json!({ "text": "back" }))), "back");

    let hung = error(&wire.call(5, "mcp__odd__hang", json!({})));
    assert_eq!(hung["code"], "deadline_exceeded");
    // It reads nothing any more, so that a long call fills its pipe.
    let long = error(&wire.call(7, "mcp__odd__echo", json!({ "text": "x".repeat(400_000) })));
    assert_eq!(long["code"], "deadline_exceeded");
    // It is found silent, and replaced.
    wait_until("it answers again", || {
        let answer = home.run(&["call", "mcp__odd__echo", "-a", "text=x"]);
        answer.status.success()
    });
    // All the while the daemon's own tools are what they were.
    assert_eq!(wire.call(6, "workspace_list", json!({}))["result"]["isError"], false);
}

/// Processes of the host with a mark among their arguments: bubblewrap and what it runs.
fn processes(mark: &str) -> usize {
    of_mark(mark).len() + 1
}

/// Those of them that bubblewrap runs, as folders of `/proc`.
fn of_mark(mark: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir("/proc").expect("processes").flatten();
    let marked = all.filter(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(mark) && !line.starts_with("bwrap")
    });
    marked.map(|entry| entry.path()).collect()
}

#[test]
fn a_server_that_a_killed_daemon_left_is_ended_by_the_next_one() {
    let home = home();
    let mut left = std::process::Command::new("sleep")
        .arg("1000")
        .env("HIVEKEEP_HOST_PROCESS", home.path("state/sources/odd"))
        .spawn()
        .expect("the program runs");
    let _daemon = home.daemon();
    let ended = left.try_wait().expect("asked");
    left.kill().expect("ended or killed");
    assert!(ended.is_some(), "before the daemon serves");
    wait_for(&home, "ready");
}

#[test]
fn progress_a_trace_and_a_cancellation_reach_the_server() {
    let home = home();
    let _daemon = home.daemon();
    wait_for(&home, "ready");
    let mut wire = Wire::mcp(&home);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let params = json!({
        "name": "mcp__odd__wait", "arguments": { "text": "300" },
        "_meta": { "progressToken": "p", "traceparent": trace },
    });
    wire.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }));
    let (mut told, mut answer) = (false, Value::Null);
    while answer.is_null() {
        let message = wire.receive();
        match message["method"].as_str() {
            Some("notifications/progress") => told |= message["params"]["message"] == "half",
            Some(_) => {}
            None => answer = message,
        }
    }
    assert!(told, "no progress before {answer}");
    assert!(text(&answer).contains("0af7651916cd43dd8448eb211c80319c"), "{answer}");

    let params = json!({ "name": "mcp__odd__wait", "arguments": { "text": "4000" } });
    wire.send(&json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params }));
    let cancelled = json!({ "requestId": 2 });
    wire.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled }),
    );
    // It does one thing at a time, and is not taken for dead.
    assert_eq!(text(&wire.call(3, "mcp__odd__echo", json!({ "text": "next" }))), "next");
}

#[test]
fn a_list_that_changes_is_told_and_kept_over_a_start_without_the_server() {
    let home = home();
    let daemon = home.daemon();
    wait_for(&home, "ready");
    let mut wire = Wire::mcp(&home);
    assert!(!names(&mut wire, 1).contains(&"mcp__odd__grown".to_owned()));
    wire.send(&json!({
        "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": { "name": "mcp__odd__grow", "arguments": {} },
    }));
    let (mut told, mut answered) = (false, false);
    while !(told && answered) {
        let message = wire.receive();
        told |= message["method"] == "notifications/tools/list_changed";
        answered |= message["id"] == 2;
    }
    assert!(names(&mut wire, 3).contains(&"mcp__odd__grown".to_owned()));
    drop((wire, daemon));

    // The program is gone: its tools stay listed, and a call says what is the matter.
    let config = std::fs::read_to_string(home.path("config.toml")).expect("reads");
    let config = config.replace("odd_mcp_server\"", "no_such_program\"");
    std::fs::write(home.path("config.toml"), config).expect("writes");
    let _daemon = home.daemon();
    let row = wait_for(&home, "unreachable");
    assert!(row["why"].as_str().is_some_and(|why| why.contains("no_such_program")), "{row}");
    let mut wire = Wire::mcp(&home);
    assert!(names(&mut wire, 1).contains(&"mcp__odd__grown".to_owned()));
    let refused = error(&wire.call(2, "mcp__odd__grown", json!({})));
    assert_eq!(refused["code"], "source_unreachable", "{refused}");
    assert_eq!(refused["details"]["outcome"], "nothing_done");
    assert_eq!(refused["retryable"], true);
}

#[test]
fn a_source_is_as_trusted_as_the_operator_says() {
    // By default a person is asked; a rule or the list of an agent grants by name.
    let rule =
        "[[policy.rules]]\nname = \"echo\"\neffect = \"allow\"\ntools = [\"mcp__odd__echo\"]\n";
    let home = home_with("", rule);
    let daemon = home.daemon();
    wait_for(&home, "ready");
    let verdict = |home: &Home, tool: &str| -> String {
        let told = home.ok(&["policy", "explain", tool]);
        let line = told.lines().find(|line| line.starts_with("source "));
        line.unwrap_or_else(|| panic!("{told}"))
            .split_whitespace()
            .nth(1)
            .expect("a ruling")
            .to_owned()
    };
    assert_eq!(verdict(&home, "mcp__odd__echo"), "allow");
    assert_eq!(verdict(&home, "mcp__odd__count"), "ask");
    assert_eq!(verdict(&home, "workspace_list"), "allow");
    drop(daemon);

    let home = home_with("", "[policy.sources]\nodd = \"deny\"");
    let _daemon = home.daemon();
    wait_for(&home, "ready");
    assert_eq!(verdict(&home, "mcp__odd__echo"), "deny");
    let mut wire = Wire::mcp(&home);
    assert!(!names(&mut wire, 1).iter().any(|name| name.starts_with("mcp__odd__")));
    assert_eq!(error(&wire.call(2, "mcp__odd__echo", json!({})))["details"]["policy"], "source");
}

#[test]
fn what_does_not_only_read_runs_one_after_another() {
    let home = home_with(
        "trust_annotations = true\ntimeout_secs = 20",
        "[policy]\nsource_default = \"allow\"",
    );
    let _daemon = home.daemon();
    wait_for(&home, "ready");
    let mut wire = Wire::mcp(&home);
    for id in 1..=3 {
        let params = json!({ "name": "mcp__odd__wait", "arguments": { "text": "1500" } });
        wire.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }));
    }
    // Two of the three wait for their turn, and the registry says so.
    wait_until("the others wait", || {
        let tree = home.ok(&["ps"]);
        assert!(!tree.contains("2 in flight") && !tree.contains("3 in flight"), "{tree}");
        tree.contains("1 in flight") && tree.contains("2 waiting")
    });
    for _ in 1..=3 {
        assert_eq!(wire.next_answer()["result"].get("isError"), None);
    }
}
