//! Cards of a real team's members in a real vault, through kills of the daemon.

use std::{path::PathBuf, time::Duration, time::Instant};

use serde_json::{Value, json};

use super::crash::die_at;
use crate::{house::House, leaks};

fn plan() -> Value {
    json!({ "action": "create", "name": "crew", "roles": [
        { "name": "a", "role": "lead", "skills": ["rust"] }, { "name": "b", "role": "hand" },
    ] })
}

fn file(house: &House, member: &str) -> PathBuf {
    house.path().join(format!("state/vault/teams/crew/cards/{member}.json"))
}

fn card(house: &House, member: &str) -> Value {
    let bytes = std::fs::read(file(house, member)).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

fn until(house: &House, what: &str, is_so: impl Fn(&House) -> bool) {
    let begun = Instant::now();
    while !is_so(house) {
        let (a, b) = (card(house, "a"), card(house, "b"));
        assert!(begun.elapsed().as_secs() < 60, "{what}\n{a}\n{b}\n{}", house.stderr());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn none_is_left(house: &House, point: &str) {
    until(house, point, |house| {
        let teams = house.call("team", json!({ "action": "list" }));
        teams["count"] == 0 && !file(house, "a").exists() && !file(house, "b").exists()
    });
    leaks::check(house);
}

pub fn cards_follow_their_team(mut house: House) {
    for point in ["team.after_card", "team.before_ready"] {
        die_at(&mut house, point, |house| {
            let answer = house.try_call("team", plan());
            assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
        });
        none_is_left(&house, point);
    }
    let made = house.call("team", plan());
    assert_eq!(made["cards"], "written", "{made}");
    // A sandbox has no network, and it is not pretended that it has.
    let network = &made["network"];
    assert_eq!(network["members_reach_each_other"], false, "{made}");
    assert!(network["reason"].as_str().is_some_and(|why| !why.is_empty()), "{made}");
    let workspace = made["members"][0]["workspace_name"].as_str().expect("a name").to_owned();
    let first = card(&house, "a");
    assert_eq!(
        (&first["workspace_id"], &first["skills"]),
        (&made["member_workspace_ids"][0], &json!(["rust"]))
    );
    let read = json!({ "action": "read", "path": "teams/crew/cards/a.json" });
    assert!(
        house.call("vault", read)["content"].as_str().is_some_and(|text| text.contains("lead"))
    );

    house.call("workspace_stop", json!({ "workspace_id": workspace }));
    until(&house, "it is told that it stopped", |house| {
        card(house, "a")["workspace_state"] == "stopped"
    });
    house.kill();
    std::fs::remove_file(file(&house, "b")).expect("removed");
    std::fs::write(file(&house, "a"), "{ half").expect("written");
    house.start();
    until(&house, "they are whole again", |house| {
        card(house, "a")["workspace_state"] == "stopped" && card(house, "b")["status"] == "ready"
    });
    die_at(&mut house, "team.before_forget", |house| {
        let destroy = json!({ "action": "destroy", "name": "crew" });
        let answer = house.try_call("team", destroy);
        assert!(matches!(answer, Err(None)), "{answer:?}");
    });
    none_is_left(&house, "destroyed");
}
