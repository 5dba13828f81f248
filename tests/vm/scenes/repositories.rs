//! Repositories on volumes, by the git of real sandboxes: there and back, what fails, and a daemon that
//! dies at each point. The remote is a bare repository on a volume, for sandboxes have no network.

use serde_json::{Value, json};

use super::crash::die_at;
use crate::{house::House, leaks};

const MIB: u64 = 1 << 20;
const COMMIT: &str = "git -c user.name=a -c user.email=a@b.example commit -qm";

/// A volume with the remote, and a workspace `hub` that has it.
pub fn hub(house: &House) {
    let args = json!({ "label": "hub", "size_limit_bytes": 64 * MIB });
    house.call("aegis.volume.create", args);
    let volumes = json!([{ "volume": "hub", "path": "/hub" }]);
    house.call("workspace_create", json!({ "name": "hub", "volumes": volumes }));
    let made = format!(
        "git init -q -b main /work && cd /work && mkdir docs src && echo one > told && echo d > docs/d && \
         echo s > src/s && echo 'out/' > .gitignore && git add . && {COMMIT} one && git tag v1 && \
         git clone -q --bare . /hub/app.git && git remote add origin /hub/app.git"
    );
    house.exec("hub", &made);
}

/// Another commit at the remote; its hash.
fn push_from_elsewhere(house: &House, change: &str) -> String {
    let script = format!(
        "cd /work && git pull -q --rebase origin main && {change} && git add -A && {COMMIT} more && \
         git push -q origin main && git rev-parse HEAD"
    );
    house.exec("hub", &script).trim().to_owned()
}

fn status(house: &House, label: &str) -> Value {
    house.call("aegis.git.status", json!({ "binding_id": label }))
}

/// Waits for the end of what is being done.
pub fn done(house: &House, label: &str) -> Value {
    let begun = std::time::Instant::now();
    loop {
        let row = status(house, label);
        if row["step"].is_null() && ["ready", "failed"].iter().any(|end| row["status"] == *end) {
            return row;
        }
        assert!(begun.elapsed().as_secs() < 90, "{row}\n{}", house.stderr());
        nobody_gets_in(house);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// The workspace of an operation is refused to whoever asked for it, too.
fn nobody_gets_in(house: &House) {
    let rows = house.list();
    let names = rows.iter().filter_map(|row| row["name"].as_str());
    for name in names.filter(|name| name.starts_with("git-")) {
        for (tool, more) in [
            ("exec", json!({ "command": "id" })),
            ("snapshot_create", json!({ "name": "taken" })),
            ("workspace_adopt", json!({ "force": true })),
        ] {
            let mut args = json!({ "workspace_id": name });
            args.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
            let let_in = house.try_call(tool, args);
            assert!(let_in.is_err(), "{tool}: {let_in:?}");
        }
    }
}

fn bind(house: &House, label: &str, more: Value) -> Value {
    let mut args = json!({ "repo_url": "volume://hub/app.git", "label": label });
    args.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
    let row = house.call("aegis.git.clone", args);
    assert!(row["status"] == "pending" || row["status"] == "cloning", "{row}");
    done(house, label)
}

fn of(label: &str) -> Value {
    json!({ "binding_id": label })
}

fn read(house: &House, path: &str) -> String {
    let args = json!({ "volume_id": "git-app", "path": path });
    house.call("aegis.file.read", args)["content"].as_str().expect("text").to_owned()
}

fn write(house: &House, path: &str, content: &str) {
    let args = json!({ "volume_id": "git-app", "path": path, "content": content });
    house.call("aegis.file.write", args);
}

/// Names in a folder of a volume.
fn names(house: &House, label: &str, path: &str) -> Vec<String> {
    let args = json!({ "volume_id": format!("git-{label}"), "path": path });
    let listed = house.call("aegis.file.list", args);
    let rows = listed["entries"].as_array().unwrap_or_else(|| panic!("{listed}")).iter();
    let mut names: Vec<_> =
        rows.map(|row| row["name"].as_str().expect("a name").to_owned()).collect();
    names.sort();
    names
}

/// No workspace is left but those that the scene made, and no tree beside the one with the label.
fn nothing_is_left(house: &House, label: &str, workspaces: &[&str]) {
    let there: Vec<_> = house.list().iter().map(|row| row["name"].clone()).collect();
    assert_eq!(there, workspaces, "{label}");
    assert_eq!(names(house, label, "."), [label]);
    leaks::check(house);
}

pub fn a_repository_goes_there_and_back(house: House) {
    hub(&house);
    let row = bind(&house, "app", json!({}));
    assert_eq!((&row["status"], &row["error"]), (&json!("ready"), &Value::Null), "{row}");
    assert_eq!(
        (row["clone_strategy"].as_str(), read(&house, "app/told")),
        (Some("shallow"), "one\n".into())
    );
    let first = house.exec("hub", "git -C /hub/app.git rev-parse main");
    assert_eq!(row["last_commit_sha"], first.trim());
    nothing_is_left(&house, "app", &["hub"]);
    let taken = json!({ "repo_url": "volume://hub/app.git", "label": "app" });
    assert_eq!(house.refused("aegis.git.clone", taken).code, "name_taken");
    let listed = house.call("aegis.git.list", json!({ "limit": 1 }));
    assert_eq!((&listed["total"], &listed["bindings"][0]["label"]), (&json!(1), &json!("app")));

    // Written back.
    write(&house, "app/told", "two\n");
    write(&house, "app/new", "new\n");
    let diff = house.call("aegis.git.diff", of("app"));
    assert!(diff["diff"].as_str().is_some_and(|text| text.contains("+two")), "{diff}");
    let commit = json!({ "binding_id": "app", "message": "$(id) `id`" });
    let committed = house.call("aegis.git.commit", commit.clone());
    assert_eq!(status(&house, "app")["last_commit_sha"], committed["commit_sha"]);
    assert_eq!(house.refused("aegis.git.commit", commit).code, "nothing_to_commit");
    assert_eq!(house.refused("aegis.git.refresh", of("app")).code, "repository_diverged");
    let pushed = house.call("aegis.git.push", of("app"));
    assert_eq!((&pushed["status"], &pushed["ref"]), (&json!("pushed"), &json!("main")), "{pushed}");
    let there = house.exec("hub", "git -C /hub/app.git log -1 --format='%H %an %s' main");
    let sha = committed["commit_sha"].as_str().expect("a commit");
    assert_eq!(there, format!("{sha} hivekeep $(id) `id`\n"));

    refreshed(&house);
    not_refreshed(&house);
    deleted(&house);
}

/// What is not committed stays, and what is not followed by git, too.
fn refreshed(house: &House) {
    assert_eq!(house.call("aegis.git.refresh", of("app"))["updated"], false);
    write(house, "app/src/s", "mine\n");
    write(house, "app/out/built", "kept\n");
    // A workspace that has the volume meanwhile sees one whole tree or the other.
    let volumes = json!([{ "volume": "git-app", "path": "/workspace" }]);
    house.call("workspace_create", json!({ "name": "w", "volumes": volumes }));
    let sha = push_from_elsewhere(house, "echo three > told && git rm -q docs/d");
    let row = house.call("aegis.git.refresh", of("app"));
    assert_eq!((&row["updated"], &row["last_commit_sha"]), (&json!(true), &json!(sha)), "{row}");
    let seen = house.exec("w", "cd app && cat told src/s out/built && git status --short && git log -1 --format=%H && git fsck --no-progress && echo sound");
    assert_eq!(seen, format!("three\nmine\nkept\n M src/s\n{sha}\nsound\n"));
    let in_use = house.refused("aegis.git.delete", of("app"));
    assert_eq!(in_use.code, "repository_in_use", "{}", in_use.text);
    assert_eq!(status(house, "app")["status"], "ready");
    nothing_is_left(house, "app", &["hub", "w"]);
    house.call("workspace_destroy", json!({ "workspace_id": "w" }));
}

/// Every failure leaves the tree and says why.
fn not_refreshed(house: &House) {
    push_from_elsewhere(house, "echo theirs > src/s && echo four > told");
    let refused = house.refused("aegis.git.refresh", of("app"));
    assert_eq!(refused.code, "refresh_not_applied", "{}", refused.text);
    assert!(refused.details["output"].as_str().is_some_and(|said| said.contains("src/s")));
    assert_eq!(
        (read(house, "app/told"), read(house, "app/src/s")),
        ("three\n".into(), "mine\n".into())
    );
    let row = status(house, "app");
    assert_eq!(
        (&row["status"], &row["error"]["code"]),
        (&json!("ready"), &json!("refresh_not_applied"))
    );
    assert_eq!(house.refused("aegis.git.refresh", of("app")).code, "refresh_not_applied");
    // A lock that a killed git left is nobody's.
    write(house, "app/.git/index.lock", "");
    let discarding = json!({ "binding_id": "app", "discard": true });
    assert_eq!(house.call("aegis.git.refresh", discarding)["error"], Value::Null);
    assert_eq!(
        (read(house, "app/told"), read(house, "app/src/s")),
        ("four\n".into(), "theirs\n".into())
    );
    house.exec("hub", "mv /hub/app.git /hub/away.git");
    let refused = house.refused("aegis.git.refresh", of("app"));
    assert_eq!(refused.code, "git_fetch_failed", "{}", refused.text);
    house.exec("hub", "mv /hub/away.git /hub/app.git");
    assert_eq!(read(house, "app/told"), "four\n");
    nothing_is_left(house, "app", &["hub"]);
}

/// What is bound by a tag, a commit or folders, what cannot be cloned, and what goes.
fn deleted(house: &House) {
    let first = house.exec("hub", "git -C /hub/app.git rev-parse v1").trim().to_owned();
    for (label, terms) in [
        ("tag", json!({ "git_ref": { "kind": "tag", "value": "v1" }, "shallow": false })),
        ("commit", json!({ "git_ref": { "kind": "commit", "value": first } })),
    ] {
        let row = bind(house, label, terms);
        assert_eq!(
            (&row["status"], &row["last_commit_sha"]),
            (&json!("ready"), &json!(first)),
            "{row}"
        );
        assert_eq!(house.call("aegis.git.refresh", of(label))["updated"], false);
    }
    let row = bind(house, "sparse", json!({ "sparse_paths": ["src"] }));
    assert_eq!(row["status"], "ready", "{row}");
    assert_eq!(names(house, "sparse", "sparse"), [".git", ".gitignore", "new", "src", "told"]);
    let row = bind(house, "none", json!({ "git_ref": { "kind": "branch", "value": "gone" } }));
    assert_eq!(
        (&row["status"], &row["error"]["code"]),
        (&json!("failed"), &json!("branch_not_found"))
    );
    assert_eq!(house.refused("aegis.git.diff", of("none")).code, "repository_not_ready");
    house.exec("hub", "git -C /hub/app.git branch gone main");
    let cloned = house.call("aegis.git.refresh", of("none"));
    assert_eq!(
        (&cloned["status"], &cloned["updated"]),
        (&json!("ready"), &json!(true)),
        "{cloned}"
    );
    for label in ["app", "tag", "commit", "sparse", "none"] {
        assert_eq!(house.call("aegis.git.delete", of(label))["status"], "deleted");
    }
    assert_eq!(house.call("aegis.git.list", json!({}))["total"], 0);
    let volumes = house.call("aegis.volume.list", json!({}));
    assert_eq!(volumes["count"], 1, "{volumes}");
    leaks::check(house);
}

pub fn every_point_of_a_repository(mut house: House) {
    hub(&house);
    let request = json!({ "repo_url": "volume://hub/app.git", "label": "app" });
    for point in [
        "after_wanted",
        "after_volume",
        "after_volume_made",
        "after_clone",
        "before_exchange",
        "after_exchange",
        "before_ended",
    ] {
        die_at(&mut house, &format!("repository.{point}"), |house| {
            let _answered_or_died = house.try_call("aegis.git.clone", request.clone());
        });
        house.wait_state("hub", "running");
        let row = done(&house, "app");
        assert_eq!(row["status"], "ready", "{point}: {row}");
        nothing_is_left(&house, "app", &["hub"]);
        if point != "before_ended" {
            house.call("aegis.git.delete", of("app"));
        }
    }
    write(&house, "app/mine", "kept\n");
    for (n, point) in
        ["after_fetch", "after_checkout", "before_exchange", "after_exchange", "before_ended"]
            .into_iter()
            .enumerate()
    {
        let text = format!("{n}\n");
        let sha = push_from_elsewhere(&house, &format!("echo {n} > told"));
        die_at(&mut house, &format!("repository.{point}"), |house| {
            let answer = house.try_call("aegis.git.refresh", of("app"));
            assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
        });
        house.wait_state("hub", "running");
        let row = done(&house, "app");
        assert_eq!(
            (&row["last_commit_sha"], &row["error"]),
            (&json!(sha), &Value::Null),
            "{point}"
        );
        assert_eq!((read(&house, "app/told"), read(&house, "app/mine")), (text, "kept\n".into()));
        nothing_is_left(&house, "app", &["hub"]);
    }
    // A commit that was made before the daemon died is told.
    die_at(&mut house, "repository.before_ended", |house| {
        let commit = json!({ "binding_id": "app", "message": "mine" });
        assert!(matches!(house.try_call("aegis.git.commit", commit), Err(None)));
    });
    house.wait_state("hub", "running");
    let told = done(&house, "app")["last_commit_sha"].clone();
    house.call("aegis.git.push", of("app"));
    assert_eq!(house.exec("hub", "git -C /hub/app.git rev-parse main").trim(), told);
    for point in ["after_delete_began", "after_volume_deleted"] {
        if house.call("aegis.git.list", json!({}))["total"] == 0 {
            bind(&house, "app", json!({}));
        }
        die_at(&mut house, &format!("repository.{point}"), |house| {
            assert!(matches!(house.try_call("aegis.git.delete", of("app")), Err(None)), "{point}");
        });
        house.wait_state("hub", "running");
        let begun = std::time::Instant::now();
        while house.call("aegis.git.list", json!({}))["total"] != 0 {
            assert!(begun.elapsed().as_secs() < 60, "{point}: not finished\n{}", house.stderr());
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert_eq!(house.call("aegis.volume.list", json!({}))["count"], 1, "{point}");
    }
}
