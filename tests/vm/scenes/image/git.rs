//! Git of an image's user: commands and tools work on the same repositories.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use serde_json::json;

use crate::house::House;

/// A repository of one commit, which has the same id wherever it is made.
const MADE: &str =
    "set -e; export GIT_AUTHOR_DATE='@1700000000 +0000' GIT_COMMITTER_DATE='@1700000000 +0000'
git config --global user.name App; git config --global user.email app@example.org
git init -q -b main p; cd p; echo one > f; git add f; git commit -qm one";

/// Puts the host's git with its libraries into an image's root.
pub(super) fn install(root: &Path) {
    let script = "git=$(command -v git); echo $git; ldd $git | grep -o '/[^ ]*'";
    let found = Command::new("sh").args(["-c", script]).output().expect("a shell").stdout;
    let found = String::from_utf8(found).expect("paths");
    for path in found.lines().skip(1) {
        let to = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(to.parent().expect("a folder")).expect("made");
        fs::copy(path, to).expect("copied");
    }
    let git = found.lines().next().expect("git is installed");
    fs::copy(git, root.join("bin/git")).expect("copied");
    symlink("git", root.join("bin/git-upload-pack")).expect("linked");
}

/// In the sandboxes `one` and `two` of an image with the user `app`.
pub(super) fn commands_and_tools_work_on_the_same_repositories(house: &House) {
    let at = |name: &str, path: &str| json!({ "workspace_id": name, "path": path });
    for name in ["one", "two"] {
        house.exec(name, MADE);
        let status = house.call("git_status", at(name, "/srv/app/p"));
        assert_eq!((&status["branch"], &status["dirty"]), (&json!("main"), &json!(false)));
    }
    house.exec("two", "echo two > p/g");
    let mut commit = at("two", "/srv/app/p");
    commit["message"] = json!("two");
    assert_eq!(house.call("git_commit", commit)["status"], "committed");
    let seen = "cd p; git log -1 --format='%an %s'; find . ! -user app";
    assert_eq!(house.exec("two", seen), "App two\n");

    // The folder of a workspace is the user's from the first clone on, others are as they were.
    let mut clone = at("one", "c");
    clone["url"] = json!("file:///srv/app/p");
    assert_eq!(house.call("git_clone", clone.clone())["path"], "/workspace/c");
    let seen = "cd /workspace/c; git status --short; touch ../new; find .. ! -user app";
    assert_eq!(house.exec("one", seen), "");
    clone["path"] = json!("/srv/c");
    let refused = house.refused("git_clone", clone.clone());
    assert_eq!(refused.code, "permission_denied", "{}", refused.text);
    clone["user"] = json!("ghost");
    assert_eq!(house.refused("git_clone", clone).code, "user_unknown");

    let mut merge = json!({ "source_workspaces": ["two"], "target_workspace": "one", "strategy": "sequential",
        "path": "/srv/app/p" });
    let merged = house.call("workspace_merge", merge.clone());
    assert_eq!(merged["success"], true, "{merged}");
    let seen = "cd p; cat g; git log -1 --format=%s; git status --short; find . ! -user app";
    assert_eq!(house.exec("one", seen), "two\ntwo\n");
    merge["path"] = json!("/srv");
    assert_eq!(house.refused("workspace_merge", merge).code, "not_a_repository");
    let divided = json!({ "workspace_id": "one", "command": "chown root p/.git", "user": "root" });
    house.call("exec", divided);
    assert_eq!(house.refused("git_status", at("one", "/srv/app/p")).code, "unsafe_repository");
}
