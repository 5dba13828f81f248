//! `workspace_merge` between guests.

use serde_json::{Value, json};

use super::crash::die_at;
use crate::{house::House, leaks};

/// Twenty commits in the working directory.
const BASE: &str = "git init -q -b main . && for n in $(seq 20); do echo $n > f$n && git add . \
    && git -c user.name=Ada -c user.email=ada@example.org commit -q -m base-$n; done";

fn run(house: &House, workspace: &str, command: &str) -> String {
    house.exec(workspace, &format!("cd /workspace && {command}"))
}

/// Commits all there is; the guest's git has no name of its own.
fn commit(house: &House, workspace: &str, command: &str, message: &str) {
    let commit = "git -c user.name=Ada -c user.email=ada@example.org commit -q -m";
    run(house, workspace, &format!("{command} && git add -A && {commit} {message}"));
}

fn request(strategy: &str) -> Value {
    json!({ "source_workspaces": ["a", "b"], "target_workspace": "t", "strategy": strategy })
}

/// What a merge that fails must not change.
fn state(house: &House) -> String {
    run(house, "t", "git for-each-ref; git status --porcelain -b; ls .git; cat .git/HEAD f* new*")
}

/// `t`, `a` and `b` have the same twenty commits.
fn come_together(house: &House) {
    commit(house, "a", "git mv f1 renamed && echo a > new-a", "a-1");
    commit(house, "b", "head -c 100000 /dev/urandom > binary && echo b > new-b", "b-1");
    commit(house, "b", "echo more >> new-b", "b-2");
    commit(house, "t", "echo t > new-t", "t-1");
    run(house, "a", "echo later > not-committed");
    let merged = house.call("workspace_merge", request("sequential"));
    assert_eq!((&merged["success"], &merged["total_commits_applied"]), (&json!(true), &json!(3)));
    assert_eq!(merged["uncommitted_sources"][0]["files"], json!(["not-committed"]), "{merged}");
    assert_eq!(merged["sources"][0]["merge_base_found_by"], "git_merge_base");
    let log = run(house, "t", "git log --format='%s by %an' -4");
    assert_eq!(log, "b-2 by Ada\nb-1 by Ada\na-1 by Ada\nt-1 by Ada\n");
    let sum = |workspace| run(house, workspace, "sha256sum binary");
    assert_eq!(sum("t"), sum("b"));
    assert_eq!(
        run(house, "t", "cat new-a renamed; git status -s; git fsck --strict --no-dangling"),
        "a\n1\n"
    );

    // The second one conflicts: nothing of the first stays either.
    commit(house, "a", "rm not-committed && echo a > f9", "a-2");
    commit(house, "b", "echo b > f10", "b-3");
    commit(house, "t", "echo t > f10", "t-2");
    run(house, "t", "echo edited > f2; echo fresh > new-file");
    let before = state(house);
    let failed = house.call("workspace_merge", request("cherry-pick"));
    assert_eq!((&failed["success"], &failed["merged_sources"]), (&json!(false), &json!([])));
    assert_eq!(failed["sources"][0]["status"], "withheld", "{failed}");
    assert_eq!(failed["sources"][0]["already_there"], 1, "{failed}");
    let conflict = &failed["conflicts"][0];
    assert_eq!(
        (&conflict["code"], &conflict["commit"]["subject"]),
        (&json!("conflict"), &json!("b-3"))
    );
    assert_eq!(conflict["files"][0]["path"], "f10");
    let hunk = conflict["files"][0]["hunks"][0]["text"].as_str().expect("a hunk");
    assert!(hunk.contains("<<<<<<<") && hunk.contains(">>>>>>>"), "{hunk}");
    assert_eq!(state(house), before);

    let mut going = request("branch-per-source");
    going["keep_going"] = json!(true);
    let kept = house.call("workspace_merge", going);
    assert_eq!(
        (&kept["success"], &kept["sources"][0]["status"]),
        (&json!(false), &json!("merged"))
    );
    assert_eq!(kept["sources"][0]["branch"], "hivekeep/a", "{kept}");
    let now =
        run(house, "t", "cat f2 f9 f10; git log -1 --format=%s; git fsck --strict --no-dangling");
    assert_eq!(now, "edited\na\nt\nMerge workspace 'a'\n");
    for workspace in ["a", "b", "t"] {
        let left =
            "git for-each-ref refs/hivekeep; ls .git | grep hivekeep; ls .git/worktrees; true";
        assert_eq!(run(house, workspace, &format!("({left}) 2>/dev/null")), "", "{workspace}");
    }
}

/// Two sandboxes that cloned what a third one has.
fn clones(house: &House) {
    house.create("t");
    house.exec("t", &format!("mkdir -p /workspace && cd /workspace && {BASE}"));
    run(house, "t", "git bundle create -q /tmp/all.bundle HEAD main");
    let transfer = |workspace: &str, direction: &str| {
        let args = json!({ "workspace_id": workspace, "direction": direction,
            "host_path": "all.bundle", "guest_path": "/tmp/all.bundle" });
        house.call("file_transfer", args)
    };
    transfer("t", "download");
    for name in ["a", "b"] {
        house.create(name);
        transfer(name, "upload");
        house.exec(name, "git clone -q /tmp/all.bundle /workspace");
    }
}

pub fn clones_come_together(house: House) {
    clones(&house);
    come_together(&house);
    house.create("stopped");
    house.call("workspace_stop", json!({ "workspace_id": "stopped" }));
    let mut request = request("sequential");
    request["source_workspaces"] = json!(["stopped"]);
    let failed = house.call("workspace_merge", request.clone());
    assert_eq!(failed["conflicts"][0]["code"], "workspace_state", "{failed}");
    request["source_workspaces"] = json!(["t"]);
    assert_eq!(house.refused("workspace_merge", request).code, "invalid_input");
    leaks::check(&house);
}

pub fn a_daemon_may_die_in_a_merge(mut house: House) {
    clones(&house);
    for (index, (point, outcome)) in
        [("before_landing", "undone"), ("after_landing", "landed")].into_iter().enumerate()
    {
        commit(&house, "a", &format!("echo {index} > of-a"), "a");
        let before = run(&house, "t", "git rev-parse HEAD; git status -s");
        die_at(&mut house, &format!("workspace_merge.{point}"), |house| {
            let answer = house.try_call("workspace_merge", request("cherry-pick"));
            assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
        });
        for name in ["a", "b", "t"] {
            house.wait_state(name, "running");
        }
        let after = run(&house, "t", "git rev-parse HEAD; git status -s");
        assert_eq!(after != before, outcome == "landed", "{point}");
        let merged = house.call("workspace_merge", request("cherry-pick"));
        assert_eq!(merged["success"], true, "{merged}");
        assert_eq!(merged["interrupted_before"][0]["outcome"], outcome, "{merged}");
        let now = run(
            &house,
            "t",
            "cat of-a; git fsck --strict --no-dangling; git for-each-ref refs/hivekeep",
        );
        assert_eq!(now.trim(), index.to_string());
    }
    leaks::check(&house);
}

pub fn forks_come_together(house: House) {
    let recipe = json!({ "name": "t", "setup_commands": [BASE], "timeout_secs": 300 });
    house.call("workspace_prepare", recipe);
    for name in ["a", "b"] {
        let args = json!({ "workspace_id": "t", "snapshot_name": "golden", "new_name": name });
        house.call("workspace_fork", args);
    }
    come_together(&house);
}
