//! A user's things of each kind.

use serde_json::{Value, json};

use super::MARK;
use crate::{house::House, scenes::http_api::Caller};

/// What one user has.
pub struct Theirs {
    caller: Caller,
    pub session: String,
    workspace: Value,
    process: Value,
    job: Value,
    volume: Value,
    pub artifact: Value,
    pub chat: String,
    pub run: String,
}

impl Theirs {
    pub fn new(house: &House) -> Self {
        let caller = Caller::new(house, "owner");
        let made = json!({ "name": "zebra-w", "labels": { MARK: MARK } });
        let workspace = caller.ok("workspace_create", &made)["workspace_id"].clone();
        let of = |more: Value| {
            let mut input = json!({ "workspace_id": workspace });
            input.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
            input
        };
        caller.ok("set_env", &of(json!({ "vars": { "ZEBRA": MARK } })));
        caller.ok("file_write", &of(json!({ "path": "/root/f", "content": MARK })));
        let line = "echo zebra; sleep 3600";
        let start = of(json!({ "action": "start", "command": line }));
        let job = caller.ok("exec_background", &start)["job_id"].clone();
        let start = json!({ "place": "zebra-w", "command": "sh", "args": ["-c", line] });
        let process = caller.ok("process_start", &start)["id"].clone();
        let role = json!({ "role": "worker", "name": "zebra-m" });
        caller.ok("team", &json!({ "action": "create", "name": "zebra-t", "roles": [role] }));
        let size = json!({ "label": "zebra-v", "size_limit_bytes": 16 << 20 });
        let volume = caller.ok("aegis.volume.create", &size)["volume_id"].clone();
        let file = json!({ "volume_id": volume, "path": "f", "content": MARK });
        caller.ok("aegis.file.write", &file);
        let ingest = json!({ "place": "zebra-w:/root", "path": "f", "collection": MARK });
        caller.ok("rag_ingest", &ingest);
        // It waits for its first message: no model is asked.
        let chat = caller.ok("ide_session_create", &json!({ "name": "zebra-c" }));
        let chat = chat["session"]["id"].as_str().expect("an id").to_owned();
        let text = "name: zebra-d\nsteps: [{ run: 'echo zebra; sleep 3600' }]";
        let run = caller.ok("dag_start", &json!({ "yaml": text, "place": "zebra-w" }));
        let run = run["run_id"].as_str().expect("an id").to_owned();
        let artifact = large_result(&caller);
        let (_, sessions) = caller.request("GET", "/api/sessions", &Value::Null);
        let sessions: Value = serde_json::from_str(&sessions).expect("JSON");
        let session = sessions.pointer("/sessions/0/id").and_then(Value::as_str);
        let session = session.unwrap_or_else(|| panic!("{sessions}")).to_owned();
        Self { caller, session, workspace, process, job, volume, artifact, chat, run }
    }

    /// Whatever a parameter may name it by.
    pub fn named_by(&self, parameter: &str) -> Vec<Value> {
        let Self { workspace, volume, .. } = self;
        match parameter {
            "workspace_id" | "target_workspace" | "merge_target" | "golden_workspace" => {
                vec![workspace.clone(), json!("zebra-w")]
            }
            "workspace_ids" | "source_workspaces" | "workspaces" => {
                vec![json!([workspace]), json!(["zebra-w"])]
            }
            "place" => {
                let places = ["zebra-w", "zebra-w:/root", "volume:zebra-v"].map(Value::from);
                places.into_iter().chain([workspace.clone()]).collect()
            }
            "volume_id" => vec![volume.clone(), json!("zebra-v")],
            "volumes" => vec![json!([{ "volume": volume, "path": "/mnt" }])],
            "job_id" => vec![self.job.clone()],
            "id" => vec![self.process.clone()],
            "parent_team" => vec![json!("zebra-t")],
            "agent" | "to" => vec![json!("zebra-m")],
            "uri" => vec![self.artifact.clone()],
            "sessionId" => vec![json!(self.chat)],
            "run_id" | "execution_id" | "pipeline_execution_id" => vec![json!(self.run)],
            "collection" => vec![json!(MARK)],
            "tenant_id" => vec![json!(MARK)],
            _ => Vec::new(),
        }
    }

    /// What another user could change of it.
    pub fn state(&self) -> Value {
        let of = |tool, input: Value| self.caller.ok(tool, &input);
        let workspaces = of("workspace_list", json!({}));
        let info = of("workspace_info", json!({ "workspace_id": "zebra-w" }));
        let poll = json!({ "workspace_id": "zebra-w", "action": "poll", "job_id": self.job });
        let (status, _) =
            self.caller.request("GET", &format!("/api/sessions/{}", self.session), &Value::Null);
        json!([
            [workspaces["count"], info["state"], info["labels"], info["env"], info["network"]],
            of(
                "exec",
                json!({ "workspace_id": "zebra-w", "command": "cat /root/* && ls -la /root" })
            )["stdout"],
            of("exec_background", poll)["state"],
            of("process_list", json!({ "running_only": true }))["processes"][0]["state"],
            of("team", json!({ "action": "status", "name": "zebra-t" }))["state"],
            of("aegis.file.list", json!({ "volume_id": "zebra-v", "path": "." })),
            of("artifact_list", json!({}))["total"],
            of("dag_runs", json!({ "run_id": self.run }))["run"]["status"],
            of("ide_chat_history", json!({ "sessionId": self.chat }))["messages"],
            of("rag_query", json!({ "question": MARK, "collection": MARK, "mode": "bm25" }))["results"]
                [0]["source"],
            status,
        ])
    }
}

/// A result that is kept for its size.
fn large_result(caller: &Caller) -> Value {
    let description = "\u{1}".repeat(2_048);
    for id in 0..360 {
        let script = json!({ "name": format!("s{id}"), "code": "1", "description": description });
        caller.ok("aegis.script.save", &script);
    }
    let (status, body) = caller.call("aegis.script.list", &json!({ "limit": 500 }), None);
    assert_eq!(status, 200, "{body}");
    let path = body["result"]["artifacts"][0]["uri"].as_str();
    let id = path.and_then(|it| it.rsplit('/').next()).unwrap_or_else(|| panic!("{body}"));
    json!(id)
}
