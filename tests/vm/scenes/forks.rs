//! An agent's thought that goes on from an earlier turn, in the machine of that turn: its disk, and what ran in it; and
//! the best of eight forks that mend two functions of this repository, whose commits come into the machine that they
//! began as.

use std::{
    fs::OpenOptions,
    io::Write,
    path::Path,
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

/// Configuration of a daemon whose machines have Python.
pub const CONFIG: &str = "default_image = \"code-interpreter\"";
/// Two files of this repository in a folder of it: an expression that each has, and a fault in its place.
const FOLDER: &str = "tests/clients";
const FAULTS: [(&str, &str, &str); 2] = [
    ("drive_programs.py", NAMED, r#"{"command": command}"#),
    ("model_wires.py", ONCE, "return len(parts)"),
];
/// Arguments of a command, whose name is a tool's: in a line, in two, and wrong.
const NAMED: &str = r#"{"cmd" if '"cmd"' in fields else "command": command}"#;
const NAMED_IN_TWO: &str = r#"{}
    arguments["cmd" if '"cmd"' in fields else "command"] = command"#;
const ONE_NAME: &str = r#"{"cmd": command}"#;
const BOTH_NAMES: &str = r#"{"cmd": command, "command": command}"#;
/// Number of the results in a conversation, some of which are there twice: in a line, in two, and wrong.
const ONCE: &str =
    r#"return len({json.dumps(part["functionResponse"], sort_keys=True) for part in parts})"#;
const ONCE_IN_TWO: &str = r#"once = {json.dumps(part["functionResponse"], sort_keys=True) for part in parts}
        return len(once)"#;
const MESSAGES: &str = r#"return len(body["contents"])"#;
/// Attempts at both. The fifth is the best.
const ATTEMPTS: [(&str, &str); 8] = [
    (ONE_NAME, MESSAGES),
    (ONE_NAME, ONCE),
    (NAMED_IN_TWO, MESSAGES),
    (NAMED, ONCE_IN_TWO),
    (NAMED, ONCE),
    (NAMED_IN_TWO, ONCE),
    (BOTH_NAMES, MESSAGES),
    (BOTH_NAMES, ONCE),
];
/// Program that says how many of the two functions work.
const TEST: &str = r#"from drive_programs import shell
from model_wires import Gemini

def takes(name):
    return shell({"parameters": {name: {}}}, "true") == {name: "true"}

said = {"parts": [{"functionResponse": {"name": "ls"}}]}
passed = all(map(takes, ["cmd", "command"])) + (Gemini().results({"contents": [said, said]}) == 1)
print(f"passed: {passed} of 2,", end="", flush=True)
"#;
/// Command that says how much of the repository is changed, too.
const CHECK: &str = "python3 -B test.py && git diff --shortstat project";

/// Replies of the model to the task, to each attempt and to what the test prints; and as a judge of that.
fn attempts() -> Value {
    let run = |command: &str| {
        let command =
            format!("mkdir -p /workspace/{FOLDER} && cd /workspace/{FOLDER}\n{command} && {CHECK}");
        json!([{ "name": "bash", "arguments": { "command": command } }])
    };
    let with_input =
        |command: &str, text: &str| format!("{command} <<'END-OF-TEXT'\n{text}\nEND-OF-TEXT\n");
    let judged = |said: &str, score: f64| {
        let judgment = json!({ "score": score, "confidence": 0.9, "reasoning": "Counted." });
        json!({ "when": said, "text": judgment.to_string() })
    };
    let tells = |found: &str, said: &str| json!({ "when": found, "text": said });
    let mut begin = with_input("cat > test.py", TEST);
    for (name, right, fault) in FAULTS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER).join(name);
        let text = std::fs::read_to_string(path).expect("it is in the checkout");
        assert_eq!(text.matches(right).count(), 1, "{name} has no longer {right}");
        begin += &with_input(&format!("cat > {name}"), text.replace(right, fault).trim_end());
    }
    // The folder is not root's: the image has a user for its interpreter.
    begin += "git config --global safe.directory /workspace && git config --global user.name Ada && \
        git config --global user.email ada@example.org && git init -qb main /workspace && \
        git add . && git commit -qm project && git tag project";
    let mut replies = vec![
        judged("Both pass in 2 lines.", 0.9),
        judged("Both pass.", 0.7),
        judged("One passes.", 0.4),
        judged("None passes.", 0.1),
        json!({ "when": "Task: mend both", "calls": run(&begin) }),
        tells("passed: 2 of 2, 2 files changed, 2 insertions", "Both pass in 2 lines."),
        tells("passed: 2 of 2", "Both pass."),
        tells("passed: 1 of 2", "One passes."),
        tells("passed: 0 of 2", "None passes."),
    ];
    for (number, (named, once)) in (1..).zip(ATTEMPTS) {
        let mend = |((_, _, fault), mended): ((_, _, &str), &str)| {
            format!("s/{fault}/{}/", mended.replace('\n', "\\n"))
        };
        let script: Vec<_> = FAULTS.into_iter().zip([named, once]).map(mend).collect();
        let mend = with_input("sed -i -f - *.py", &script.join("\n"));
        let calls = run(&format!("{mend}git commit -qam attempt-{number}"));
        replies.push(json!({ "when": format!("Attempt {number}."), "calls": calls }));
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
    let end = wait(&house, &id);
    assert_eq!(end["last_output"], "None passes.", "{end}");
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
    let files = files["files"].as_array().expect("files");
    let versions = |file: &Value| file["versions"].as_array().expect("versions").clone();
    assert_eq!(files.iter().map(|file| versions(file).len()).collect::<Vec<_>>(), [4, 3]);
    let has_best = |version: &Value| {
        version["execution_ids"].as_array().is_some_and(|ids| ids.contains(&forks[4]))
    };
    let mut diff = String::new();
    for (file, (name, right, fault)) in files.iter().zip(FAULTS) {
        assert_eq!(file["path"], format!("{FOLDER}/{name}"));
        let of_best = versions(file).into_iter().find(has_best).expect("one");
        let of_best = of_best["diff"].as_str().expect("a difference");
        // Numbers of lines, and lines around, change with the file.
        let changed: Vec<_> = of_best.lines().filter(|it| it.starts_with(['-', '+'])).collect();
        let [_, _, before, now] = changed[..] else { panic!("{of_best}") };
        assert!(before.ends_with(fault) && now.ends_with(right), "{of_best}");
        diff += &format!("{}\n", changed.join("\n"));
    }
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
    let command = format!("cd /workspace/{FOLDER} && {CHECK} && git log --format=%s");
    let tested = house.exec(target, &command);
    let changed = "2 files changed, 2 insertions(+), 2 deletions(-)";
    assert_eq!(tested, format!("passed: 2 of 2, {changed}\nattempt-5\nproject\n"));
    assert_guide("forks-of-thought.md", &told(&scores, &diff, &tested));
}

/// What the guide shows: the score of each attempt, the best one's difference, and what its merge leaves.
fn told(scores: &[f64], diff: &str, tested: &str) -> String {
    let row = |(number, score): (usize, &f64)| format!("attempt {number}: {score}\n");
    let rows: String = (1..).zip(scores).map(row).collect();
    format!("{rows}best: attempt 5\n{diff}merged:\n{tested}")
}
