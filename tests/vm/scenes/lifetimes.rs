//! Ends of workspaces that come by themselves, in a daemon that dies at each point of them.

use serde_json::{Value, json};

use super::crash::settled;
use crate::{house::House, leaks};

const KILL: &str = "=return(kill)";

/// A daemon that dies at a point of an end that has just been set, and the next one.
fn die_in_an_end(house: &mut House, point: &str, at_end: &str) {
    house.kill();
    house.start_armed(&format!("{point}{KILL}"));
    house.wait_state("w", "running");
    let request = json!({ "workspace_id": "w", "lifetime_secs": 1, "at_end": at_end });
    // Where the machine is quick, the daemon dies over the answer.
    let _died = house.try_call("workspace_lifetime", request);
    house.wait_for_death();
    house.start();
}

/// Events of this kind since the last count.
fn count(house: &House, kind: &str) -> usize {
    let told = house.command().args(["events", "--json"]).output().expect("runs").stdout;
    let told = String::from_utf8(told).expect("text");
    let told = told.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    told.filter(|event| event["kind"] == kind).count()
}

/// Waits until nothing of an end is left to be done.
fn ended(house: &House, point: &str) {
    let begun = std::time::Instant::now();
    loop {
        let rows = house.list();
        if rows.iter().all(|row| row["ends_at"].is_null()) {
            return;
        }
        assert!(begun.elapsed() < crate::house::PATIENCE, "{point}: {rows:?}\n{}", house.stderr());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

pub fn every_point_of_an_end(mut house: House) {
    house.create("w");
    house.exec("w", "echo kept > /root/kept; sync");
    for (round, point) in [
        "lifetime.before_over",
        "lifetime.after_over",
        "stop.after_intent",
        "stop.after_end",
        "lifetime.before_ended",
    ]
    .into_iter()
    .enumerate()
    {
        die_in_an_end(&mut house, point, "stop");
        ended(&house, point);
        assert_eq!(settled(&house, "w").as_deref(), Some("stopped"), "{point}");
        leaks::check(&house);
        house.call("workspace_start", json!({ "workspace_id": "w" }));
        assert_eq!(house.exec("w", "cat /root/kept").trim(), "kept", "{point}");
        // Neither lost nor carried out twice.
        for kind in ["workspace.ended_by_lifetime", "workspace.lifetime_over"] {
            assert_eq!(count(&house, kind), round + 1, "{point}: {kind}");
        }
        assert_eq!(settled(&house, "w").as_deref(), Some("running"), "{point}: twice");
    }
    for point in [
        "lifetime.before_over",
        "lifetime.after_over",
        "destroy.after_intent",
        "kill.after_kill",
        "destroy.after_discard",
        "destroy.after_leave",
    ] {
        die_in_an_end(&mut house, point, "destroy");
        ended(&house, point);
        assert_eq!(settled(&house, "w"), None, "{point}: it is not removed");
        leaks::check(&house);
        house.create("w");
    }
    // What was acknowledged, or may have been, has its end.
    super::crash::die_at(&mut house, "create.after_created", |house| {
        let request = json!({ "name": "short", "lifetime_secs": 2, "at_end": "destroy" });
        let _died = house.try_call("workspace_create", request);
    });
    ended(&house, "create.after_created");
    assert_eq!(settled(&house, "short"), None);
    leaks::check(&house);
}
