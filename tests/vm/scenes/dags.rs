//! Runs of DAGs in real workspaces.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::house::{House, PATIENCE};

/// Steps that leave a line each time that they run, of which one takes its time and one fails until it is allowed to
/// pass.
const DAG: &str = r#"
type: chain
working_dir: .
params: [{ name: who, type: string, default: world }]
env: [{ GREETING: "hi ${params.who}" }]
steps:
- { id: first, run: "echo first >> done; echo \"said=$GREETING\" >> \"$DAGU_OUTPUT_FILE\"", outputs: [{ name: said }] }
- { id: long, run: "echo long >> done; sleep 3; echo '${steps.first.outputs.said}' >> done" }
- { id: gate, run: "echo gate >> done; test -e pass || { echo closed >&2; exit 7; }" }
- { id: each, foreach: { items: [a, b, c], steps: [{ id: one, run: "echo '${foreach.item}' >> items" }] } }
"#;

fn run_of(house: &House, id: &Value, wait_secs: u64) -> Value {
    let mut shown = house.call("dag_runs", json!({ "run_id": id, "wait_secs": wait_secs }));
    shown["run"].take()
}

fn states(run: &Value) -> Vec<&str> {
    let steps = run["steps"].as_array().expect("steps").iter();
    steps.map(|step| step["status"].as_str().expect("a word")).collect()
}

fn until(house: &House, what: &str, holds: impl Fn(&House) -> bool) {
    let begun = Instant::now();
    while !holds(house) {
        assert!(begun.elapsed() < PATIENCE, "{what}: {}", house.stderr());
        std::thread::sleep(Duration::from_millis(100));
    }
}

pub fn a_run_goes_on_after_kill_9_and_is_retried_where_it_failed(house: &mut House) {
    let given = json!({ "yaml": DAG, "place": "w", "params": { "who": "bees; $(date) 'x'" } });
    let id = house.call("dag_start", given)["run_id"].clone();
    until(house, "the second step runs", |house| {
        let run = run_of(house, &id, 0);
        states(&run).get(1) == Some(&"running")
            && house.exec("w", "cat /workspace/done 2>/dev/null || true").contains("long")
    });
    house.kill();
    house.start();
    let run = run_of(house, &id, 60);
    assert_eq!(states(&run), ["succeeded", "succeeded", "failed", "aborted"], "{run:#}");
    assert_eq!((&run["status"], &run["steps"][2]["exit_code"]), (&json!("failed"), &json!(7)));
    assert_eq!(run["steps"][0]["outputs"]["said"], "hi bees; $(date) 'x'");
    let done = "first\nlong\nhi bees; $(date) x\ngate\n";
    assert_eq!(house.exec("w", "cat /workspace/done"), done, "no step ran twice");
    let logs = house.call("dag_logs", json!({ "run_id": id, "step": "gate" }));
    assert_eq!((&logs["stderr"]["text"], &logs["status"]), (&json!("closed\n"), &json!("failed")));

    house.exec("w", "touch /workspace/pass");
    let retry = json!({ "run_id": id, "action": "retry_failed" });
    assert_eq!(house.call("dag_control", retry)["changed"], true);
    let run = run_of(house, &id, 60);
    assert_eq!(states(&run), ["succeeded"; 4], "{run:#}");
    assert_eq!(house.exec("w", "cat /workspace/done"), format!("{done}gate\n"));
    assert_eq!(house.exec("w", "sort /workspace/items"), "a\nb\nc\n");
    assert_eq!((&run["retries"], &run["status"]), (&json!(1), &json!("succeeded")));

    let sleeps = json!({ "yaml": "steps: [{ run: echo begun; sleep 600 }]", "place": "w" });
    let id = house.call("dag_start", sleeps)["run_id"].clone();
    until(house, "its output is there while it runs", |house| {
        // Before its plan is recorded the run has no steps.
        let logs = house.try_call("dag_logs", json!({ "run_id": id, "step": "step_1" }));
        logs.is_ok_and(|logs| logs["stdout"]["text"] == "begun\n" && logs["status"] == "running")
    });
    house.call("dag_control", json!({ "run_id": id, "action": "stop" }));
    assert_eq!(run_of(house, &id, 60)["status"], "aborted");
    assert_eq!(house.exec("w", "grep -xc sleep /proc/[0-9]*/comm | grep -c ':1' || true"), "0\n");

    own_workspaces(house);

    let nothing = "preconditions: [{ condition: a, expected: b }]\nsteps: [{ run: x }]";
    let id = house.call("dag_start", json!({ "yaml": nothing }))["run_id"].clone();
    let run = run_of(house, &id, 60);
    assert_eq!((&run["status"], &run["stopped_by"]), (&json!("aborted"), &json!("conditions")));

    let refused = house.refused("dag_start", json!({ "yaml": "steps: [{ runn: x }]" }));
    assert_eq!(refused.code, "dag_invalid");
}

/// The workspace of a run's own is kept for a retry alone, and gone with the run that succeeded.
fn own_workspaces(house: &House) {
    let yaml = "type: chain\nworking_dir: .\nsteps: [{ run: echo a > kept }, \
                { id: b, run: \"test -e seen || { touch seen; exit 3; }; cat kept\" }]";
    let id = house.call("dag_start", json!({ "yaml": yaml }))["run_id"].clone();
    assert_eq!(run_of(house, &id, 60)["status"], "failed");
    let own = |house: &House| {
        let rows = house.list();
        let own = rows
            .iter()
            .filter(|row| row["name"].as_str().is_some_and(|it| it.starts_with("session-")));
        own.map(|row| row["state"].clone()).collect::<Vec<_>>()
    };
    until(house, "it is stopped", |house| own(house) == ["stopped"]);
    house.call("dag_control", json!({ "run_id": id, "action": "retry_failed" }));
    let run = run_of(house, &id, 60);
    assert_eq!(states(&run), ["succeeded"; 2], "{run:#}");
    until(house, "it is gone", |house| own(house).is_empty());
}
