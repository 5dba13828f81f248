//! What the actor of each tool refuses: inputs that make no sense, and strangers. What schemas
//! refuse before is tested with the catalogue of all families.

use std::collections::BTreeSet;

use hivekeep_kernel::{Addressing, Layer, SessionId, ToolError, ToolInfo};
use serde_json::{Value, json};

use super::stage::Stage;
use crate::{codes, tools};

fn merge(sources: &[&str]) -> Value {
    json!({ "source_workspaces": sources, "target_workspace": "w", "strategy": "sequential" })
}

/// Whether a workspace serves it.
fn of_one(tool: &ToolInfo) -> bool {
    matches!(tool.spec.addressing, Addressing::Field { .. })
}

async fn refused(stage: &Stage, by: SessionId, tool: &str, args: &Value) -> Option<ToolError> {
    let sent = stage.send(tool, args.clone(), |cx| cx.session = by);
    sent.expect("its actor is there").await.expect("every call is answered").err()
}

#[tokio::test]
async fn an_input_that_makes_no_sense_is_refused_by_each_tool() {
    let stage = Stage::open().await;
    stage.create("w").await;
    let cases = [
        ("workspace_create", json!({ "vcpus": "two" })),
        ("workspace_create", json!({ "name": "No Name" })),
        ("workspace_create", json!({ "at_end": "stop" })),
        ("workspace_create", json!({ "labels": { "": "x" } })),
        ("workspace_list", json!({ "state_filter": "lost" })),
        ("workspace_destroy", json!({ "unknown": 1 })),
        ("workspace_start", json!({ "unknown": 1 })),
        ("workspace_stop", json!({ "force": "yes" })),
        ("workspace_info", json!({ "unknown": 1 })),
        ("workspace_park", json!({ "unknown": 1 })),
        ("workspace_lifetime", json!({ "lifetime_secs": -1 })),
        ("workspace_lifetime", json!({ "at_end": "destroy" })),
        ("exec", json!({ "command": "true", "env": { "A B": "x" } })),
        ("exec_background", json!({ "action": "poll" })),
        ("exec_background", json!({ "action": "start", "command": "true", "env": { "A B": "x" } })),
        ("set_env", json!({ "vars": { "A B": "x" } })),
        ("file_list", json!({ "path": "/", "limit": "one" })),
        ("file_transfer", json!({ "direction": "sideways", "host_path": "a", "guest_path": "/a" })),
        ("git_clone", json!({ "url": "ext::sh -c id" })),
        ("git_status", json!({ "path": "a\0b" })),
        ("git_commit", json!({ "path": ".", "message": "" })),
        ("git_push", json!({ "path": ".", "remote": "--exec=id" })),
        ("git_fetch", json!({ "path": ".", "remote": "--upload-pack=id" })),
        ("git_diff", json!({ "path": ".", "max_bytes": 0 })),
        ("snapshot", json!({ "action": "create" })),
        ("snapshot", json!({ "action": "create", "name": "a b" })),
        ("workspace_pause", json!({ "unknown": 1 })),
        ("workspace_resume", json!({ "unknown": 1 })),
        ("network_policy", json!({ "allowed_ports": [-1] })),
        ("network_policy", json!({ "allowed_ports": [0] })),
        ("port_forward", json!({ "action": "open", "guest_port": 80 })),
        ("port_forward", json!({ "action": "list" })),
        ("port_forward", json!({ "action": "add", "guest_port": 80, "protocol": null })),
        ("port_forward", json!({ "action": "add", "guest_port": 0 })),
        ("port_forward", json!({ "action": "add", "guest_port": 80, "host_port": 80 })),
        ("port_forward", json!({ "action": "remove", "guest_port": 0 })),
        ("port_url", json!({ "port": "http" })),
        ("workspace_logs", json!({ "unknown": 1 })),
        ("workspace_fork", json!({ "snapshot_name": "s", "count": "two" })),
        ("workspace_branch", json!({ "count": "two" })),
        ("exec_parallel", json!({ "workspace_ids": "w", "commands": "true" })),
        ("workspace_prepare", json!({ "name": "No Name" })),
        ("workspace_merge", merge(&["w"])),
        ("workspace_adopt", json!({ "force": "yes" })),
        ("pool_status", json!({ "unknown": 1 })),
    ];
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for (tool, mut args) in cases {
        let info = tools::catalogue().into_iter().find(|info| info.spec.name == tool);
        if of_one(info.expect("a tool")) || ["workspace_fork", "workspace_branch"].contains(&tool) {
            args["workspace_id"] = json!("w");
        }
        let error = refused(&stage, stage.session, tool, &args).await;
        let as_expected =
            |error: &ToolError| error.is(codes::INVALID_INPUT) && error.layer == Layer::Actor;
        if !error.as_ref().is_some_and(as_expected) {
            wrong.push(format!("{tool} {args}: {error:?}"));
        }
        seen.insert(tool);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let all: BTreeSet<_> = tools::catalogue().iter().map(|info| info.spec.name).collect();
    assert_eq!(seen, all, "each tool has a case");
}

#[tokio::test]
async fn a_stranger_is_refused_by_each_tool_of_a_workspace() {
    let stage = Stage::open().await;
    stage.create("w").await;
    stage.create("v").await;
    let stranger = SessionId::new();
    for tool in tools::catalogue().into_iter().filter(|tool| of_one(tool)) {
        let name = tool.spec.name;
        // Nothing of the input is looked at before.
        let call = stage.send(name, json!({ "workspace_id": "w" }), |cx| cx.session = stranger);
        let answer = call.expect("its actor is there").await.expect("every call is answered");
        let error = answer.expect_err(name);
        assert!(error.is(codes::NOT_OWNER) && error.layer == Layer::Policy, "{name}: {error}");
    }
    let mut wrong = Vec::new();
    for (tool, args, code) in [
        ("workspace_fork", json!({ "workspace_id": "w", "snapshot_name": "s" }), codes::NOT_OWNER),
        ("workspace_branch", json!({ "workspace_id": "w" }), codes::NOT_OWNER),
        ("workspace_merge", merge(&["v"]), codes::NOT_OWNER),
        ("workspace_adopt", json!({ "workspace_id": "w" }), codes::OWNER_ACTIVE),
    ] {
        let error = refused(&stage, stranger, tool, &args).await;
        if !error.as_ref().is_some_and(|error| error.is(code)) {
            wrong.push(format!("{tool} {args}: {error:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
