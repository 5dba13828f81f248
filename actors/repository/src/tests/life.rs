//! From the clone to the removal, and what fails between.

use serde_json::{Value, json};

use super::stage::{Stage, of, remote};

#[tokio::test]
async fn a_repository_is_cloned_written_back_refreshed_and_removed() {
    let stage = Stage::open().await;
    let row = stage.bound().await;
    assert_eq!((&row["status"], &row["last_commit_sha"]), (&json!("ready"), &json!("one")));
    assert_eq!((stage.told(), &row["auto_refresh"]), ("one".to_owned(), &json!(false)));
    stage.is_tidy();

    stage.daemon.script().remote = "two";
    let refreshed = stage.good("refresh", of("app")).await;
    assert_eq!(
        (&refreshed["updated"], &refreshed["previous_commit_sha"], stage.told()),
        (&json!(true), &json!("one"), "two".to_owned())
    );
    assert_eq!(
        stage.good("refresh", of(row["id"].as_str().expect("an id"))).await["updated"],
        false
    );

    let commit =
        json!({ "binding_id": "app", "message": "x", "author_name": "a", "author_email": "b" });
    assert_eq!(stage.good("commit", commit).await["summary"], "a");
    assert_eq!(stage.status().await["last_commit_sha"], "mine");
    stage.daemon.script().knows_who_commits = false;
    let by_default = json!({ "binding_id": "app", "message": "x" });
    assert_eq!(stage.good("commit", by_default).await["summary"], "hivekeep");
    let nothing = json!({ "binding_id": "app", "message": "nothing" });
    assert_eq!(stage.refused("commit", nothing).await, "nothing_to_commit");
    let pushed = stage.good("push", of("app")).await;
    assert_eq!((&pushed["ref"], &pushed["remote"]), (&json!("main"), &json!("origin")));
    assert_eq!(stage.good("diff", of("app")).await["diff"], "mine");
    stage.is_tidy();

    stage.daemon.give_to_a_workspace(&row["volume_id"]);
    assert_eq!(stage.refused("delete", of("app")).await, "repository_in_use");
    assert_eq!(stage.status().await["status"], "ready");
    stage.daemon.script().machines.clear();
    let gone = stage.good("delete", of("app")).await;
    assert_eq!((&gone["status"], &gone["volume_id"]), (&json!("deleted"), &row["volume_id"]));
    assert_eq!(stage.refused("status", of("app")).await, "repository_not_found");
    assert!(stage.daemon.volume_folders().is_empty());
    // What works on it is nobody's: whoever asked may not enter a workspace with a remote's credential.
    let callers: Vec<_> = stage.daemon.script().callers.iter().copied().collect();
    assert_eq!(callers, [stage.rig().session.stand_in()]);
}

#[tokio::test]
async fn what_fails_is_told_and_leaves_the_tree() {
    let stage = Stage::open().await;
    stage.daemon.script().failing = Some(("git_clone", "authentication_required"));
    let row = stage.bound().await;
    assert_eq!(
        (&row["status"], &row["error"]["code"]),
        (&json!("failed"), &json!("authentication_required"))
    );
    for tool in ["push", "diff"] {
        assert_eq!(stage.refused(tool, of("app")).await, "repository_not_ready");
    }
    // Cloned again, into the same volume.
    let cloned = stage.good("refresh", of("app")).await;
    assert_eq!((&cloned["status"], &cloned["volume_id"]), (&json!("ready"), &row["volume_id"]));
    assert_eq!((&cloned["error"], stage.told()), (&Value::Null, "one".to_owned()));

    stage.daemon.script().remote = "two";
    for tool in ["workspace_create", "git_status", "git_fetch", "exec"] {
        stage.daemon.script().failing = Some((tool, "scripted"));
        assert_eq!(stage.refused("refresh", of("app")).await, "scripted", "{tool}");
        let row = stage.status().await;
        assert_eq!((&row["status"], &row["error"]["code"]), (&json!("ready"), &json!("scripted")));
        assert_eq!((stage.told(), &row["last_commit_sha"]), ("one".to_owned(), &json!("one")));
        stage.is_tidy();
    }
    stage.daemon.script().ahead = 1;
    assert_eq!(stage.refused("refresh", of("app")).await, "repository_diverged");
    stage.daemon.script().ahead = 0;
    stage.daemon.script().in_the_way = true;
    assert_eq!(stage.refused("refresh", of("app")).await, "refresh_not_applied");
    assert_eq!(stage.told(), "one");
    stage.daemon.script().ahead = 1;
    let discarding = json!({ "binding_id": "app", "discard": true });
    assert_eq!(stage.good("refresh", discarding).await["error"], Value::Null);
    assert_eq!(stage.told(), "two");
    stage.is_tidy();
}

#[tokio::test]
async fn a_credential_reaches_git_alone_and_servers_get_a_network() {
    let stage = Stage::open().await;
    let mut request = remote("app");
    request["credential"] = json!({ "username": "me", "token": "s3cr3t-token" });
    let row = stage.good("clone", request).await;
    assert!(!row.to_string().contains("s3cr3t"));
    stage.done().await;
    stage.good("diff", of("app")).await;
    let calls = std::mem::take(&mut stage.daemon.script().calls);
    for (tool, args) in &calls {
        assert_eq!(args.to_string().contains("s3cr3t-token"), *tool == "git_clone", "{tool}");
    }
    // The tree's configuration is written by whoever has the volume: it does not choose the server.
    let clone = calls.iter().find(|(tool, _)| *tool == "git_clone").expect("called");
    assert_eq!(clone.1["credential"]["host"], "https://example.org");
    let made: Vec<_> = calls.iter().filter(|(tool, _)| *tool == "workspace_create").collect();
    let of = |n: usize, field: &str| made[n].1[field].clone();
    assert_eq!((of(0, "isolation"), of(0, "allow_internet")), (json!("vm"), json!(true)));
    assert_eq!((of(1, "isolation"), of(1, "allow_internet")), (json!("sandbox"), Value::Null));
    // Its remote is mounted only for what reads or writes there.
    let on_volume = json!({ "repo_url": "volume://hub/a.git", "label": "near" });
    stage.good("clone", on_volume).await;
    stage.done_with("near").await;
    stage.good("push", json!({ "binding_id": "near" })).await;
    stage.good("diff", json!({ "binding_id": "near" })).await;
    let calls = std::mem::take(&mut stage.daemon.script().calls);
    let volumes = calls.iter().filter(|(tool, _)| *tool == "workspace_create");
    let remotes: Vec<_> =
        volumes.map(|(_, args)| args["volumes"][1]["read_only"].clone()).collect();
    assert_eq!(remotes, [json!(true), json!(false), Value::Null]);
}
