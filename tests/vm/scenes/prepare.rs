//! `workspace_prepare`: a golden workspace, or nothing.

use serde_json::{Value, json};

use super::crash::{die_at, settled};
use crate::{house::House, leaks};

/// Leaves something on the disk and something that lives in memory alone.
fn recipe() -> Value {
    let commands = ["git init -q . && echo built > result", "cp result /dev/shm/warm"];
    json!({ "name": "g", "setup_commands": commands, "timeout_secs": 60 })
}

pub fn a_golden_workspace_is_forked(mut house: House) {
    let made = house.call("workspace_prepare", recipe());
    assert_eq!((&made["reused_existing"], &made["has_memory"]), (&json!(false), &json!(true)));
    assert_eq!(made["steps"].as_array().map(Vec::len), Some(4), "{made}");
    let args = json!({ "workspace_id": "g", "snapshot_name": "golden", "count": 3 });
    let forked = house.call("workspace_fork", args);
    assert_eq!((&forked["success_count"], &forked["with_memory"]), (&json!(3), &json!(true)));
    for fork in ["worker-1", "worker-2", "worker-3"] {
        let said = house.exec(fork, "pwd; cat result /dev/shm/warm; git status -s");
        assert_eq!(said.trim(), "/workspace\nbuilt\nbuilt\n?? result", "{fork}");
    }
    let mut other = recipe();
    other["base_image"] = json!("debian");
    let refused = house.refused("workspace_prepare", other);
    assert_eq!(
        (refused.code.as_str(), &refused.details["fields"][0]),
        ("recipe_differs", &json!("base_image"))
    );
    // The next daemon knows what it was made from, whether or not its machine runs.
    house.kill();
    house.start();
    house.wait_state("g", "running");
    house.call("workspace_stop", json!({ "workspace_id": "g" }));
    let again = house.call("workspace_prepare", recipe());
    assert_eq!(
        (&again["reused_existing"], &again["snapshot_id"]),
        (&json!(true), &made["snapshot_id"])
    );
    assert_eq!(settled(&house, "g").as_deref(), Some("stopped"));
    leaks::check(&house);
    for name in ["g", "worker-1", "worker-2", "worker-3"] {
        house.call("workspace_destroy", json!({ "workspace_id": name }));
    }
    leaks::check(&house);
}

pub fn what_fails_leaves_nothing(house: House) {
    let mut failing = recipe();
    failing["setup_commands"] =
        json!(["true", "seq 100000; echo oops >&2; exit 7", "touch /never"]);
    let refused = house.refused("workspace_prepare", failing);
    assert_eq!(refused.code, "setup_failed");
    assert_eq!(
        (&refused.details["command_index"], &refused.details["exit_code"]),
        (&json!(1), &json!(7))
    );
    let output = refused.details["output"].as_str().expect("output");
    assert!(
        output.contains("oops") && output.contains("100000") && output.len() < 10_000,
        "{output}"
    );
    assert_eq!(settled(&house, "g"), None);
    leaks::check(&house);

    let mut slow = recipe();
    (slow["setup_commands"], slow["timeout_secs"]) = (json!(["sleep 600"]), json!(1));
    let refused = house.refused("workspace_prepare", slow);
    assert_eq!(
        (refused.code.as_str(), &refused.details["timed_out"]),
        ("setup_failed", &json!(true))
    );
    assert_eq!(settled(&house, "g"), None);

    // The guest's own git says no.
    let mut absent = recipe();
    absent["git_url"] = json!("file:///srv/absent.git");
    let refused = house.refused("workspace_prepare", absent);
    assert_eq!(refused.code, "git_clone_failed");
    let output = refused.details["output"].as_str().expect("output");
    assert!(output.contains("absent.git"), "{output}");
    assert_eq!(settled(&house, "g"), None);
    leaks::check(&house);
    house.call("workspace_prepare", recipe());
}

pub fn every_point_of_a_preparation(mut house: House) {
    for point in [
        "create.after_plan",
        "start.after_launched",
        "prepare.after_boot",
        "prepare.after_setup",
        "snapshot.after_intent",
        "snapshot.after_save",
        "snapshot.after_made",
        "prepare.before_created",
    ] {
        die_at(&mut house, point, |house| {
            let answer = house.try_call("workspace_prepare", recipe());
            assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
        });
        assert_eq!(settled(&house, "g"), None, "{point}: it was not undone");
        leaks::check(&house);
    }
    die_at(&mut house, "prepare.after_created", |house| {
        let _died = house.try_call("workspace_prepare", recipe());
    });
    // Whether or not that was answered: what is golden is there.
    assert_eq!(settled(&house, "g").as_deref(), Some("running"));
    let again = house.call("workspace_prepare", recipe());
    assert_eq!(again["reused_existing"], true);
    let args = json!({ "workspace_id": "g", "snapshot_name": "golden", "new_name": "f" });
    house.call("workspace_fork", args);
    assert_eq!(house.exec("f", "cat /dev/shm/warm").trim(), "built");
    leaks::check(&house);
}

pub fn a_sandbox_is_not_prepared(house: House) {
    let refused = house.refused("workspace_prepare", recipe());
    assert_eq!(refused.code, "snapshot_unsupported");
    assert_eq!(house.list().len(), 0);
}
