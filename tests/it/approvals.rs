//! Approvals from outside: an agent that waits, a person at the command line, a person at the client.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::{
    home::{Home, show, wait_until},
    wire::Wire,
};

const SAVE: &str = "aegis.script.save";

/// A home whose daemon asks a person for everything that changes something.
fn home(more: &str) -> Home {
    let home = Home::new();
    let config = format!("[policy]\npermission_mode = \"approve-reads\"\n{more}");
    std::fs::write(home.path("config.toml"), config).expect("writes");
    home
}

fn script(name: &str) -> Value {
    json!({ "name": name, "code": "console.log(1)" })
}

fn call(id: u64, tool: &str, arguments: Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

/// What waits for a person, once something does.
fn waiting(home: &Home) -> Value {
    let mut found = Value::Null;
    wait_until("something waits for a person", || {
        found = home.json(&["approvals", "--json"])[0].clone();
        !found.is_null()
    });
    found
}

fn id(approval: &Value) -> &str {
    approval["id"].as_str().expect("an id")
}

#[test]
fn a_person_at_the_command_line_approves_what_an_agent_asks_for() {
    let home = home("");
    let _daemon = home.daemon();
    let mut agent = Wire::mcp(&home);
    let read = agent.call(1, "aegis.script.list", json!({}));
    assert_eq!(read["result"]["isError"], false, "{read}");

    agent.send(&call(2, SAVE, script("one")));
    let asked = waiting(&home);
    assert_eq!((asked["tool"].as_str(), asked["state"].as_str()), (Some(SAVE), Some("pending")));
    assert!(asked["input"].as_str().expect("a text").contains("console.log"));
    let shown = home.ok(&["approvals", "show", id(&asked)]);
    assert!(shown.contains("console.log"), "{shown}");
    home.ok(&["approvals", "approve", id(&asked), "--session", "--why", "it is small"]);
    let made = agent.answer(2);
    assert_eq!(made["result"]["isError"], false, "{made}");
    // For this session it is remembered.
    let again = agent.call(3, SAVE, script("two"));
    assert_eq!(again["result"]["isError"], false, "{again}");
    assert_eq!(home.json(&["approvals", "grants", "--json"]).as_array().map(Vec::len), Some(1));

    let mut other = Wire::mcp(&home);
    other.send(&call(1, SAVE, script("three")));
    home.ok(&["approvals", "deny", id(&waiting(&home)), "--why", "not now"]);
    let denied = other.answer(1).to_string();
    assert!(denied.contains("approval_denied") && denied.contains("not now"), "{denied}");

    let input = script("four").to_string();
    let mut own = home
        .command(&["call", SAVE, "--json", &input])
        .stdout(Stdio::null())
        .spawn()
        .expect("runs");
    let refused = show(&home.run(&["approvals", "approve", id(&waiting(&home))]));
    assert!(refused.contains("self_approval"), "{refused}");
    let user = waiting(&home)["user"].as_str().expect("a user").to_owned();
    assert_eq!(home.ok(&["approvals", "deny", "--of", &user]), "denied: 1\n");
    assert!(!own.wait().expect("ends").success());
}

#[test]
fn the_person_at_a_client_is_asked_where_that_is_allowed() {
    for (allowed, config) in [(false, ""), (true, "[policy.approvals]\nelicitation = true\n")] {
        let home = home(config);
        let _daemon = home.daemon();
        let (mut agent, _) = Wire::greet(&home);
        agent.initialize_with(json!({ "elicitation": {} }));
        agent.send(&call(1, SAVE, script("one")));
        if !allowed {
            home.ok(&["approvals", "deny", id(&waiting(&home))]);
            assert!(agent.answer(1).to_string().contains("approval_denied"));
            continue;
        }
        let form = loop {
            let message = agent.receive();
            if message["method"] == "elicitation/create" {
                break message;
            }
        };
        let schema = &form["params"]["requestedSchema"]["properties"]["choice"];
        let content = json!({ "choice": schema["enum"][0] });
        let result = json!({ "action": "accept", "content": content });
        agent.send(&json!({ "jsonrpc": "2.0", "id": form["id"], "result": result }));
        let made = agent.answer(1);
        assert_eq!(made["result"]["isError"], false, "{made}");
        let listed = home.json(&["approvals", "--all", "--json"]);
        assert_eq!(listed[0]["state"], "used", "{listed}");
        assert!(listed[0]["decided_by"].as_str().expect("by").contains("elicitation"), "{listed}");
    }
}

#[test]
fn rules_are_changed_explained_and_kept_while_agents_work() {
    let home = Home::new();
    let mut daemon = home.daemon();
    let mut agent = Wire::mcp(&home);
    let names = |agent: &mut Wire, id| {
        let listed = agent.ask(id, "tools/list", json!({}));
        let tools = listed["result"]["tools"].as_array().expect("a list");
        tools
            .iter()
            .map(|tool| tool["name"].as_str().expect("a name").to_owned())
            .collect::<Vec<_>>()
    };
    assert!(names(&mut agent, 1).contains(&SAVE.to_owned()));
    home.ok(&["policy", "add", "frozen", "deny", "aegis.script.*", "--why", "a freeze"]);
    let told = agent.receive();
    assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
    assert!(!names(&mut agent, 2).contains(&SAVE.to_owned()));
    let denied = agent.call(3, SAVE, script("one")).to_string();
    assert!(denied.contains("frozen") && denied.contains("a freeze"), "{denied}");
    let found = agent.call(4, "aegis.tools.search", json!({ "query": "save a script" }));
    assert!(!found.to_string().contains(SAVE), "{found}");

    let when = "commands.exists(c, c[0] == \"git\" && \"push\" in c)";
    home.ok(&["policy", "add", "push", "ask", "exec", "cmd.run", "--when", when]);
    let explained = |line: &str| {
        let input = json!({ "workspace_id": "w", "command": line }).to_string();
        let found = home.json(&["policy", "explain", "exec", "--json", &input, "--as-json"]);
        found["outcome"].as_str().expect("an outcome").to_owned()
    };
    assert_eq!(
        (explained("git push").as_str(), explained("git pull").as_str()),
        ("asks", "allowed")
    );
    let table = home.ok(&["policy", "explain", SAVE]);
    assert!(table.contains("frozen") && table.contains("denied"), "{table}");

    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    let _daemon = home.daemon();
    let rules = home.json(&["policy", "rules", "--json"]);
    assert_eq!((&rules[0]["name"], &rules[1]["name"]), (&json!("push"), &json!("frozen")));
    home.ok(&["policy", "remove", "frozen"]);
    assert!(home.ok(&["policy", "explain", SAVE]).contains("allowed"));
    let unknown = show(&home.run(&["policy", "remove", "frozen"]));
    assert!(unknown.contains("rule_not_found"), "{unknown}");
}

#[test]
fn a_question_waits_for_a_person_and_outlives_the_daemon() {
    let home = Home::new();
    let mut daemon = home.daemon();
    let mut agent = Wire::mcp(&home);
    let question = |secs: u64| json!({ "question": "Which way?", "options": ["left", "right"], "timeout_secs": secs });
    let asked = agent.call(1, "ask_user", question(1));
    assert_eq!(asked["result"]["structuredContent"]["status"], "no_answer", "{asked}");
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    let _daemon = home.daemon();
    let asked = waiting(&home);
    let bad = show(&home.run(&["approvals", "answer", id(&asked), "--select", "3"]));
    assert!(bad.contains("invalid_input"), "{bad}");
    home.ok(&["approvals", "answer", id(&asked), "--select", "2"]);
    let known = home.json(&["approvals", "--all", "--json"]);
    assert_eq!(known[0]["state"], "approved", "{known}");
}

#[test]
fn a_conversation_is_narrowed_and_a_person_widens_it() {
    let home = Home::new();
    let _daemon = home.daemon();
    let mut agent = Wire::mcp(&home);
    let begun = agent.call(1, "zaru.init", json!({}));
    assert_eq!(begun["result"]["structuredContent"]["mode"], "chat", "{begun}");
    let refused = agent.call(2, "workspace_list", json!({})).to_string();
    assert!(refused.contains("conversation"), "{refused}");
    let found = agent.call(3, "zaru.docs", json!({ "query": "approvals" }));
    assert!(found["result"]["structuredContent"]["total_matches"].as_u64() > Some(0), "{found}");
    agent.send(&call(4, "zaru.mode", json!({ "target_mode": "operator", "reason": "to look" })));
    let asked = waiting(&home);
    assert!(asked["why"].as_str().expect("a text").contains("to look"), "{asked}");
    home.ok(&["approvals", "approve", id(&asked)]);
    let switched = agent.answer(4);
    assert_eq!(switched["result"]["structuredContent"]["target_mode"], "operator", "{switched}");
    let listed = agent.call(5, "workspace_list", json!({}));
    assert_eq!(listed["result"]["isError"], false, "{listed}");
    // Less needs nobody.
    let back = agent.call(6, "zaru.mode", json!({ "target_mode": "chat", "reason": "done" }));
    assert_eq!(back["result"]["isError"], false, "{back}");
}
