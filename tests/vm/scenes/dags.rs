//! Runs of DAGs in real workspaces.

use std::{
    io::Write as _,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::image;
use crate::{
    house::{House, Kind, PATIENCE},
    leaks,
};

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

fn until(house: &House, what: &str, mut holds: impl FnMut(&House) -> bool) {
    let begun = Instant::now();
    while !holds(house) {
        assert!(begun.elapsed() < PATIENCE, "{what}: {}", house.stderr());
        std::thread::sleep(Duration::from_millis(100));
    }
}

pub fn a_run_goes_on_after_kill_9_and_is_retried_where_it_failed(house: &mut House) {
    let others = house.list().len();
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

    if house.kind == Kind::Sandbox {
        let forks = json!({ "yaml": "steps: [{ id: a, run: 'true', fork: true }]" });
        let id = house.call("dag_start", forks)["run_id"].clone();
        let run = run_of(house, &id, 60);
        let error = run["steps"][0]["error"].as_str().unwrap_or_default();
        assert!(error.contains("is for virtual machines"), "{run:#}");
    }
    // That of the run that failed is kept for a retry.
    let running =
        |house: &House| house.list().iter().filter(|row| row["state"] == "running").count();
    until(house, "workspaces of runs are gone", |house| running(house) == others);
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

/// Steps in containers: as the user of the image and as another one, over a folder that they share, and a volume.
const CONTAINERS: &str = r#"
type: chain
container: { image: users }
steps:
- id: first
  container: { image: users, volumes: ["kept:/kept"], env: [{ SAID: one }] }
  run: |
    id -u > who; echo "$SAID" > shared; echo begun >> times; sleep 2
    echo "user=$(id -u)" >> "$DAGU_OUTPUT_FILE"
  outputs: [{ name: user }]
- { id: second, action: container.run, with: { image: users, user: root, volumes: ["kept:/kept"], command: "id -u >> who; cat shared > /kept/it; test ! -e /tmp/mine" } }
- { id: third, action: container.run, with: { image: users, user: media, command: [sh, -c, "id -u; cat shared"] } }
- { id: fourth, run: "echo ${steps.first.outputs.user}; cat who times; echo > /tmp/mine" }
"#;
/// The same over a folder of the host.
const FOLDER: &str = r#"
working_dir: .
steps:
- { id: here, container: { image: users, volumes: [".:/src:ro"] }, run: "cat /src/given > taken; ! echo > /src/no" }
"#;

/// Configuration with a folder that is opened to sessions.
pub fn with_folder(house: &House) -> String {
    let folder = house.path().join("notes");
    format!("[session.places.notes]\nfolder = {folder:?}\nread_only = false\n")
}

pub fn steps_run_in_containers_over_one_folder(mut house: House) {
    let notes = house.path().join("notes");
    std::fs::create_dir(&notes).expect("made");
    std::fs::write(notes.join("given"), "given\n").expect("written");
    for path in [&notes, &notes.join("given")] {
        std::os::unix::fs::chown(path, Some(1000), Some(1000)).expect("given");
    }
    let places = with_folder(&house);
    image::with_users(&mut house, &places);
    house.call("aegis.volume.create", json!({ "label": "kept", "size_limit_bytes": 16 << 20 }));
    let root = json!({ "name": "w", "base_image": "users", "volumes": [{ "volume": "kept", "path": "/kept" }] });
    house.call("workspace_create", root);

    let id = house.call("dag_start", json!({ "yaml": CONTAINERS }))["run_id"].clone();
    until(&house, "the first step runs", |house| {
        house.list().iter().any(|row| row["name"].as_str().is_some_and(|it| it.ends_with("-0-1")))
    });
    std::thread::sleep(Duration::from_millis(500));
    house.kill();
    house.start();
    let run = run_of(&house, &id, 60);
    assert_eq!(states(&run), ["succeeded"; 4], "{run:#}");
    let said = |step: &str| {
        let logs = house.call("dag_logs", json!({ "run_id": id, "step": step }));
        logs["stdout"]["text"].as_str().expect("text").to_owned()
    };
    assert_eq!(said("third"), "44\none\n");
    assert_eq!(said("fourth"), "1000\n1000\n0\nbegun\n", "no step ran twice");
    assert_eq!(house.exec("w", "cat /kept/it"), "one\n");
    house.call("workspace_destroy", json!({ "workspace_id": "w" }));

    let given = json!({ "yaml": FOLDER, "place": "notes" });
    let id = house.call("dag_start", given)["run_id"].clone();
    let run = run_of(&house, &id, 60);
    assert_eq!(states(&run), ["succeeded"], "{run:#}");
    assert_eq!(std::fs::read_to_string(notes.join("taken")).expect("it is there"), "given\n");
    let left = notes.join(".hivekeep-runs");
    until(&house, "what steps left for one another is gone", |_| !left.exists());
    until(&house, "workspaces of runs are gone", |house| house.list().is_empty());

    let registry = CONTAINERS.replace("image: users", "image: docker.io/library/none:1");
    let id = house.call("dag_start", json!({ "yaml": registry }))["run_id"].clone();
    let run = run_of(&house, &id, 60);
    let error = run["steps"][0]["error"].as_str().unwrap_or_default();
    assert!(error.contains("image_not_allowed"), "{run:#}");
    leaks::check(&house);
}

/// A step that fails until its machine has seen it twice.
const FORKED: &str = r#"
type: chain
steps:
- { id: a, run: "echo a > /root/f; echo held > /dev/shm/m" }
- { id: b, fork: true, run: "cat /dev/shm/m; echo b >> /root/f; test $(grep -c b /root/f) -ge 2" }
- { id: c, run: "cat /root/f /dev/shm/m" }
"#;

pub fn a_failed_step_is_looked_into_and_retried_in_forks(mut house: House) {
    let names = |house: &House| {
        let name = |row: &Value| row["name"].as_str().expect("a name").to_owned();
        let names = house.list().iter().map(name).collect::<Vec<_>>();
        // The run's own machine is kept for a retry, too.
        names.into_iter().filter(|name| !name.starts_with("session-")).collect::<Vec<_>>()
    };
    house.kill();
    house.start_armed("run.forked=return(kill)");
    let id = house.call("dag_start", json!({ "yaml": FORKED }))["run_id"].clone();
    house.wait_for_death();
    house.start();
    let run = run_of(&house, &id, 120);
    assert_eq!(states(&run), ["succeeded", "failed", "aborted"], "{run:#}");
    let uuid = id.as_str().and_then(|id| id.split_once('_')).expect("an id").1.replace('-', "");
    let kept = format!("run-{uuid}-1-1");
    until(&house, "one machine is kept", |house| names(house) == [kept.as_str()]);

    let id = id.as_str().expect("text").to_owned();
    let mut command = house.command();
    command.args(["dag", "debug", &id, "b"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = command.spawn().expect("started");
    let typed = b"cat /root/f /dev/shm/m; echo b >> /root/f; exit 0\n";
    shell.stdin.take().expect("a pipe").write_all(typed).expect("written");
    let done = shell.wait_with_output().expect("ended");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "a\nb\nheld\n");
    assert!(done.status.success());
    assert_eq!(names(&house), [kept], "the fork to look at is gone");

    house.call("dag_control", json!({ "run_id": id, "action": "retry_failed" }));
    let run = run_of(&house, &json!(id), 120);
    assert_eq!(states(&run), ["succeeded"; 3], "{run:#}");
    let logs = house.call("dag_logs", json!({ "run_id": id, "step": "c" }));
    assert_eq!(logs["stdout"]["text"], "a\nb\nb\nheld\n");
    until(&house, "nothing is kept", |house| names(house).is_empty());
}

/// The daemon dies when a step runs that it has not recorded so, with its result in hand, and behind the record.
pub fn a_daemon_that_dies_at_a_point_of_a_step_runs_it_once(house: &mut House) {
    for point in ["run.assigned", "run.result", "run.after_end"] {
        house.kill();
        house.start_armed(&format!("{point}=return(kill)"));
        let yaml = format!(
            "name: {point}\ntype: chain\nworking_dir: .\nsteps:\n- run: echo a >> {point}\n- run: echo b >> {point}\n"
        );
        // The answer may be lost with the daemon.
        let _answer = house.try_call("dag_start", json!({ "yaml": yaml, "place": "w" }));
        house.wait_for_death();
        house.start();
        let id = house.call("dag_runs", json!({ "name": point }))["runs"][0]["run_id"].clone();
        let run = run_of(house, &id, 60);
        assert_eq!(states(&run), ["succeeded"; 2], "{point}: {run:#}");
        assert_eq!(house.exec("w", &format!("cat /workspace/{point}")), "a\nb\n", "{point}");
    }
}

/// Each run is begun in the session of the one before, and sessions are nested so far and no further.
pub fn a_dag_that_starts_itself_comes_to_an_end(house: &mut House) {
    let text = "name: itself\nparams: [{ name: text }]\nsteps: [{ action: dag_start, \
                with: { yaml: '${params.text}', params: { text: '${params.text}' } } }]\n";
    house.call("dag_start", json!({ "yaml": text, "params": { "text": text } }));
    let runs = |house: &House| house.call("dag_runs", json!({ "name": "itself", "limit": 200 }));
    let is_over = |run: &Value| {
        !["queued", "pending", "running"].contains(&run["status"].as_str().expect("a word"))
    };
    let mut rests = 0;
    until(house, "it comes to an end", |house| {
        let over = runs(house)["runs"].as_array().expect("rows").iter().all(is_over);
        rests = if over { rests + 1 } else { 0 };
        rests == 10
    });
    let total = runs(house)["total"].as_u64().expect("a number");
    let last = run_of(house, &runs(house)["runs"][0]["run_id"], 0);
    let why = last["error"].as_str().unwrap_or_default();
    assert!((2..=5).contains(&total) && why.contains("child_too_deep"), "{total} runs, {last:#}");
}
