//! Calls that become tasks (`io.modelcontextprotocol/tasks`): they outlive their client, are nobody
//! else's, and a daemon that is killed loses none of them.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    home::{Daemon, Home, wait_until},
    http::Server,
    wire::Wire,
};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

fn takes_tasks() -> Value {
    json!({ "extensions": { EXTENSION: {} } })
}

/// A call that ends when a person replies.
fn question() -> Value {
    let arguments =
        json!({ "question": "Which way?", "options": ["left", "right"], "timeout_secs": 300 });
    json!({ "name": "ask_user", "arguments": arguments })
}

/// An agent that takes tasks, by way of the pump.
fn agent(home: &Home, args: &[&str]) -> Wire {
    let mut wire = Wire::start(home, &[&["--no-spawn"], args].concat());
    let info = wire.initialize_with(takes_tasks());
    assert!(info["capabilities"]["extensions"][EXTENSION].is_object(), "{info}");
    wire
}

/// Makes a call that becomes a task; its id.
fn begin(wire: &mut Wire, id: i64) -> String {
    let made = wire.ask(id, "tools/call", question());
    let task = &made["result"];
    assert_eq!(
        (&task["resultType"], &task["status"]),
        (&json!("task"), &json!("working")),
        "{made}"
    );
    assert!(task["ttlMs"].as_u64() > Some(300_000) && task.get("task").is_none(), "{made}");
    task["taskId"].as_str().expect("an id").to_owned()
}

fn get(wire: &mut Wire, id: i64, task: &str) -> Value {
    wire.ask(id, "tasks/get", json!({ "taskId": task }))
}

/// The task, once it is not working any more.
fn over(wire: &mut Wire, id: i64, task: &str) -> Value {
    let mut found = Value::Null;
    wait_until("the task is over", || {
        found = get(wire, id, task)["result"].clone();
        found["status"] != "working"
    });
    found
}

/// A person at the command line replies.
fn reply(home: &Home) {
    let asked = home.json(&["approvals", "--json"]);
    home.ok(&["approvals", "answer", asked[0]["id"].as_str().expect("one"), "--select", "2"]);
}

fn kill(daemon: &mut Daemon) {
    daemon.signal(Signal::KILL);
    daemon.wait();
}

/// What is told of a task whose daemon was killed.
fn assert_lost(task: &Value) {
    assert_eq!(task["status"], "failed", "{task}");
    let error = &task["error"]["data"]["error"];
    assert_eq!(error["code"], "daemon_restarted", "{task}");
    assert_eq!(
        (&error["details"]["outcome"], &error["retryable"]),
        (&json!("unknown"), &json!(true))
    );
    assert!(task.get("result").is_none(), "{task}");
}

#[test]
fn a_long_call_goes_on_without_its_client_and_is_read_by_its_session_only() {
    let home = Home::new();
    let _daemon = home.daemon();
    let mut wire = agent(&home, &[]);
    let task = begin(&mut wire, 1);
    let working = get(&mut wire, 2, &task);
    assert_eq!(working["result"]["status"], "working", "{working}");
    let said = working["result"]["statusMessage"].as_str().expect("how far it is");
    assert!(said.contains("hivekeep approvals"), "{said}");

    let mut stranger = agent(&home, &[]);
    for (id, method) in [(1, "tasks/get"), (2, "tasks/cancel")] {
        let refused = stranger.ask(id, method, json!({ "taskId": task }));
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let never = format!("deferred_{}", "0".repeat(32));
        let unknown = stranger.ask(id + 10, method, json!({ "taskId": never }));
        let told = |answer: &Value| answer["error"]["message"].to_string().replace(&task, &never);
        assert_eq!(told(&refused), told(&unknown), "as if it were not there");
    }
    let update = json!({ "taskId": task, "inputResponses": { "x": { "action": "cancel" } } });
    assert_eq!(stranger.ask(3, "tasks/update", update)["error"]["code"], -32602);

    let sessions = home.json(&["sessions", "--json"]);
    let session = sessions[0]["session"].as_str().expect("an id").to_owned();
    drop(wire);
    wait_until("its client has left", || {
        home.json(&["sessions", "--json"])[0]["state"] == "detached"
    });
    reply(&home);
    let mut wire = agent(&home, &["--resume", &session]);
    let ended = over(&mut wire, 1, &task);
    assert_eq!(ended["status"], "completed", "{ended}");
    let result = &ended["result"];
    assert_eq!(result["structuredContent"]["selected"], json!(["right"]), "{ended}");
    assert_eq!((&result["isError"], result["content"].is_array()), (&json!(false), true));
    let again = get(&mut wire, 9, &task);
    assert_eq!(&again["result"]["result"], result, "it is kept");
}

#[test]
fn a_cancelled_task_ends_its_call_and_a_client_without_tasks_gets_results() {
    let home = Home::new();
    let _daemon = home.daemon();
    let mut wire = agent(&home, &[]);
    let task = begin(&mut wire, 1);
    let told = wire.ask(2, "tasks/cancel", json!({ "taskId": task }));
    assert_eq!(told["result"], json!({ "resultType": "complete" }), "{told}");
    assert_eq!(over(&mut wire, 3, &task)["status"], "cancelled");
    let again = wire.ask(4, "tasks/cancel", json!({ "taskId": task }));
    assert!(again["result"].is_object(), "{again}");
    let calls = home.ok(&["events", "--json"]);
    let call =
        calls.lines().find(|line| line.contains("call.finished") && line.contains("ask_user"));
    assert!(call.is_some_and(|call| call.contains("\"cancelled\"")), "{calls}");
    // What is quick is answered as ever.
    let quick = wire.call(5, "workspace_list", json!({}));
    assert_eq!(quick["result"]["isError"], false, "{quick}");

    let mut plain = Wire::mcp(&home);
    let mut short = question();
    short["arguments"]["timeout_secs"] = json!(2);
    let answered = plain.ask(1, "tools/call", short);
    assert_eq!(answered["result"]["structuredContent"]["status"], "no_answer", "{answered}");
    let refused = plain.ask(2, "tasks/get", json!({ "taskId": task }));
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
}

#[test]
fn a_daemon_that_is_killed_loses_no_task_and_leaves_none_working() {
    let home = Home::new();
    let mut daemon = home.daemon();
    let mut wire = agent(&home, &[]);
    let (running, ended) = (begin(&mut wire, 1), begin(&mut wire, 2));
    wire.ask(3, "tasks/cancel", json!({ "taskId": ended }));
    assert_eq!(over(&mut wire, 4, &ended)["status"], "cancelled");
    for id in [5, 7] {
        kill(&mut daemon);
        daemon = home.daemon();
        // The pump attaches the session again.
        assert_lost(&get(&mut wire, id, &running)["result"]);
        let ended = get(&mut wire, id + 1, &ended);
        assert_eq!(ended["result"]["status"], "cancelled", "{ended}");
    }
    home.ok(&["stop"]);
    daemon.wait();
    let _daemon = home.daemon();
    assert_lost(&get(&mut wire, 9, &running)["result"]);
}

#[test]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs failpoints: `cargo xtask t it`")]
fn a_kill_at_each_point_leaves_a_whole_end_or_a_lost_call() {
    for (point, handed_out) in [
        ("deferred.begun", false),
        ("deferred.handed_out", false),
        ("deferred.done", true),
        ("deferred.kept", true),
    ] {
        let home = Home::new().with("FAILPOINTS", &format!("{point}=return(kill)"));
        let mut daemon = home.daemon();
        let mut wire = agent(&home, &[]);
        let mut task = None;
        if handed_out {
            task = Some(begin(&mut wire, 1));
            reply(&home);
        } else {
            let params = question();
            wire.send(
                &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}),
            );
        }
        daemon.wait();
        let home = home.with("FAILPOINTS", "");
        let daemon = home.daemon();
        match (point, task) {
            ("deferred.kept", Some(task)) => {
                let kept = get(&mut wire, 2, &task)["result"].clone();
                assert_eq!(kept["result"]["structuredContent"]["status"], "answered", "{kept}");
            }
            (_, Some(task)) => assert_lost(&get(&mut wire, 2, &task)["result"]),
            (_, None) => {
                let lost = wire.answer(1);
                assert_eq!(lost["error"]["data"]["code"], "daemon_restarted", "{point}: {lost}");
            }
        }
        // The session goes on.
        let next = begin(&mut wire, 3);
        wire.ask(4, "tasks/cancel", json!({ "taskId": next }));
        assert_eq!(over(&mut wire, 5, &next)["status"], "cancelled", "{point}");
        drop((wire, daemon));
    }
}

#[test]
fn over_http_a_task_is_its_credentials_and_survives_a_kill() {
    let server = Server::with(256, &[]);
    let owner = server.bearer();
    let other = server.home.ok(&["credential", "create", "other", "--scope", "session"]);
    let other = format!("Bearer {}", other.trim());
    let made = server.ask_stateless(&owner, "tools/call", question(), takes_tasks());
    let task = json!({ "taskId": made["result"]["taskId"] });
    assert_eq!(made["result"]["resultType"], "task", "{made}");
    let ask = |server: &Server, bearer: &str, method: &str| {
        server.ask_stateless(bearer, method, task.clone(), takes_tasks())
    };
    assert_eq!(ask(&server, &owner, "tasks/get")["result"]["status"], "working");
    assert_eq!(ask(&server, &other, "tasks/get")["error"]["code"], -32602);
    assert_eq!(ask(&server, &other, "tasks/cancel")["error"]["code"], -32602);
    let plain = server.ask_stateless(&owner, "tasks/get", task.clone(), json!({}));
    assert_eq!(plain["error"]["code"], -32021, "{plain}");
    reply(&server.home);
    let mut found = Value::Null;
    wait_until("it is over", || {
        found = ask(&server, &owner, "tasks/get")["result"].clone();
        found["status"] == "completed"
    });
    assert_eq!(found["resultType"], "complete", "{found}");
    let running = server.ask_stateless(&owner, "tools/call", question(), takes_tasks());
    let running = json!({ "taskId": running["result"]["taskId"] });

    let server = server.killed();
    assert_eq!(ask(&server, &owner, "tasks/get")["result"]["result"], found["result"]);
    let lost = server.ask_stateless(&owner, "tasks/get", running, takes_tasks());
    assert_lost(&lost["result"]);
    assert_eq!(ask(&server, &other, "tasks/get")["error"]["code"], -32602);
}
