//! Whose repositories they are, how many, and what cannot be bound.

use serde_json::json;

use super::stage::{Stage, of, remote};

#[tokio::test]
async fn what_cannot_be_bound_is_refused_and_leaves_nothing() {
    let stage = Stage::open().await;
    let with = |field: &str, value: serde_json::Value| {
        let mut request = remote("app");
        request[field] = value;
        request
    };
    for (request, code) in [
        (with("repo_url", json!("git@example.org:r")), "remote_unsupported"),
        (with("repo_url", json!("https://me:pw@example.org/r")), "invalid_input"),
        (with("auto_refresh", json!(true)), "auto_refresh_unsupported"),
        (with("credential_binding_id", json!("other.org")), "credential_unknown"),
    ] {
        assert_eq!(stage.refused("clone", request.clone()).await, code, "{request}");
    }
    assert_eq!(stage.good("list", json!({})).await["total"], 0);
    assert!(stage.daemon.script().calls.is_empty());
    let row = stage.good("clone", with("credential_binding_id", json!("example.org"))).await;
    assert_eq!(row["credential_binding_id"], "example.org");
    stage.done().await;
}

#[tokio::test]
async fn repositories_are_a_users_and_bounded_in_number() {
    let stage = Stage::open().await;
    stage.bound().await;
    assert_eq!(stage.refused("clone", remote("app")).await, "name_taken");
    let strange = stage.as_session(stage.other, "status", of("app")).await;
    assert_eq!(strange.expect_err("another's").code, "repository_not_found");
    let over = stage.as_session(stage.over, "list", json!({})).await;
    assert_eq!(over.expect_err("it is over").code, "session_ended");

    stage.good("clone", remote("second")).await;
    assert_eq!(stage.refused("clone", remote("third")).await, "repository_quota_exceeded");
    let page = stage.good("list", json!({ "page": 2, "limit": 1 })).await;
    assert_eq!(
        (&page["total"], &page["bindings"][0]["label"], page["bindings"].as_array().map(Vec::len)),
        (&json!(2), &json!("second"), Some(1))
    );
    // By the tier of the other user.
    stage.as_session(stage.other, "clone", remote("mine")).await.expect("the first");
    let more = stage.as_session(stage.other, "clone", remote("more")).await;
    assert_eq!(more.expect_err("its tier").code, "repository_quota_exceeded");
}

#[tokio::test]
async fn one_operation_at_a_time_works_on_a_repository() {
    let stage = Stage::open().await;
    stage.bound().await;
    stage.daemon.script().hanging = Some("git_diff");
    let session = stage.rig().session;
    let limit = std::time::Duration::from_secs(60);
    let _looking = stage.rig().begin_as(session, "aegis.git.diff", of("app"), limit);
    stage.daemon.hangs.notified().await;
    for tool in ["refresh", "push", "diff", "delete"] {
        let error = stage.call(tool, of("app")).await.expect_err(tool);
        assert!(error.code == "repository_busy" && error.retryable, "{tool}: {error:?}");
    }
    assert_eq!(stage.status().await["status"], "ready");
}
