//! The warm pool with real machines.

use std::{
    collections::BTreeSet,
    io::Write,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::crash::settled;
use crate::{house::House, leaks};

/// Two machines of the default size.
pub const CONFIG: &str = "[[workspace.pool.classes]]\nready = 2\n";

fn class(house: &House) -> Value {
    house.call("pool_status", json!({}))["classes"][0].clone()
}

/// Waits until so many are ready and nothing is being made.
pub fn once_ready(house: &House, ready: usize) -> Value {
    let begun = Instant::now();
    loop {
        let class = class(house);
        let there = class["machines"].as_array().expect("machines").len();
        if class["ready"] == ready && there == ready && class["at_work"] == false {
            return class;
        }
        let late = begun.elapsed() > Duration::from_secs(180);
        assert!(!late, "{class:#}\n{}", house.stderr());
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub fn ids(class: &Value) -> BTreeSet<String> {
    let rows = class["machines"].as_array().expect("machines").iter();
    rows.map(|row| row["workspace_id"].as_str().expect("an id").to_owned()).collect()
}

pub fn a_machine_is_there_before_it_is_asked_for(mut house: House) {
    let ready = ids(&once_ready(&house, 2));
    assert_eq!(house.list().len(), 0, "nobody has a workspace yet");
    leaks::check(&house);
    let made = house.create("w");
    assert_eq!(made["from_pool"], true, "{made}");
    assert!(ready.contains(made["workspace_id"].as_str().expect("an id")));
    // It took its name, and what makes machines differ differs.
    assert_eq!(house.exec("w", "hostname").trim(), "w");
    assert_eq!(house.create("v")["from_pool"], true);
    let identity = "grep -w $(hostname) /etc/hosts; cat /etc/machine-id; head -c 16 /dev/urandom | od -An -tx1";
    let (w, v) = (house.exec("w", identity), house.exec("v", identity));
    assert!(w.lines().next().is_some_and(|line| line.trim_end().ends_with('w')), "{w}");
    for (one, other) in w.lines().zip(v.lines()) {
        assert_ne!(one, other);
    }
    let other = house.call("workspace_create", json!({ "name": "other", "memory_mb": 200 }));
    assert_eq!(
        (&other["from_pool"], &other["resources"]["memory_mb"]),
        (&json!(false), &json!(200))
    );
    once_ready(&house, 2);
    leaks::check(&house);

    // It is a workspace like any other.
    house.exec("w", "echo kept > /root/kept");
    let machine_id = house.exec("w", "cat /etc/machine-id");
    house.call("workspace_stop", json!({ "workspace_id": "w" }));
    house.call("workspace_start", json!({ "workspace_id": "w" }));
    assert_eq!(house.exec("w", "hostname; cat /root/kept"), "w\nkept\n");
    assert_eq!(house.exec("w", "cat /etc/machine-id"), machine_id);

    // What waits outlives the daemon.
    let before = once_ready(&house, 2);
    house.kill();
    house.start();
    let after = once_ready(&house, 2);
    assert_eq!((ids(&before), &before["template"]), (ids(&after), &after["template"]));
    for name in ["w", "v", "other"] {
        house.wait_state(name, "running");
    }
    leaks::check(&house);
    let made = house.create("u");
    assert!(
        made["from_pool"] == true
            && ids(&after).contains(made["workspace_id"].as_str().expect("an id"))
    );
    assert_eq!(house.exec("u", "hostname").trim(), "u");

    // One that ended is replaced; one that waits is not in the way of an ordered stop.
    once_ready(&house, 2);
    house.stop(true);
    house.start();
    once_ready(&house, 2);
    leaks::check(&house);
    for name in ["w", "v", "u", "other"] {
        house.call("workspace_destroy", json!({ "workspace_id": name }));
    }
    without_pool(&mut house);
}

/// Without its configuration nothing of the pool stays.
fn without_pool(house: &mut House) {
    house.kill();
    let path = house.path().join("config.toml");
    let text = std::fs::read_to_string(&path).expect("read");
    std::fs::write(&path, text.replace(CONFIG, "")).expect("written");
    house.start();
    // Removed in the background: what is left is what `leaks` waits for.
    let begun = Instant::now();
    while leaks::anything(house) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", house.stderr());
        std::thread::sleep(Duration::from_millis(50));
    }
    leaks::check(house);
}

/// The daemon dies while it gives a machine away, and while it makes the next.
pub fn every_point_of_a_claim_and_a_replenishment(mut house: House) {
    let claiming = ["pool.after_taken", "claim.after_guest", "claim.after_claimed"];
    let making = [
        "create.after_plan",
        "start.after_launch",
        "start.after_launched",
        "create.before_created",
    ];
    for point in claiming.iter().chain(&making) {
        once_ready(&house, 2);
        house.kill();
        house.start_armed(&format!("{point}=return(kill)"));
        once_ready(&house, 2);
        let answer = house.try_call("workspace_create", json!({ "name": "w" }));
        if claiming.contains(point) {
            assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
        }
        house.wait_for_death();
        house.start();
        once_ready(&house, 2);
        // Somebody's is what is recorded as such, whether or not it was said.
        let state = settled(&house, "w");
        let whole = state.as_deref() == Some("running");
        match (*point, &answer) {
            ("pool.after_taken" | "claim.after_guest", _) => assert_eq!(state, None, "{point}"),
            ("claim.after_claimed", _) | (_, Ok(_)) => assert!(whole, "{point}: {state:?}"),
            (_, Err(None)) => assert!(whole || state.is_none(), "{point}: {state:?}"),
            (_, Err(Some(refusal))) => panic!("{point}: {refusal:?}"),
        }
        leaks::check(&house);
        if whole {
            assert_eq!(house.exec("w", "hostname").trim(), "w", "{point}");
            house.call("workspace_destroy", json!({ "workspace_id": "w" }));
        }
        // One that was told its new name and stayed the pool's can be given away.
        let made = house.create("next");
        assert_eq!(made["from_pool"], true, "{point}");
        assert_eq!(house.exec("next", "hostname").trim(), "next");
        house.call("workspace_destroy", json!({ "workspace_id": "next" }));
    }
    without_pool(&mut house);
}

/// The daemon dies while it makes the machine that the others are copies of.
pub fn every_point_of_a_template(mut house: House) {
    let path = house.path().join("config.toml");
    let bare = std::fs::read_to_string(&path).expect("read");
    for point in
        ["create.after_created", "snapshot.after_save", "snapshot.after_made", "stop.after_end"]
    {
        house.kill();
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).expect("opened");
        file.write_all(CONFIG.as_bytes()).expect("written");
        house.start_armed(&format!("{point}=return(kill)"));
        house.wait_for_death();
        house.start();
        let class = once_ready(&house, 2);
        assert_eq!((&class["made_by"], class["template"].is_string()), (&json!("copy"), true));
        leaks::check(&house);
        without_pool(&mut house);
        assert_eq!(std::fs::read_to_string(&path).expect("read"), bare);
    }
}
