//! Layers that deleted snapshots leave in a disk's chain.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::crash::{die_at, settled};
use crate::{house::House, leaks};

fn snapshot(house: &House, action: &str, name: &str) -> Value {
    let args = json!({ "workspace_id": "w", "action": action, "name": name });
    house.call("snapshot", args)
}

fn layers(house: &House) -> usize {
    std::fs::read_dir(house.path().join("state/layers")).expect("listed").count()
}

/// Merging goes on after the answer of a stop.
fn until(house: &House, count: usize) {
    let begun = Instant::now();
    while layers(house) != count {
        let late = begun.elapsed() > Duration::from_secs(60);
        assert!(!late, "{} layers, not {count}\n{}", layers(house), house.stderr());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn stop(house: &House) {
    house.call("workspace_stop", json!({ "workspace_id": "w" }));
}

fn start(house: &House) {
    house.call("workspace_start", json!({ "workspace_id": "w" }));
}

/// Two snapshots, gone again: their layers stand beside each other.
fn leave_two(house: &House, expected: &mut String) {
    for name in ["x", "y"] {
        house.exec(
            "w",
            &format!("echo {name} >> /root/f; head -c 3000000 /dev/urandom > /root/{name}"),
        );
        expected.push_str(name);
        snapshot(house, "create", name);
    }
    for name in ["y", "x"] {
        let told = snapshot(house, "delete", name);
        assert_eq!(told["merged"], false, "the machine runs: {told}");
    }
}

pub fn what_deletions_leave_is_merged_and_lost_nowhere(mut house: House) {
    house.create("w");
    snapshot(&house, "create", "kept");
    let mut expected = String::new();
    leave_two(&house, &mut expected);
    let sums = house.exec("w", "cat /root/x /root/y | md5sum");
    assert_eq!(layers(&house), 4, "one of the snapshot, two that were left, the top");
    stop(&house);
    until(&house, 3);
    start(&house);
    assert_eq!(house.exec("w", "cat /root/x /root/y | md5sum"), sums);
    assert_eq!(house.exec("w", "tr -d '\\n' < /root/f").trim(), expected);

    // Stopped, the deletion's answer waits for it.
    snapshot(&house, "create", "one");
    snapshot(&house, "create", "two");
    stop(&house);
    // What was merged before and the layer of `one` are apart for nobody.
    until(&house, 4);
    assert_eq!(snapshot(&house, "delete", "two")["merged"], false);
    let told = snapshot(&house, "delete", "one");
    assert_eq!((&told["merged"], &told["not_merged"]), (&json!(true), &Value::Null));
    until(&house, 3);
    start(&house);
    assert_eq!(house.exec("w", "cat /root/x /root/y | md5sum"), sums);
    leaks::check(&house);

    for point in ["merge.after_intent", "merge.after_merge", "merge.after_merged"] {
        leave_two(&house, &mut expected);
        let sums = house.exec("w", "cat /root/x /root/y | md5sum");
        die_at(&mut house, point, |house| {
            house.wait_state("w", "running");
            // Answered or not: the merge comes after it.
            let _died = house.try_call("workspace_stop", json!({ "workspace_id": "w" }));
        });
        assert_eq!(settled(&house, "w").as_deref(), Some("stopped"), "{point}");
        start(&house);
        assert_eq!(house.exec("w", "cat /root/x /root/y | md5sum"), sums, "{point}");
        assert_eq!(house.exec("w", "tr -d '\\n' < /root/f").trim(), expected, "{point}");
        leaks::check(&house);
        // What was given up is made up for.
        stop(&house);
        until(&house, 3);
        start(&house);
        assert_eq!(house.exec("w", "cat /root/x /root/y | md5sum"), sums, "{point}");
    }
    snapshot(&house, "restore", "kept");
    assert_eq!(house.exec("w", "ls /root").trim(), "");
    house.call("workspace_destroy", json!({ "workspace_id": "w" }));
    leaks::check(&house);
}
