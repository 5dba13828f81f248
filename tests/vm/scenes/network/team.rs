//! Members of a team reach one another and nobody else, whatever other teams are called.

use serde_json::{Value, json};

use super::{PORT, emptied, frames, greeted, ip, knock, say, serve};
use crate::{house::House, leaks, scenes::crash::die_at};

fn plan(name: &str, members: &[&str]) -> Value {
    let roles: Vec<_> = members.iter().map(|one| json!({ "name": one, "role": one })).collect();
    json!({ "action": "create", "name": name, "roles": roles })
}

fn team(house: &House, action: &str, name: &str) -> Value {
    house.call("team", json!({ "action": action, "name": name }))
}

/// Names of the members' workspaces.
fn workspaces(made: &Value) -> Vec<String> {
    let members = made["members"].as_array().expect("members").iter();
    members.map(|one| one["workspace_name"].as_str().expect("a name").to_owned()).collect()
}

fn reach(house: &House, from: &str, to: &str) -> bool {
    let to = ip(house, to);
    let ping = say(house, from, &format!("ping -c 2 -W 2 {to}"));
    ping.contains("2 packets received") && greeted(house, from, to, PORT)
}

fn apart(house: &House, from: &str, to: &str) {
    let heard = frames(house, to);
    let tried = knock(house, from, ip(house, to));
    assert_eq!(frames(house, to), heard, "something of {from} reached {to}:\n{tried}");
}

pub fn a_team_is_a_group_of_its_own(mut house: House) {
    die_at(&mut house, "team.after_join", |house| {
        let answer = house.try_call("team", plan("a", &["p", "q"]));
        assert!(matches!(answer, Err(None)), "{answer:?}");
    });
    let begun = std::time::Instant::now();
    while house.call("team", json!({ "action": "list" }))["count"] != 0 {
        assert!(begun.elapsed().as_secs() < 60, "it is not undone\n{}", house.stderr());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    emptied(&mut house);

    let (one, other) =
        (house.call("team", plan("a", &["p", "q"])), house.call("team", plan("a-b", &["r", "s"])));
    for made in [&one, &other] {
        let network = &made["network"];
        let told = (&network["mode"], &network["members_reach_each_other"]);
        assert_eq!(told, (&json!("bridge"), &json!(true)), "{made}");
    }
    assert_ne!(one["network"]["group"], other["network"]["group"]);
    let (ours, theirs) = (workspaces(&one), workspaces(&other));
    for workspace in ours.iter().chain(&theirs) {
        serve(&house, workspace, &[PORT]);
    }
    for pair in [&ours, &theirs] {
        assert!(reach(&house, &pair[0], &pair[1]) && reach(&house, &pair[1], &pair[0]), "{pair:?}");
    }
    apart(&house, &ours[0], &theirs[0]);
    apart(&house, &theirs[1], &ours[1]);

    // A daemon that is started again keeps it so.
    house.kill();
    house.start();
    ours.iter().for_each(|workspace| house.wait_state(workspace, "running"));
    let status = team(&house, "status", "a");
    assert_eq!(status["network"], one["network"]);
    assert!(reach(&house, &ours[1], &ours[0]));
    apart(&house, &ours[1], &theirs[0]);

    // The end of one is none of the other's business.
    assert_eq!(team(&house, "destroy", "a")["success"], true);
    theirs.iter().for_each(|workspace| house.wait_state(workspace, "running"));
    assert!(reach(&house, &theirs[0], &theirs[1]) && reach(&house, &theirs[1], &theirs[0]));
    assert_eq!(team(&house, "destroy", "a-b")["success"], true);
    emptied(&mut house);
    leaks::check(&house);
}
