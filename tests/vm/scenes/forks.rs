//! An agent's thought that goes on from an earlier turn, in the machine of that turn: its disk, and what ran in it; and
//! the best of eight forks, whose commits come into the machine that they began as.

use std::{
    fs::OpenOptions,
    io::Write,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::examples::assert_guide;
use crate::house::{House, PATIENCE};

/// Writes what the turn is to the disk and to memory, and says it at the end.
fn replies() -> Value {
    let run = |command: &str| json!([{ "name": "bash", "arguments": { "command": command } }]);
    let first = run("echo one > /workspace/note; echo 1 > /dev/shm/n");
    let second = || json!({ "calls": run("echo two >> /workspace/note; echo 2 > /dev/shm/n") });
    let look = run("tr '\\n' , < /workspace/note; cat /dev/shm/n");
    let done = || json!({ "text": "Done." });
    json!({ "replies": [
        { "when": "Task: count", "calls": first },
        { "when": "Now look.", "calls": look },
        { "when": "one,1", "text": "It is as it was." },
        second(), done(), second(), done(),
    ] })
}

/// Has the daemon's model be a script, and deploys an agent with a machine.
fn with_agent(house: &mut House, replies: &Value, name: &str, instruction: &str) {
    let script = house.path().join("replies.json");
    std::fs::write(&script, replies.to_string()).expect("written");
    let config = house.path().join("config.toml");
    let mut file = OpenOptions::new().append(true).open(config).expect("the configuration");
    write!(
        file,
        "[model.provider.script]\nkind = \"scripted\"\nscript = {script:?}\nmodels = {{ m = {{}} }}\n"
    )
    .expect("written");
    house.restart();
    let manifest = json!({
        "apiVersion": "100monkeys.ai/v1", "kind": "Agent",
        "metadata": { "name": name, "version": "1.0.0" },
        "spec": {
            "runtime": { "language": "python", "version": "3.11", "isolation": "microvm" },
            "execution": { "checkpoint": "turn" },
            "tools": ["bash"],
            "task": { "instruction": instruction },
        },
    });
    house.call("aegis.agent.create", json!({ "manifest_yaml": manifest.to_string() }));
}

fn wait(house: &House, id: &Value) -> Value {
    house.call("aegis.task.wait", json!({ "execution_id": id, "timeout_seconds": 100 }))
}

pub fn a_thought_goes_on_in_the_machine_of_its_turn(mut house: House) {
    with_agent(&mut house, &replies(), "counter", "Count.");
    let asked = json!({ "agent_id": "counter", "intent": "count" });
    let id = house.call("aegis.task.execute", asked)["execution_id"].clone();
    let end = wait(&house, &id);
    assert_eq!(end["last_output"], "Done.", "{end}");
    let look = json!({ "instruction": "Now look." });
    let forks = json!({ "execution_id": id, "at": { "turn": 1 }, "variations": [look, look] });
    let forks = house.call("agent_fork", forks)["execution_ids"].clone();
    for fork in forks.as_array().expect("ids") {
        let end = wait(&house, fork);
        assert_eq!(end["last_output"], "It is as it was.", "{end}");
    }
    assert_eq!(house.list().len(), 3, "each has a machine of its own");

    let asked = json!({ "agent_id": "counter", "intent": "count", "chat": true });
    let chat = house.call("aegis.task.execute", asked)["execution_id"].clone();
    let rests = |house: &House| {
        let limit = Instant::now() + PATIENCE;
        loop {
            let now = house.call("aegis.task.status", json!({ "execution_id": chat }));
            if now["waiting_for"] == "message" {
                return now["last_output"].clone();
            }
            assert!(Instant::now() < limit, "{now}");
            thread::sleep(Duration::from_millis(50));
        }
    };
    assert_eq!(rests(&house), "Done.");
    let back = json!({ "execution_id": chat, "to": { "turn": 1 }, "instruction": "Now look." });
    assert_eq!(house.call("agent_rewind", back)["machine"], "restored");
    assert_eq!(rests(&house), "It is as it was.");
    house.call("aegis.task.cancel", json!({ "execution_id": chat }));
}

/// Two functions of a repository, each with a test that fails, and how many of the tests pass.
const PROJECT: &str = r#"cd /workspace && git init -q -b main . && echo exit 1 | tee upper.sh > total.sh
cat > test.sh <<'END'
n=0
[ "$(echo abc | sh upper.sh)" = ABC ] && n=$((n + 1))
[ "$(printf '1\n2\n' | sh total.sh)" = 3 ] && n=$((n + 1))
echo "passed: $n of 2, lines: $(cat upper.sh total.sh | wc -l)"
END
git add . && git -c user.name=Ada -c user.email=ada@example.org commit -q -m project && sh test.sh"#;
/// Attempts at both: `upper.sh`, `total.sh`. The fifth is the best.
const ATTEMPTS: [(&str, &str); 8] = [
    ("cat", "wc -l"),
    ("tr a-z A-Z", "wc -l"),
    ("cat", "n=0\nwhile read -r it\ndo n=$((n + it))\ndone\necho $n"),
    ("tr a-z A-Z |\ncat", "n=0; while read -r it; do n=$((n + it)); done; echo $n"),
    ("tr a-z A-Z", "n=0; while read -r it; do n=$((n + it)); done; echo $n"),
    ("tr a-z A-Z", "n=0\nwhile read -r it\ndo n=$((n + it))\ndone\necho $n"),
    ("cat", "cat"),
    ("tr a-z A-Z", "cat"),
];

/// What the model says to the project, to each attempt and to what its tests say; and as a judge of that.
fn attempts() -> Value {
    let run = |command: &str| json!([{ "name": "bash", "arguments": { "command": command } }]);
    let judged = |said: &str, score: f64| {
        let judgment = json!({ "score": score, "confidence": 0.9, "reasoning": "Counted." });
        json!({ "when": said, "text": judgment.to_string() })
    };
    let tells = |found: &str, said: &str| json!({ "when": found, "text": said });
    let mut replies = vec![
        judged("Both pass in 2 lines.", 0.9),
        judged("Both pass.", 0.7),
        judged("One passes.", 0.4),
        judged("None passes.", 0.1),
        json!({ "when": "Task: mend both", "calls": run(PROJECT) }),
        tells("passed: 2 of 2, lines: 2", "Both pass in 2 lines."),
        tells("passed: 2 of 2", "Both pass."),
        tells("passed: 1 of 2", "One passes."),
        tells("passed: 0 of 2", "None passes."),
    ];
    for (number, (upper, total)) in (1..).zip(ATTEMPTS) {
        let command = format!(
            "cd /workspace && cat > upper.sh <<'END'\n{upper}\nEND\ncat > total.sh <<'END'\n{total}\nEND\n\
             git -c user.name=Ada -c user.email=ada@example.org commit -q -a -m attempt-{number} && sh test.sh"
        );
        replies.push(json!({ "when": format!("Attempt {number}."), "calls": run(&command) }));
    }
    json!({ "replies": replies })
}

/// Machine of an execution that is over, once that has let it go.
fn let_go(house: &House, id: &Value) -> Value {
    let limit = Instant::now() + PATIENCE;
    loop {
        let logs = house.call("aegis.task.logs", json!({ "execution_id": id, "limit": 200 }));
        let last = logs["events"].as_array().and_then(|events| events.last()).expect("one");
        if last["event_type"] == "session_closed" {
            return last["payload"]["workspaces"][0]["workspace_id"].clone();
        }
        assert!(Instant::now() < limit, "{logs}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A machine that is the caller's own now, and runs.
fn taken_over(house: &House, machine: Value) -> Value {
    let of_it = json!({ "workspace_id": machine });
    assert_eq!(house.call("workspace_adopt", of_it.clone())["adopted_one"], true);
    house.call("workspace_start", of_it);
    machine
}

/// Eight attempts of one thought, each judged.
fn attempted(house: &House, id: &Value) -> Vec<Value> {
    let told = |number| json!({ "instruction": format!("Attempt {number}.") });
    let variations: Vec<_> = (1..=ATTEMPTS.len()).map(told).collect();
    let best_of =
        json!({ "judges": ["code-quality-judge"], "criteria": "Tests pass, in few lines." });
    let asked = json!({ "execution_id": id, "at": { "turn": 1 }, "variations": variations, "best_of": best_of });
    let begun = house.call("agent_fork", asked);
    assert_eq!(begun["machine"], true, "{begun}");
    let forks = begun["execution_ids"].as_array().expect("ids").clone();
    for fork in &forks {
        let end = wait(house, fork);
        assert_eq!(end["status"], "completed", "{end}");
    }
    forks
}

pub fn the_best_of_eight_forks_is_merged(mut house: House) {
    with_agent(&mut house, &attempts(), "coder", "Mend the functions.");
    let asked = json!({ "agent_id": "coder", "intent": "mend both" });
    let id = house.call("aegis.task.execute", asked)["execution_id"].clone();
    assert_eq!(wait(&house, &id)["last_output"], "None passes.");
    let forks = attempted(&house, &id);
    let machines: Vec<_> = forks.iter().map(|fork| let_go(&house, fork)).collect();
    let target = let_go(&house, &id);

    let compared = house.call("agent_compare", json!({ "execution_ids": forks, "files": true }));
    let rows = compared["executions"].as_array().expect("rows");
    let scores: Vec<_> = rows.iter().map(|row| row["score"].as_f64().expect("judged")).collect();
    assert_eq!(scores, [0.1, 0.4, 0.4, 0.7, 0.9, 0.7, 0.1, 0.4]);
    assert_eq!(compared["best"], forks[4], "{compared}");
    assert!(rows.iter().all(|row| row.get("files_error").is_none()), "{compared}");
    let files = &compared["files"];
    assert_eq!((&files["checkpoint_error"], &files["total"]), (&Value::Null, &json!(2)), "{files}");
    let [total, upper] = [0_usize, 1].map(|at| &files["files"][at]);
    assert_eq!((&total["path"], &upper["path"]), (&json!("total.sh"), &json!("upper.sh")));
    let versions = |file: &Value| file["versions"].as_array().expect("versions").clone();
    assert_eq!((versions(total).len(), versions(upper).len()), (4, 3), "{files}");
    let has_best = |version: &Value| {
        version["execution_ids"].as_array().is_some_and(|ids| ids.contains(&forks[4]))
    };
    let of_best = versions(upper).into_iter().find(has_best).expect("one");
    let diff = "--- a/upper.sh\n+++ b/upper.sh\n@@ -1 +1 @@\n-exit 1\n+tr a-z A-Z\n";
    assert_eq!(of_best["diff"], diff);
    let left = house.list();
    assert_eq!(left.len(), 9, "the fork of the checkpoint is gone: {left:?}");
    assert!(left.iter().all(|row| row["state"] == "stopped"), "as they were: {left:?}");

    let (best, target) = (taken_over(&house, machines[4].clone()), taken_over(&house, target));
    let merged = house.call(
        "workspace_merge",
        json!({ "source_workspaces": [best], "target_workspace": target, "strategy": "sequential" }),
    );
    assert_eq!(
        (&merged["success"], &merged["total_commits_applied"]),
        (&json!(true), &json!(1)),
        "{merged}"
    );
    let target = target.as_str().expect("an id");
    let tested = house.exec(target, "cd /workspace && sh test.sh && git log --format=%s");
    assert_eq!(tested, "passed: 2 of 2, lines: 2\nattempt-5\nproject\n");
    assert_guide("forks-of-thought.md", &told(&scores, diff, &tested));
}

/// What the guide shows: the score of each attempt, the best one's difference, and what its merge leaves.
fn told(scores: &[f64], diff: &str, tested: &str) -> String {
    let row = |(number, score): (usize, &f64)| format!("attempt {number}: {score}\n");
    let rows: String = (1..).zip(scores).map(row).collect();
    format!("{rows}best: attempt 5\n{diff}merged:\n{tested}")
}
