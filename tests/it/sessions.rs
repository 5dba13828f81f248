//! Clients that come and go, from outside.

use serde_json::{Value, json};

use crate::{home::Home, wire::Wire};

#[test]
fn who_connects_again_and_again_gets_no_new_burst() {
    let home = Home::new();
    let config = "[registry.rate]\ndefault_burst = 3\ndefault_per_minute = 1\n\
                  [registry.user]\nrate_factor = 2\n";
    std::fs::write(home.path("config.toml"), config).expect("writes");
    let _daemon = home.daemon();
    let (mut passed, mut last) = (0, json!(null));
    for _ in 0..5 {
        let mut wire = Wire::start(&home, &[]);
        wire.initialize();
        for id in 1..=3 {
            let answer = wire.call(id, "workspace_list", json!({}));
            if answer["result"]["isError"] == true {
                let text = answer["result"]["content"][1]["text"].as_str().expect("the error");
                last = serde_json::from_str(text).expect("JSON");
            } else {
                passed += 1;
            }
        }
    }
    assert!((6..=7).contains(&passed), "{passed} calls passed: two sessions' bursts of three");
    assert_eq!(
        (&last["error"]["code"], &last["error"]["details"]["of"]),
        (&json!("rate_limited"), &json!("user"))
    );
    let sessions = home.json(&["sessions", "--json"]);
    let users: Vec<_> = sessions.as_array().expect("rows").iter().map(|row| &row["user"]).collect();
    let uid = format!("uid:{}", rustix::process::geteuid().as_raw());
    assert!(users.iter().all(|user| **user == json!(uid)), "{users:?}");
}

#[test]
fn a_flood_of_refused_calls_leaves_the_history_alone() {
    let home = Home::new();
    let mut daemon = home.daemon();
    let mut wire = Wire::start(&home, &[]);
    wire.initialize();
    wire.call(1, "workspace_list", json!({}));
    for id in 2..502 {
        let refused = wire.call(id, "workspace_info", json!({}));
        assert_eq!(refused["result"]["isError"], true, "{refused}");
    }
    drop(wire);
    home.ok(&["stop"]);
    daemon.wait();
    let _daemon = home.daemon();
    let events = home.ok(&["events", "--json"]);
    let of = |kind: &str| events.lines().filter(|line| line.contains(kind)).collect::<Vec<_>>();
    let told = of("call.finished").len();
    assert!((21..30).contains(&told), "{told}: the one that passed, and the first refusals");
    let summaries = of("calls.refused").into_iter();
    let summaries: Vec<Value> =
        summaries.map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let counted =
        |event: &Value| event["data"]["counts"]["invalid_input"].as_u64().expect("counts");
    assert_eq!(summaries.iter().map(counted).sum::<u64>() + told as u64, 501, "none is lost");
    assert!(summaries.len() < 5, "{summaries:?}");
}
