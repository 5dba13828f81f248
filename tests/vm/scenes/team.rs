//! Teams of real workspaces, and the daemon killed at each point of their lives.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::crash::die_at;
use crate::{house::House, leaks};

fn plan(members: &[&str]) -> Value {
    let roles: Vec<_> = members.iter().map(|one| json!({ "name": one, "role": "hand" })).collect();
    json!({ "action": "create", "name": "crew", "roles": roles })
}

fn team(house: &House, action: &str, more: Value) -> Value {
    let mut args = json!({ "action": action, "name": "crew" });
    args.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    house.call("team", args)
}

fn say(house: &House, from: &str, to: &str, content: &str) -> Value {
    team(house, "message", json!({ "agent": from, "to": to, "content": content }))
}

fn receive(house: &House, agent: &str) -> Vec<(String, bool)> {
    let got = team(house, "receive", json!({ "agent": agent }));
    assert_eq!((&got["daemon_results"], &got["daemon_pending_tasks"]), (&json!([]), &json!(0)));
    let messages = got["messages"].as_array().expect("messages").iter();
    let one = |message: &Value| {
        let content = message["content"].as_str().expect("a content").to_owned();
        (content, message["redelivered"] == true)
    };
    messages.map(one).collect()
}

fn words(received: Vec<(String, bool)>) -> Vec<String> {
    received.into_iter().map(|(content, _)| content).collect()
}

/// Waits until no team is left, as after a start that undoes one.
fn until_none(house: &House) {
    let begun = Instant::now();
    loop {
        let list = house.call("team", json!({ "action": "list" }));
        if list["count"] == 0 {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{list}\n{}", house.stderr());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn nothing_is_left(house: &House, point: &str) {
    until_none(house);
    assert_eq!(house.list().len(), 0, "{point}: workspaces are left: {:?}", house.list());
    leaks::check(house);
}

pub fn a_team_talks_and_outlives_the_daemon(mut house: House) {
    let made = house.call("team", plan(&["a", "b", "c"]));
    assert_eq!((&made["state"], &made["member_count"]), (&json!("ready"), &json!(3)));
    let first = made["members"][0]["workspace_name"].as_str().expect("a name").to_owned();
    assert_eq!(house.exec(&first, "hostname").trim(), first);
    say(&house, "a", "b", "one");
    say(&house, "a", "*", "two");
    assert_eq!(words(receive(&house, "b")), ["one", "two"]);
    say(&house, "c", "b", "three");
    house.kill();
    house.start();
    assert_eq!(words(receive(&house, "b")), ["three"]);
    assert_eq!(words(receive(&house, "c")), ["two"]);
    house.wait_state(&first, "running");
    house.call("workspace_stop", json!({ "workspace_id": first }));
    let status = team(&house, "status", json!({}));
    let states: Vec<_> =
        status["members"].as_array().expect("members").iter().map(|m| &m["agent_status"]).collect();
    assert_eq!(states, ["failed", "ready", "ready"], "{status}");
    leaks::check(&house);
    assert_eq!(team(&house, "destroy", json!({}))["success"], true);
    nothing_is_left(&house, "destroyed");
}

pub fn every_point_of_a_team(mut house: House) {
    for point in ["team.after_plan", "team.after_member", "team.before_ready"] {
        die_at(&mut house, point, |house| {
            let answer = house.try_call("team", plan(&["a", "b"]));
            assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
        });
        nothing_is_left(&house, point);
    }
    die_at(&mut house, "team.after_ready", |house| {
        let answer = house.try_call("team", plan(&["a", "b"]));
        assert!(matches!(answer, Err(None)), "it is not answered: {answer:?}");
    });
    // What is recorded as made is there.
    assert_eq!(team(&house, "status", json!({}))["state"], "ready");
    die_at(&mut house, "mailbox.after_put", |house| {
        let said =
            json!({ "action": "message", "name": "crew", "agent": "a", "to": "b", "content": "x" });
        assert!(matches!(house.try_call("team", said), Err(None)));
    });
    die_at(&mut house, "mailbox.before_taken", |house| {
        // Whether this answer arrives is not known; the message comes again in any case.
        let _died =
            house.try_call("team", json!({ "action": "receive", "name": "crew", "agent": "b" }));
    });
    assert_eq!(receive(&house, "b"), [("x".to_owned(), true)]);
    for point in ["team.after_destroy_wanted", "team.after_member_destroyed", "team.before_forget"]
    {
        if house.call("team", json!({ "action": "list" }))["count"] == 0 {
            house.call("team", plan(&["a", "b"]));
        }
        die_at(&mut house, point, |house| {
            let answer = house.try_call("team", json!({ "action": "destroy", "name": "crew" }));
            assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
        });
        nothing_is_left(&house, point);
    }
}
