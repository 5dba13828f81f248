//! What each tool refuses: inputs that make no sense, by the schema or by its actor, and strangers.

use std::collections::BTreeSet;

use hivekeep_kernel::{Addressing, Layer, SessionId, ToolError, ToolInfo};
use hivekeep_registry::Catalogue;
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

/// As a call of this session passes the registry and its actor.
async fn refused(stage: &Stage, by: SessionId, tool: &str, args: &Value) -> Option<ToolError> {
    let catalogue = Catalogue::new(tools::catalogue()).expect("declared well");
    if let Err(error) = catalogue.find(tool).expect("a tool").check(args) {
        return Some(error);
    }
    let sent = stage.send(tool, args.clone(), |cx| cx.session = by);
    sent.expect("its actor is there").await.expect("every call is answered").err()
}

#[tokio::test]
async fn an_input_that_makes_no_sense_is_refused_by_each_tool() {
    let stage = Stage::open().await;
    stage.create("w").await;
    let (schema, actor) = (Layer::Schema, Layer::Actor);
    let cases = [
        ("workspace_create", json!({ "vcpus": "two" }), schema),
        ("workspace_create", json!({ "name": "No Name" }), actor),
        ("workspace_list", json!({ "state_filter": "lost" }), schema),
        ("workspace_destroy", json!({ "unknown": 1 }), schema),
        ("workspace_start", json!({ "unknown": 1 }), schema),
        ("workspace_stop", json!({ "force": "yes" }), schema),
        ("workspace_info", json!({ "unknown": 1 }), schema),
        ("exec", json!({ "command": "true", "timeout_secs": 0 }), schema),
        ("exec", json!({ "command": "true", "env": { "A B": "x" } }), actor),
        ("exec_background", json!({ "action": "poll" }), schema),
        (
            "exec_background",
            json!({ "action": "start", "command": "true", "env": { "A B": "x" } }),
            actor,
        ),
        ("set_env", json!({ "vars": { "A B": "x" } }), actor),
        ("file_write", json!({ "path": "/a", "content": "", "mode": "rwx" }), actor),
        ("file_read", json!({ "path": "/a", "offset": -1 }), schema),
        ("file_edit", json!({ "path": "/a", "old_string": "", "new_string": "b" }), schema),
        ("file_list", json!({ "path": "/", "limit": 0 }), schema),
        (
            "file_transfer",
            json!({ "direction": "sideways", "host_path": "a", "guest_path": "/a" }),
            schema,
        ),
        ("git_clone", json!({ "url": "ext::sh -c id" }), actor),
        ("git_status", json!({ "path": "a\0b" }), actor),
        ("git_commit", json!({ "path": ".", "message": "" }), actor),
        ("git_push", json!({ "path": ".", "remote": "--exec=id" }), actor),
        ("git_diff", json!({ "path": ".", "max_bytes": 0 }), actor),
        ("snapshot", json!({ "action": "create" }), schema),
        ("snapshot", json!({ "action": "create", "name": "a b" }), actor),
        ("workspace_pause", json!({ "unknown": 1 }), schema),
        ("workspace_resume", json!({ "unknown": 1 }), schema),
        ("network_policy", json!({ "allowed_ports": [-1] }), schema),
        ("network_policy", json!({ "allowed_ports": [0] }), actor),
        ("port_forward", json!({ "action": "open", "guest_port": 80 }), schema),
        ("port_forward", json!({ "action": "list" }), schema),
        ("port_forward", json!({ "action": "add", "guest_port": 80, "protocol": null }), schema),
        ("port_forward", json!({ "action": "add", "guest_port": 80, "port": 1 }), schema),
        ("port_forward", json!({ "action": "add", "guest_port": 0 }), actor),
        ("port_forward", json!({ "action": "add", "guest_port": 80, "host_port": 80 }), actor),
        ("port_forward", json!({ "action": "remove", "guest_port": 0 }), actor),
        ("workspace_logs", json!({ "unknown": 1 }), schema),
        ("workspace_fork", json!({ "snapshot_name": "s", "count": 0 }), schema),
        ("workspace_branch", json!({ "count": 0 }), schema),
        ("exec_parallel", json!({ "workspace_ids": [], "commands": "true" }), schema),
        ("workspace_prepare", json!({ "name": "No Name" }), actor),
        ("workspace_merge", merge(&[]), schema),
        ("workspace_merge", merge(&["w"]), actor),
        ("workspace_adopt", json!({ "force": "yes" }), schema),
        ("pool_status", json!({ "unknown": 1 }), schema),
    ];
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for (tool, mut args, layer) in cases {
        let info = tools::catalogue().into_iter().find(|info| info.spec.name == tool);
        if of_one(info.expect("a tool")) || ["workspace_fork", "workspace_branch"].contains(&tool) {
            args["workspace_id"] = json!("w");
        }
        let error = refused(&stage, stage.session, tool, &args).await;
        let as_expected =
            |error: &ToolError| error.is(codes::INVALID_INPUT) && error.layer == layer;
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
