//! `hivekeep acp`, driven by an editor that is lines alone.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    home::{Daemon, Home, wait_until},
    wire::Wire,
};

const MANIFEST: &str = "apiVersion: 100monkeys.ai/v1\nkind: Agent\nmetadata: { name: keeper, version: 1.0.0 }\nspec:\n  \
    runtime: { language: python, version: '3.11' }\n  tools: [aegis.script.save]\n  \
    task: { instruction: Keep scripts. }\n";

/// A daemon with an agent that keeps a script when a person lets it, and an editor in its first session.
fn stage() -> (Home, Daemon, Wire, String) {
    let home = Home::new();
    let script = home.path("replies.json");
    let save = json!({ "name": "kept", "code": "echo kept" });
    let replies = json!({ "replies": [
        { "when": "Keep", "text": "I keep it.", "calls": [{ "name": "aegis_script_save", "arguments": save }] },
        { "when": "Never", "text": "Too late.", "delay_ms": 600_000 },
        { "when": "Slowly", "text": "It came.", "delay_ms": 1_500 },
        { "when": "", "text": "It is kept now." },
    ] });
    std::fs::write(&script, replies.to_string()).expect("writes");
    let config = format!(
        "[model.provider.script]\nkind = \"scripted\"\nscript = {script:?}\nmodels = {{ m = {{}} }}\n"
    );
    std::fs::write(home.path("config.toml"), config).expect("writes");
    let daemon = home.daemon();
    let manifest = json!({ "manifest_yaml": MANIFEST }).to_string();
    home.ok(&["call", "aegis.agent.create", "--json", &manifest]);
    home.ok(&["policy", "add", "careful", "ask", "aegis.script.save"]);
    let mut editor = editor(&home);
    let opened = editor.ask(1, "session/new", json!({ "cwd": "/tmp/project", "mcpServers": [] }));
    let session = opened["result"]["sessionId"].as_str().expect("an id").to_owned();
    (home, daemon, editor, session)
}

fn editor(home: &Home) -> Wire {
    let mut editor = Wire::acp(home, &["--agent", "keeper"]);
    let begun =
        editor.ask(0, "initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} }));
    let can = &begun["result"]["agentCapabilities"];
    assert_eq!(
        (&begun["result"]["protocolVersion"], &can["loadSession"]),
        (&json!(1), &json!(true))
    );
    let sessions = can["sessionCapabilities"].as_object().expect("capabilities");
    assert_eq!(
        sessions.keys().collect::<Vec<_>>(),
        ["list", "resume"],
        "what is stable, and no more"
    );
    editor
}

fn prompt(editor: &mut Wire, id: i64, session: &str, text: &str) {
    let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
    editor
        .send(&json!({ "jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": params }));
}

/// Frames up to one that `ends`, each as its kind and what it is about, and that one.
fn until(editor: &mut Wire, ends: impl Fn(&Value) -> bool) -> (Vec<String>, Value) {
    let mut seen = Vec::new();
    loop {
        let frame = editor.receive();
        if ends(&frame) {
            return (seen, frame);
        }
        let update = &frame["params"]["update"];
        let about = [&update["content"]["text"], &update["title"], &update["status"]];
        let about = about.into_iter().find_map(Value::as_str);
        let kind = update["sessionUpdate"].as_str().or(frame["method"].as_str());
        seen.push(format!("{} {}", kind.unwrap_or("-"), about.unwrap_or("-")));
    }
}

fn answers(id: i64) -> impl Fn(&Value) -> bool {
    move |frame| frame["id"] == id && frame.get("method").is_none()
}

#[test]
fn an_editor_prompts_permits_cancels_and_reads_what_was_said() {
    let (home, _daemon, mut editor, session) = stage();
    prompt(&mut editor, 2, &session, "Keep the script");
    let asks = |frame: &Value| frame["method"] == "session/request_permission";
    let (seen, asked) = until(&mut editor, asks);
    assert_eq!(seen, ["agent_message_chunk I keep it.", "tool_call aegis_script_save kept"]);
    let params = &asked["params"];
    assert_eq!(params["toolCall"]["toolCallId"], "1.1.1", "{asked}");
    assert_eq!(params["toolCall"]["rawInput"]["code"], "echo kept", "{asked}");
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "allow" } });
    editor.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": outcome }));
    let (seen, end) = until(&mut editor, answers(2));
    assert_eq!(seen, ["tool_call_update completed", "agent_message_chunk It is kept now."]);
    assert_eq!(end["result"], json!({ "stopReason": "end_turn" }));

    prompt(&mut editor, 3, &session, "Keep it again");
    let (_, asked) = until(&mut editor, asks);
    prompt(&mut editor, 4, &session, "Another");
    let (_, second) = until(&mut editor, answers(4));
    assert_eq!(second["error"]["code"], -32600, "one at a time: {second}");
    let cancel = json!({ "sessionId": session });
    let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": cancel });
    editor.send(&cancel);
    let (seen, end) = until(&mut editor, answers(3));
    assert_eq!(end["result"]["stopReason"], "cancelled", "{end}");
    assert!(seen.contains(&"$/cancel_request -".to_owned()), "{asked}: {seen:?}");
    assert_eq!(home.json(&["approvals", "--json"]), json!([]), "the call is gone");

    prompt(&mut editor, 5, &session, "Never");
    editor.send(&cancel);
    let (_, end) = until(&mut editor, answers(5));
    assert_eq!(end["result"]["stopReason"], "cancelled", "{end}");
    prompt(&mut editor, 6, &session, "And now");
    let (seen, end) = until(&mut editor, answers(6));
    assert_eq!(
        (&*seen[0], &end["result"]["stopReason"]),
        ("agent_message_chunk It is kept now.", &json!("end_turn"))
    );

    let listed = editor.ask(7, "session/list", json!({ "cwd": "/tmp/project" }));
    assert_eq!(listed["result"]["sessions"][0]["sessionId"], *session, "{listed}");
    let mut other = self::editor(&home);
    let load = json!({ "sessionId": session, "cwd": "/tmp/project", "mcpServers": [] });
    other.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "session/load", "params": load }));
    let (seen, _) = until(&mut other, answers(1));
    let said: Vec<_> = seen.iter().filter(|it| it.starts_with("user_")).collect();
    let words = ["Keep the script", "Keep it again", "Never", "And now"];
    assert_eq!(said, words.map(|it| format!("user_message_chunk {it}")).iter().collect::<Vec<_>>());
    assert_eq!(seen[1..3], ["agent_message_chunk I keep it.", "tool_call aegis_script_save kept"]);
}

#[test]
fn a_broken_frame_and_what_no_session_here_has_are_answered_and_nothing_else_is_written() {
    let (home, _daemon, mut editor, session) = stage();
    let mut early = Wire::acp(&home, &[]);
    let refused = early.ask(1, "session/list", json!({}));
    assert_eq!(refused["error"]["code"], -32600, "`initialize` comes first: {refused}");
    let code = |answer: &Value| answer["error"]["code"].clone();
    editor.send(&json!([]));
    assert_eq!(code(&editor.next_answer()), -32600);
    editor.send(&json!({ "jsonrpc": "2.0", "id": 2, "method": "x".repeat(1 << 20) }));
    assert_eq!(code(&editor.next_answer()), -32600, "too long");
    let server = json!({ "name": "x", "command": "x", "args": [], "env": [] });
    let cases = [
        ("session/fork", json!({}), -32601),
        ("session/new", json!({ "cwd": "/", "mcpServers": [server] }), -32602),
        ("session/new", json!({ "mcpServers": [] }), -32602),
        ("session/load", json!({ "sessionId": "exec_1", "cwd": "/", "mcpServers": [] }), -32002),
        ("session/resume", json!({ "sessionId": session, "cwd": "/" }), 0),
        (
            "session/prompt",
            json!({ "sessionId": session, "prompt": [{ "type": "image", "data": "", "mimeType": "" }] }),
            -32602,
        ),
    ];
    for ((method, params, expected), id) in cases.into_iter().zip(3..) {
        let answer = editor.ask(id, method, params);
        assert_eq!(
            answer["error"]["code"].as_i64().unwrap_or_default(),
            expected,
            "{method}: {answer}"
        );
    }
    let (status, rest) = editor.finish();
    assert!(status.success() && rest.is_empty(), "{rest:?}");
}

#[test]
fn a_prompt_goes_on_when_the_daemon_was_killed() {
    let (home, mut daemon, mut editor, session) = stage();
    prompt(&mut editor, 2, &session, "Slowly");
    let input = json!({ "execution_id": session }).to_string();
    wait_until("it asks its model", || {
        home.ok(&["call", "aegis.task.logs", "--json", &input]).contains("iteration_started")
    });
    daemon.signal(Signal::KILL);
    daemon.wait();
    let _again = home.daemon();
    let (seen, end) = until(&mut editor, answers(2));
    assert_eq!(
        (seen, &end["result"]["stopReason"]),
        (vec!["agent_message_chunk It came.".to_owned()], &json!("end_turn"))
    );
}
