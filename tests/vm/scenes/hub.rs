//! The hub beside real machines: a process and a team, followed while they live.

#[path = "../../it/hub/socket.rs"]
#[allow(dead_code)]
mod socket;

use serde_json::{Value, json};

use super::http_api::{Caller, credential};
use crate::house::House;
use socket::Socket;

pub const CONFIG: &str = super::http_api::CONFIG;

/// Has the hub listen; where.
fn hub(house: &House) -> String {
    let started = house.call("ws_start", json!({ "addr": "127.0.0.1:0" }));
    started["addr"].as_str().expect("an address").to_owned()
}

/// Frames of a channel up to one.
fn until(socket: &mut Socket, is_last: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut told = Vec::new();
    loop {
        let next = socket.next();
        let over = is_last(&next);
        told.push(next);
        if over {
            return told;
        }
    }
}

/// Output of a process in frames, and the position behind it.
fn output(frames: &[Value]) -> (String, u64) {
    let mut said = (String::new(), 0);
    for frame in frames.iter().filter(|frame| frame["type"] == "process_output") {
        said.0.push_str(frame["data"].as_str().expect("a text"));
        said.1 = frame["cursor"].as_u64().expect("a position");
    }
    said
}

fn says(wanted: &'static str) -> impl Fn(&Value) -> bool {
    move |frame| frame["data"].as_str().is_some_and(|text| text.contains(wanted))
}

/// Output, state and end come as they happen, and from a position again. Nobody else hears of them, and what was
/// read was read by calls.
pub fn a_process_is_followed_while_it_lives(house: House) {
    let address = hub(&house);
    let (operator, stranger) =
        (credential(&house, "ops", "operator"), credential(&house, "stranger", "session"));
    let script = "echo begun; while read line; do echo \"heard $line\"; done; echo done; exit 3";
    let args = json!({ "command": "sh", "args": ["-c", script] });
    let id = house.call("process_start", args)["id"].as_str().expect("an id").to_owned();
    let channel = format!("process:{id}");
    let mut socket = Socket::open(&address, &operator);
    socket.follow(&channel, &Value::Null);
    let begun = until(&mut socket, says("begun"));
    assert!(begun.iter().all(|it| it["channel"] == json!(channel) && it["processId"] == json!(id)));
    let send = |input: &str| house.call("process_input", json!({ "id": id, "input": input }));
    send("one\n");
    let (_, cursor) = output(&until(&mut socket, says("heard one")));
    send("two\n");
    until(&mut socket, says("heard two"));
    // Another client goes on where this one was.
    let mut again = Socket::open(&address, &operator);
    again.follow(&channel, &json!({ "stdout": cursor, "stderr": 0 }));
    assert_eq!(output(&until(&mut again, says("heard two"))).0, "heard two\n");
    let info = house.call("ws_info", json!({}));
    assert_eq!((&info["clients"], &info["channels"]), (&json!(2), &json!(1)));
    let mut other = Socket::open(&address, &stranger);
    other.send(&json!({ "type": "subscribe", "id": 1, "channel": channel }));
    assert_eq!(other.next()["data"]["code"], "hub_channel_refused");
    house.call("process_input", json!({ "id": id, "input": "", "close": true }));
    let ended = until(&mut socket, |frame| frame["type"] == "end");
    let status = ended.iter().find(|frame| frame["type"] == "process_status");
    let status = &status.expect("its state is told")["data"];
    assert_eq!((&status["status"], &status["exitCode"]), (&json!("exited"), &json!(3)));
    assert_eq!(output(&ended).0, "done\n", "what it said at last comes before its end");
    again.send(&json!({
        "type": "subscribe", "channel": "events", "kinds": ["call.finished"], "from": 1,
    }));
    until(&mut again, |frame| frame["data"]["data"]["tool"] == "process_output");
}

/// A message is seen on the channel of its team by the session that operates it, and by no other.
pub fn a_team_is_followed_by_the_session_that_operates_it(house: House) {
    let address = hub(&house);
    let (worker, stranger) = (Caller::new(&house, "worker"), Caller::new(&house, "stranger"));
    let roles = json!([{ "name": "a", "role": "hand" }, { "name": "b", "role": "hand" }]);
    let made = worker.ok("team", &json!({ "action": "create", "name": "crew", "roles": roles }));
    let id = made["team_id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let channel = format!("team:{id}");
    let mut mine = Socket::open(&address, &worker.credential);
    mine.follow(&channel, &Value::Null);
    let mut theirs = Socket::open(&address, &stranger.credential);
    theirs.follow(&channel, &json!(1));
    theirs.follow("events", &Value::Null);
    let say = json!({
        "action": "message", "name": "crew", "agent": "a", "to": "b", "content": "hello",
    });
    worker.ok("team", &say);
    let told = until(&mut mine, |frame| frame["data"]["data"]["member"] == "b");
    let event = &told.last().expect("one")["data"];
    assert_eq!((&event["subject"], &event["data"]["from"]), (&json!(id), &json!("a")), "{event}");
    assert!(!event.to_string().contains("hello"), "what it says is the member's alone");
    // A call of its own comes after the message, and is the first event that the stranger sees.
    stranger.ok("workspace_list", &json!({}));
    let seen = until(&mut theirs, |frame| frame["data"]["kind"] == "call.finished");
    assert!(seen.iter().all(|frame| frame["channel"] == "events"), "{seen:?}");
    worker.ok("team", &json!({ "action": "destroy", "name": "crew" }));
    until(&mut mine, |frame| frame["data"]["kind"] == "team.destroyed");
}
