//! A state folder of an older version, taken over by this one.
//!
//! Twice: as it was recorded of commit 59e9af1 when the power was cut (`tests/upgrade`), and, where
//! [`OLD`] names a folder with an older version's two programs, from a daemon that was killed
//! while its machines go on (`cargo xtask upgrade`).

mod records;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    house::{House, Kind},
    leaks,
    needs::{GUEST, IMAGES, named},
};

/// Records name folders by their whole paths, so both daemons live here.
const HOME: &str = "/tmp/hivekeep-upgrade";
/// Recorded states, and whether they hold [`records`].
const RECORDED: [(&str, bool); 2] = [("59e9af1", false), ("3638dd67", true)];

/// Names a folder with both programs of an older version.
pub const OLD: &str = "TEST_HIVEKEEP_OLD";
/// Ids of the jobs, below the daemon's folder.
const JOBS: &str = "jobs.json";
/// Manifest of the image that the recorded sandboxes stand on, below the daemon's folder.
const IMAGE: &str = "image.json";

fn home() -> tempfile::TempDir {
    let (parent, name) = HOME.rsplit_once('/').expect("an absolute path");
    let made = tempfile::Builder::new().prefix(name).rand_bytes(0).tempdir_in(parent);
    made.unwrap_or_else(|error| panic!("{HOME} is left of another run: {error}"))
}

fn team(house: &House, action: &str, more: Value) -> Value {
    let mut args = json!({ "action": action, "name": "crew" });
    args.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    house.call("team", args)
}

fn assign(house: &House, id: &str, command: &str) {
    let content = json!({ "task_id": id, "command": command, "timeout_secs": 3600 }).to_string();
    let more = json!({
        "agent": "boss", "to": "a", "content": content, "message_type": "task_assignment",
    });
    team(house, "message", more);
}

fn until(house: &House, what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(180), "{what}\n{}", house.stderr());
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn swarm(house: &House, at: usize) -> Value {
    let id = house.call("swarm_status", json!({}))["swarms"][at]["swarm_id"].clone();
    let asked = json!({ "swarm_id": id, "wait_secs": 100 });
    house.call("swarm_status", asked)["swarm"].take()
}

/// A task of a swarm, which waits for a file that the machine's snapshot does not have.
fn held_up(name: &str) -> Value {
    let wait = "until [ -e /tmp/go ]; do sleep 0.1; done";
    let command = format!("{wait}; echo done > {name}; git add {name}; git commit -q -m {name}");
    json!({ "name": name, "command": command })
}

/// Everything that a daemon keeps, in the middle of its work.
fn load(house: &House) {
    for name in ["box", "halted"] {
        house.create(name);
        house.exec(name, "echo kept > /root/file; sync");
        house.call("set_env", json!({ "workspace_id": name, "vars": { "COLOUR": "blue" } }));
    }
    let job = |command: &str| {
        let start = json!({ "workspace_id": "box", "action": "start", "command": command });
        house.call("exec_background", start)
    };
    let ids = [
        job("echo over")["job_id"].take(),
        job("until [ -e /tmp/go ]; do sleep 0.1; done; echo went on")["job_id"].take(),
    ];
    std::fs::write(house.path().join(JOBS), json!(ids).to_string()).expect("written");
    house.call("workspace_stop", json!({ "workspace_id": "halted" }));

    for (path, content) in [("plan.md", "# Plan\n#work"), ("deep/down/note.md", "a needle")] {
        let note = json!({ "action": "write", "path": path, "content": content });
        house.call("vault", note);
    }

    let roles = json!([{ "name": "boss", "role": "lead" }, { "name": "a", "role": "hand" }]);
    team(house, "create", json!({ "roles": roles, "max_vms": 4 }));
    let below = json!({ "action": "create", "name": "below", "parent_team": "crew",
        "roles": [{ "name": "c", "role": "hand" }] });
    house.call("team", below);
    for content in ["first", "second", "third"] {
        team(house, "message", json!({ "agent": "boss", "to": "a", "content": content }));
    }
    // Handed out, and never confirmed.
    team(house, "receive", json!({ "agent": "a", "limit": 1, "confirm": "explicit" }));
    assign(house, "over", "echo over");
    until(house, "a task is not over", || {
        let status = team(house, "status", json!({}));
        status["members"][1]["pending_tasks"] == 0
    });
    assign(house, "runs", "until [ -e /tmp/go ]; do sleep 0.1; done; echo went on");
    assign(house, "beside", "echo beside");

    house.call("workspace_create", json!({ "name": "w", "isolation": "vm" }));
    house.exec(
        "w",
        "cd /workspace && git init -q -b main . && git config user.name Ada \
         && git config user.email ada@example.org && echo base > base && git add . \
         && git commit -q -m base && sync",
    );
    let frozen = json!({ "workspace_id": "w", "action": "create", "name": "s",
        "include_memory": true });
    house.call("snapshot", frozen);
    let request = |tasks: Value| {
        json!({ "golden_workspace": "w", "snapshot_name": "s", "tasks": tasks,
            "merge_strategy": "sequential", "timeout_secs": 3600 })
    };
    let quick = json!([{ "name": "quick", "command": "echo quick" }]);
    house.call("swarm_run", request(quick));
    let (door, args) = (house.door(), request(json!([held_up("x"), held_up("y")])));
    std::thread::spawn(move || {
        // It is cut by the daemon's death.
        drop(
            door.ask(json!({ "method": "call", "params": { "tool": "swarm_run", "args": args } })),
        );
    });
    until(house, "the swarm does not run", || {
        let listed = house.call("swarm_status", json!({}));
        let id = listed["swarms"][1]["swarm_id"].clone();
        id.is_string() && {
            let told = house.call("swarm_status", json!({ "swarm_id": id }))["swarm"].take();
            let rows = told["tasks"].as_array().expect("rows").clone();
            rows.iter().all(|row| row["outcome"] == "running")
        }
    });
}

/// Checks what is durable, whatever became of the machines.
fn nothing_is_lost(house: &House) {
    let found = house.call("vault", json!({ "action": "search", "query": "needle" }));
    assert_eq!(found["results"][0]["path"], "deep/down/note.md", "{found}");
    let tagged = house.call("vault", json!({ "action": "read", "path": "plan.md" }));
    assert_eq!(tagged["content"], "# Plan\n#work", "{tagged}");

    let listed = house.call("team", json!({ "action": "list" }));
    assert_eq!(listed["count"], 2, "{listed}");
    let status = team(house, "status", json!({}));
    assert_eq!((&status["max_vms"], &status["sub_teams"][0]), (&json!(4), &json!("below")));
    let got = team(house, "receive", json!({ "agent": "a", "confirm": "explicit" }));
    let contents: Vec<_> =
        got["messages"].as_array().expect("messages").iter().map(|one| &one["content"]).collect();
    assert_eq!(contents, ["first", "second", "third"], "{got}");
    let over = &got["daemon_results"][0];
    assert_eq!((&over["task_id"], &over["stdout"]), (&json!("over"), &json!("over\n")), "{got}");

    let quick = swarm(house, 0);
    assert_eq!(
        (&quick["state"], &quick["summary"]["succeeded"]),
        (&json!("completed"), &json!(1)),
        "{quick}"
    );
}

/// The jobs of `box`: one that was over, one that ran.
fn jobs(house: &House) -> Vec<Value> {
    let ids = std::fs::read(house.path().join(JOBS)).expect("written by the load");
    let ids: Vec<Value> = serde_json::from_slice(&ids).expect("JSON");
    let poll = |id| {
        let poll = json!({ "workspace_id": "box", "action": "poll", "job_id": id });
        house.call("exec_background", poll)
    };
    ids.into_iter().map(poll).collect()
}

/// Results of the member's tasks, as soon as there are as many.
fn results(house: &House, count: usize) -> Vec<Value> {
    let mut results = Vec::new();
    until(house, "results are missing", || {
        let asked = json!({ "agent": "a", "confirm": "explicit", "limit": 100 });
        results = team(house, "receive", asked)["daemon_results"].as_array().expect("rows").clone();
        results.len() >= count
    });
    results
}

fn remove_all(house: &House) {
    team(house, "destroy", json!({}));
    for row in house.list() {
        house.call("workspace_destroy", json!({ "workspace_id": row["workspace_id"] }));
    }
    leaks::check(house);
}

/// Folders that the recording leaves out: disks of virtual machines stand on the very bytes of the
/// image that they were made from.
const LEFT_OUT: [&str; 3] = ["layers", "memories", "transfers"];

/// Name of the tree of an image, among the objects of a folder of images.
fn tree_of(manifest: &Path) -> String {
    let text = std::fs::read(manifest).expect("a manifest");
    let manifest: Value = serde_json::from_slice(&text).expect("JSON");
    manifest["rootfs_tree"]["hash"].as_str().expect("a hash").to_owned()
}

/// The recorded states: everything of a daemon's that was cut from its power, but for the disks and
/// memories of virtual machines.
pub fn a_recorded_state_is_taken_over() {
    for (commit, has_records) in RECORDED {
        taken_over(commit, has_records);
    }
}

fn taken_over(commit: &str, has_records: bool) {
    let (images, guest) = (named(IMAGES), named(GUEST));
    let home = home();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upgrade");
    let recorded = folder.join(format!("state-{commit}.tar.zst"));
    let archive = std::fs::File::open(recorded).expect("the recorded state");
    let unpacked = zstd::Decoder::new(archive).expect("zstd");
    let mut archive = tar::Archive::new(unpacked);
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(true);
    archive.set_unpack_xattrs(true);
    archive.unpack(HOME).expect("unpacked");
    // Its sandboxes stand on an image of that time; the one at hand takes its place, also under the
    // name of the recorded one, which packages of another day give another.
    let (ours, theirs) = (images.join("objects"), home.path().join("images/objects"));
    std::fs::create_dir_all(&theirs).expect("made");
    std::os::unix::fs::symlink(images.join("images"), home.path().join("images/images"))
        .expect("linked");
    for object in std::fs::read_dir(&ours).expect("objects").flatten() {
        std::os::unix::fs::symlink(object.path(), theirs.join(object.file_name())).expect("linked");
    }
    let recorded = theirs.join(tree_of(&home.path().join(IMAGE)));
    if !recorded.exists() {
        let tree = ours.join(tree_of(&images.join("images/base.json")));
        std::os::unix::fs::symlink(tree, recorded).expect("linked");
    }
    let records = if has_records { records::config() } else { String::new() };
    // The recorded swarms get older with each day.
    let config = format!("[swarm]\nkept_days = 36500\n{records}");
    let mut house = House::closed_at(home, Kind::Sandbox, &images, &guest, &config);
    house.default_ids = true;
    house.start();
    // What the first daemon after the old one wrote is read by the next one.
    for _ in 0..2 {
        nothing_is_lost(&house);
        if has_records {
            records::are_read(&house);
        }
        until(&house, "machines of before the power cut seem to run", || {
            house.list().iter().all(|row| {
                let name = row["name"].as_str().expect("a name");
                row["state"]
                    == match name {
                        "halted" => "stopped",
                        records::PARKED => "parked",
                        _ => "crashed",
                    }
            })
        });
        house.kill();
        house.start();
    }
    let names: Vec<_> =
        house.list().iter().map(|row| row["name"].as_str().expect("a name").to_owned()).collect();
    let is_sandbox = |name: &&String| {
        !["w", records::PARKED].contains(&name.as_str()) && !name.starts_with("swarm-")
    };
    for name in names.iter().filter(is_sandbox) {
        house.call("workspace_start", json!({ "workspace_id": name }));
    }
    for name in ["box", "halted"] {
        assert_eq!(house.exec(name, "cat /root/file; echo $COLOUR"), "kept\nblue\n");
    }
    let jobs = jobs(&house);
    let over = (&jobs[0]["exit_code"], &jobs[0]["stdout"]);
    assert_eq!(over, (&json!(0), &json!("over\n")), "{jobs:?}");
    assert_eq!((&jobs[1]["running"], &jobs[1]["interrupted"]), (&json!(false), &json!(true)));
    let results = results(&house, 3);
    let told = |id: &str| results.iter().find(|result| result["task_id"] == id).expect("told");
    assert_eq!(
        (&told("over")["stdout"], &told("beside")["stdout"]),
        (&json!("over\n"), &json!("beside\n"))
    );
    assert_eq!(told("runs")["outcome"], "interrupted", "{results:?}");
    // Its machines' disks are not in the recording, which it says.
    let second = swarm(&house, 1);
    assert_eq!((&second["state"], &second["summary"]["failed"]), (&json!("completed"), &json!(2)));
    assert_eq!(second["tasks"][0]["error_code"], "disk_missing", "{second}");
    assert_eq!(second["summary"]["workers_destroyed"], 2, "{second}");
    remove_all(&house);
}

/// A daemon of the older version, killed with its machines at work; this one goes on with them.
pub fn an_older_daemon_is_replaced_while_its_machines_run() {
    let (old, images) = (named(OLD), named(IMAGES));
    let home = home();
    // An older version may write into its images.
    let copy = home.path().join("images");
    let copied = std::process::Command::new("cp").arg("-a").arg(&images).arg(&copy).status();
    assert!(copied.is_ok_and(|status| status.success()), "the images are not copied");
    let program = old.join("hivekeep");
    let has_records = records::kept_by(&program);
    let config = if has_records { records::prepare(home.path()) } else { String::new() };
    let guest = old.join("hivekeep-guest");
    let mut house = House::closed_at(home, Kind::Sandbox, &copy, &guest, &config);
    house.program = program;
    house.start();
    load(&house);
    if has_records {
        records::make(&house);
    }
    house.kill();
    if let Some(file) = std::env::var_os("TEST_HIVEKEEP_RECORD") {
        leaks::end_machines(house.path());
        return record(house.path(), Path::new(&file));
    }
    house.program = env!("CARGO_BIN_EXE_hivekeep").into();
    house.start();
    nothing_is_lost(&house);
    if has_records {
        records::are_read(&house);
        assert_eq!(house.exec(records::PARKED, "cat /dev/shm/x"), "volatile\n");
    }
    for name in ["box", "w"] {
        house.wait_state(name, "running");
    }
    let workspaces: Vec<_> =
        house.list().iter().map(|row| row["name"].as_str().expect("a name").to_owned()).collect();
    let waiting =
        |name: &&String| *name == "box" || name.starts_with("swarm-") || name.starts_with("crew-");
    for name in workspaces.iter().filter(waiting) {
        house.exec(name, "touch /tmp/go");
    }
    until(&house, "the job does not go on", || {
        jobs(&house).iter().all(|job| job["running"] == false)
    });
    let results = results(&house, 3);
    assert!(results.iter().all(|result| result["success"] == true), "{results:?}");
    let merged = swarm(&house, 1);
    assert_eq!(
        (&merged["state"], &merged["merge"]["success"]),
        (&json!("completed"), &json!(true))
    );
    assert_eq!(house.exec("w", "cd /workspace && cat x y base"), "done\ndone\nbase\n");
    remove_all(&house);
}

/// Packs a daemon's folder after all of its processes are gone.
fn record(home: &Path, file: &Path) {
    std::fs::copy(home.join("images/images/base.json"), home.join(IMAGE)).expect("copied");
    let packed = std::process::Command::new("tar")
        .args(["--sort=name", "--numeric-owner", "--xattrs"])
        .args(["--exclude=./images", "--exclude=./run", "--exclude=./logs"])
        .args(LEFT_OUT.map(|folder| format!("--exclude=./state/{folder}")))
        .args(["--use-compress-program=zstd -19", "-C"])
        .arg(home)
        .arg("-cf")
        .arg(file)
        .arg(".")
        .status();
    assert!(packed.is_ok_and(|status| status.success()), "the state is not packed");
}
