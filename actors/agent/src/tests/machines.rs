//! Machines of executions over a real journal: made as the manifest asks, found again after a crash, kept for a while
//! behind the end, and their files.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::{
    CallCx, ExecutionId, Layer, SessionId, ToolError, User, WorkspaceId, codes, lock,
    view::ToolView,
};
use hivekeep_ports::{
    ExecutionFileLinks, ExecutionFiles, FoundWorkspace, GuestOperation, InternalCall,
    OwnWorkspaces, OwnedSnapshot, PlaceWorkspace, Places, SizeBound, Tools, WorkspaceBounds,
    WorkspaceFiles, WorkspaceForks, WorkspaceReadiness, WorkspaceStandstill, own_workspace_name,
};
use hivekeep_runtime::log;
use hivekeep_testkit::eventually;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::{
    Stage,
    fakes::{says, turns},
    machine::FakeMachine,
    tasks::{opened, types, worker, write},
};
use crate::execution::state::{ExecutionState, Record};

/// Workspaces of sessions, and the calls that were made for them. They outlive a daemon.
#[derive(Clone, Default)]
pub(super) struct FakeMachines(Arc<Mutex<MachinesState>>);

#[derive(Default)]
struct MachinesState {
    workspaces: BTreeMap<SessionId, (WorkspaceId, WorkspaceReadiness)>,
    calls: Vec<(String, Value)>,
    files: BTreeMap<String, Vec<u8>>,
    /// Files of single workspaces, by those and their paths.
    trees: BTreeMap<String, BTreeMap<String, String>>,
    /// Tool that no session may call.
    denied: Option<&'static str>,
    /// Making a workspace fails.
    fails: bool,
    /// Machines that stand still.
    halted: BTreeSet<WorkspaceId>,
    /// Error of each wish for a standstill.
    restless: Option<ToolError>,
    /// Held while no machine may go on.
    going_on: Arc<tokio::sync::Mutex<()>>,
    /// Held while no snapshot is ready.
    saving: Arc<tokio::sync::Mutex<()>>,
    /// Daemon whose end is ordered during the next stop of a workspace, which fails then.
    closes: Option<CancellationToken>,
    /// What runs in them.
    guests: Option<FakeMachine>,
}

impl FakeMachines {
    /// Has the policy allow a tool to nobody.
    pub(super) fn deny(&self, tool: &'static str) {
        lock(&self.0).denied = Some(tool);
    }

    /// Inputs of the calls of a tool; those of `make` are sessions.
    pub(super) fn calls(&self, tool: &str) -> Vec<Value> {
        let state = lock(&self.0);
        let of_it = state.calls.iter().filter(|(name, _)| name == tool);
        of_it.map(|(_, args)| args.clone()).collect()
    }

    pub(super) fn put(&self, session: SessionId) -> WorkspaceId {
        let id = WorkspaceId::new();
        lock(&self.0).workspaces.insert(session, (id, WorkspaceReadiness::Ready));
        id
    }

    /// Has a workspace have these files; `checkpoint` for all that a checkpoint has.
    pub(super) fn have(&self, workspace: &str, files: &[(&str, &str)]) {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        lock(&self.0).trees.insert(workspace.to_owned(), files.collect());
    }

    pub(super) fn forget(&self, workspace: &str) {
        lock(&self.0).trees.remove(workspace);
    }

    /// Workspace of a session.
    pub(super) fn of(&self, session: SessionId) -> WorkspaceId {
        lock(&self.0).workspaces[&session].0
    }

    /// Removes the workspace of a session.
    pub(super) fn lose(&self, session: SessionId) {
        lock(&self.0).workspaces.remove(&session);
    }

    /// Has the tasks of machines go on in their copies.
    pub(super) fn run(&self, guests: &FakeMachine) {
        lock(&self.0).guests = Some(guests.clone());
    }

    /// Has no machine stand still.
    pub(super) fn be_restless(&self, error: ToolError) {
        lock(&self.0).restless = Some(error);
    }

    /// Has no machine go on before the guard is dropped.
    pub(super) async fn hold_back(&self) -> tokio::sync::OwnedMutexGuard<()> {
        let gate = lock(&self.0).going_on.clone();
        gate.lock_owned().await
    }

    /// Has no snapshot be ready before the guard is dropped.
    pub(super) async fn hold_snapshots(&self) -> tokio::sync::OwnedMutexGuard<()> {
        let gate = lock(&self.0).saving.clone();
        gate.lock_owned().await
    }

    /// Whether a machine stands still.
    pub(super) fn is_halted(&self) -> bool {
        !lock(&self.0).halted.is_empty()
    }

    /// Has machines stand still as a daemon left them that died.
    pub(super) fn left_halted(&self) {
        let mut state = lock(&self.0);
        let all: Vec<_> = state.workspaces.values().map(|(id, _)| *id).collect();
        state.halted.extend(all);
    }

    fn write(&self, path: &str, content: impl Into<Vec<u8>>) {
        lock(&self.0).files.insert(path.to_owned(), content.into());
    }

    fn answer(&self, session: SessionId, tool: &str, args: &Value) -> Result<Value, ToolError> {
        let mut state = lock(&self.0);
        state.calls.push((tool.to_owned(), args.clone()));
        Ok(match tool {
            "workspace_list" => {
                let row = |(owner, (id, _)): (&SessionId, &(WorkspaceId, _))| {
                    let name = own_workspace_name(*owner);
                    json!({ "workspace_id": id, "name": name, "owned": *owner == session })
                };
                let others = [json!({
                    "workspace_id": WorkspaceId::new(), "name": "made-by-hand", "owned": true,
                })];
                let rows: Vec<_> = state.workspaces.iter().map(row).chain(others).collect();
                json!({ "workspaces": rows })
            }
            "workspace_lifetime" => {
                let secs = args["lifetime_secs"].as_i64().expect("seconds");
                json!({ "ends_at": Utc::now() + TimeDelta::seconds(secs) })
            }
            "workspace_create" => json!({ "workspace_id": WorkspaceId::new() }),
            "workspace_destroy" => {
                state.workspaces.remove(&session);
                json!({})
            }
            "workspace_stop" if state.closes.is_some() => {
                state.closes.take().expect("it is there").cancel();
                return Err(ToolError::internal("it ends"));
            }
            "workspace_stop" | "workspace_start" => {
                let stops = tool == "workspace_stop";
                let now = if stops { WorkspaceReadiness::Off } else { WorkspaceReadiness::Ready };
                state.halted.clear();
                state.workspaces.get_mut(&session).expect("it is there").1 = now;
                json!({})
            }
            "fs.get" => {
                let at =
                    |key: &str| usize::try_from(args[key].as_u64().expect(key)).expect("small");
                let path = args["path"].as_str().expect("a path");
                let tree = state.trees.get(args["place"].as_str().expect("a place"));
                let of_tree =
                    tree.and_then(|tree| tree.get(path)).map(|it| it.clone().into_bytes());
                let Some(file) = of_tree.or_else(|| state.files.get(path).cloned()) else {
                    return Err(ToolError::new(Layer::Guest, codes::NOT_FOUND, "it is not there"));
                };
                let end = file.len().min(at("from") + at("max_bytes"));
                json!({
                    "content_base64": STANDARD.encode(&file[at("from")..end]), "bytes": file.len(),
                    "next": (end < file.len()).then_some(end),
                })
            }
            "exec" => {
                let tree = state.trees.get(args["workspace_id"].as_str().expect("an id"));
                let line = |(path, text): (&String, &String)| {
                    let hash: String =
                        Sha256::digest(text).iter().map(|it| format!("{it:02x}")).collect();
                    format!("{hash}  ./{path}\n{} ./{path}\n", text.len())
                };
                let list: String = tree.into_iter().flatten().map(line).collect();
                json!({ "exit_code": 0, "stdout": list, "stderr": "", "truncated": false })
            }
            _ => json!({}),
        })
    }
}

#[async_trait]
impl Tools for FakeMachines {
    async fn call(
        &self,
        call: InternalCall,
        tool: &'static str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let (answer, saving) =
            (self.answer(call.session, tool, &args), lock(&self.0).saving.clone());
        if tool == "snapshot" {
            drop(saving.lock().await);
        }
        answer
    }

    fn allows(&self, _: SessionId, _: &ToolView, tool: &str, _: &Value) -> bool {
        lock(&self.0).denied != Some(tool)
    }
}

#[async_trait]
impl Places for FakeMachines {
    async fn workspace(
        &self,
        cx: &CallCx,
        place: Option<&str>,
    ) -> Result<PlaceWorkspace, ToolError> {
        assert_eq!(place, Some("session"));
        let mut state = lock(&self.0);
        if state.fails {
            let error = ToolError::new(Layer::Machine, codes::NETWORK_UNAVAILABLE, "no network");
            return Err(error);
        }
        state.calls.push(("make".to_owned(), json!(cx.session)));
        let made = (WorkspaceId::new(), WorkspaceReadiness::Ready);
        let (workspace, _) = *state.workspaces.entry(cx.session).or_insert(made);
        let (place, root) = ("session".to_owned(), "/workspace".to_owned());
        Ok(PlaceWorkspace { workspace, place, root, user: None })
    }

    async fn put_program(
        &self,
        _: &CallCx,
        _: &PlaceWorkspace,
        _: &str,
        _: String,
    ) -> Result<(), ToolError> {
        Err(ToolError::internal("no programs are put"))
    }
}

#[async_trait]
impl WorkspaceFiles for FakeMachines {
    fn find(&self, id_or_name: &str) -> Option<FoundWorkspace> {
        let state = lock(&self.0);
        let is_it = |(owner, (id, _)): &(&SessionId, &(WorkspaceId, _))| {
            id.to_string() == id_or_name || own_workspace_name(**owner) == id_or_name
        };
        let (owner, (id, readiness)) = state.workspaces.iter().find(is_it)?;
        let (name, owner, readiness) = (own_workspace_name(*owner), Some(*owner), *readiness);
        Some(FoundWorkspace { id: *id, name, owner, readiness })
    }

    async fn run(
        &self,
        _: &CallCx,
        _: WorkspaceId,
        _: GuestOperation,
    ) -> Result<Vec<u8>, ToolError> {
        Err(ToolError::internal("no operation is run"))
    }
}

#[async_trait]
impl WorkspaceStandstill for FakeMachines {
    async fn halt(&self, owner: SessionId, id: WorkspaceId, saved: bool) -> Result<(), ToolError> {
        let mut state = lock(&self.0);
        assert_eq!(state.workspaces.get(&owner).map(|(own, _)| *own), Some(id));
        state.calls.push(("halt".to_owned(), json!(saved)));
        if let Some(error) = &state.restless {
            return Err(error.clone());
        }
        state.halted.insert(id);
        Ok(())
    }

    async fn go_on(&self, _: SessionId, id: WorkspaceId) -> Result<(), ToolError> {
        lock(&self.0).calls.push(("go_on".to_owned(), json!(id)));
        let _they_may = self.hold_back().await;
        lock(&self.0).halted.remove(&id);
        Ok(())
    }
}

/// Bounds of the fake.
pub(crate) fn bounds() -> WorkspaceBounds {
    let bound = |least, default, most| SizeBound { least, default, most };
    WorkspaceBounds {
        vcpus: bound(1, 2, 8),
        memory_mb: bound(64, 512, 8192),
        disk_gb: bound(1, 10, 100),
        isolations: vec!["vm", "sandbox"],
    }
}

#[async_trait]
impl WorkspaceForks for FakeMachines {
    async fn fork(
        &self,
        cx: &CallCx,
        source: &OwnedSnapshot,
        name: &str,
        keeps_tasks: bool,
        _: Option<u64>,
    ) -> Result<WorkspaceId, ToolError> {
        assert_eq!(name, own_workspace_name(cx.session));
        let session = cx.session;
        lock(&self.0).calls.push(("fork".to_owned(), json!({ "of": source, "for": session })));
        let made = self.put(session);
        if let Some(guests) = lock(&self.0).guests.as_ref().filter(|_| keeps_tasks) {
            guests.keep(source.workspace, made);
        }
        Ok(made)
    }

    /// Its files are those of the workspace `checkpoint`.
    async fn fork_to_read(
        &self,
        cx: &CallCx,
        source: &OwnedSnapshot,
        secs: u64,
    ) -> Result<WorkspaceId, ToolError> {
        let mut state = lock(&self.0);
        let asked = json!({ "of": source, "for": cx.session, "secs": secs });
        state.calls.push(("fork_to_read".to_owned(), asked));
        let Some(tree) = state.trees.get("checkpoint").cloned() else {
            let gone = "it is not there";
            return Err(ToolError::new(Layer::Actor, codes::SNAPSHOT_NOT_FOUND, gone));
        };
        let id = WorkspaceId::new();
        state.trees.insert(id.to_string(), tree);
        Ok(id)
    }
}

pub(super) const MACHINE: &str = "  env: { LOG: debug }\n  security:\n    network: { mode: deny, allowlist: [example.org] }\n    \
    filesystem: { read: [/workspace], write: [/workspace] }\n    resources: { cpu: 500, memory: 100M, disk: 3Gi }\n";

impl Stage {
    /// A stage whose agent writes once, and asks for a machine by `spec`.
    async fn with_machine(spec: &str) -> Self {
        let stage = Self::with_worker(spec).await;
        stage.models.answer(|request| match turns(request) {
            0 => says("", &[("fs_write", json!({ "n": 1 }))]),
            _ => says("Done.", &[]),
        });
        stage
    }

    async fn file(&self, id: &str, path: &str) -> Result<Value, ToolError> {
        self.call("aegis.execution.file", json!({ "execution_id": id, "path": path })).await
    }
}

#[tokio::test]
async fn a_machine_is_as_its_manifest_asks_and_ends_by_itself() {
    let stage = Stage::with_machine(MACHINE).await;
    let id = stage.begun("work").await;
    let events = stage.closed(&id).await;
    assert_eq!(
        types(&events)[..4],
        ["execution_started", "session_opened", "machine_ready", "iteration_started"]
    );
    let (session, _) = stage.children.opened().remove(0);
    assert_eq!(stage.machines.calls("make"), [json!(session)]);
    let workspace = &events[2]["payload"]["workspace_id"];
    let env = json!({ "workspace_id": workspace, "vars": { "LOG": "debug" } });
    assert_eq!(stage.machines.calls("set_env"), [env]);
    let policy = json!({ "workspace_id": workspace, "egress_allow": ["example.org"] });
    assert_eq!(stage.machines.calls("network_policy"), [policy]);
    let end = json!({ "workspace_id": workspace, "lifetime_secs": 3600, "at_end": "destroy" });
    assert_eq!(stage.machines.calls("workspace_lifetime"), [end]);
    assert_eq!(stage.machines.calls("workspace_stop").len(), 1);
    let kept = &events.last().expect("one")["payload"]["workspaces"][0];
    assert_eq!(&kept["workspace_id"], workspace);
    let ends_at: DateTime<Utc> = serde_json::from_value(kept["ends_at"].clone()).expect("a time");
    assert!((ends_at - Utc::now()).num_seconds() > 3500, "{ends_at}");
}

#[tokio::test]
async fn a_session_is_told_of_its_workspace_while_it_works() {
    let stage = Stage::with_machine(MACHINE).await;
    stage.models.answer(|_| says("", &[("hold", json!({}))]));
    let id = stage.begun("hold").await;
    let holds = async |stage: &Stage, times| {
        eventually("it holds", async || stage.children.calls("hold") == times).await;
    };
    holds(&stage, 1).await;
    let (session, _) = stage.children.opened().remove(0);
    let decided = |stage: &Stage, session| {
        stage.rig.daemon.ports.need::<dyn OwnWorkspaces>().expect("offered").of(session)
    };
    let own = decided(&stage, session).expect("decided");
    let request = json!({
        "vcpus": 1, "memory_mb": 96, "disk_gb": 3, "allow_internet": false,
    });
    assert_eq!((Value::Object(own.request), own.only), (request, true));
    assert_eq!(decided(&stage, stage.rig.session), None);
    let mut stage = stage;
    stage.models.be_silent(true);
    stage.rig = stage.rig.crashed().await;
    eventually("it is told again", async || decided(&stage, session).is_some()).await;
    stage.good("aegis.task.cancel", json!({ "execution_id": id })).await;
    stage.closed(&id).await;
    assert_eq!(decided(&stage, session), None);
}

#[tokio::test]
async fn a_machine_that_is_not_made_ends_the_execution_and_one_that_is_forbidden_begins_none() {
    let stage = Stage::with_machine(MACHINE).await;
    lock(&stage.machines.0).fails = true;
    let id = stage.begun("fail").await;
    let end = stage.end(&id).await;
    assert_eq!(
        (&end["status"], &end["error_code"]),
        (&json!("failed"), &json!("network_unavailable"))
    );
    assert!(stage.models.asked().is_empty());
    stage.machines.deny("network_policy");
    let asked = json!({ "agent_id": "worker" });
    let refused = stage.refused("aegis.task.execute", asked).await;
    assert_eq!(refused.code, "agent_machine_denied");
    assert_eq!(stage.good("aegis.task.list", json!({})).await["total"], 1);
}

#[tokio::test]
async fn what_is_not_to_be_kept_is_destroyed_also_where_nothing_was_asked_for() {
    let mut stage = Stage::with_machine("").await;
    stage.rig.options.keep_workspace_secs = 0;
    stage.rig = stage.rig.crashed().await;
    stage.models.answer(|request| match turns(request) {
        0 => says("", &[("hold", json!({}))]),
        _ => says("Done.", &[]),
    });
    let id = stage.begun("lazy").await;
    eventually("it holds", async || stage.children.calls("hold") == 1).await;
    assert!(stage.machines.calls("make").is_empty(), "it is made when a call needs it");
    let (session, _) = stage.children.opened().remove(0);
    let workspace = stage.machines.put(session);
    stage.children.release();
    let events = stage.closed(&id).await;
    let destroyed = json!({ "workspace_id": workspace });
    assert_eq!(stage.machines.calls("workspace_destroy"), [destroyed]);
    assert_eq!(events.last().expect("one")["payload"], json!({}));
}

#[tokio::test]
async fn a_stop_that_the_daemons_own_end_prevents_is_made_by_the_next_daemon() {
    let mut stage = Stage::with_machine(MACHINE).await;
    lock(&stage.machines.0).closes = Some(stage.rig.daemon.closing.clone());
    let id = stage.begun("end").await;
    eventually("it is told", async || stage.rig.daemon.closing.is_cancelled()).await;
    // Behind what the end of the session would have written.
    let other = worker("").replace("name: worker", "name: other");
    stage.good("create", json!({ "manifest_yaml": other })).await;
    stage.rig = stage.rig.stopped().await;
    let events = stage.closed(&id).await;
    assert_eq!(stage.machines.calls("workspace_stop").len(), 2);
    let kept = &events.last().expect("one")["payload"]["workspaces"][0];
    assert_eq!(kept.get("not_stopped"), None);
}

/// A machine is found again and not made twice, and has its end, wherever the daemon died.
#[tokio::test]
async fn no_machine_is_left_wherever_the_daemon_dies() {
    let stage = Stage::with_machine(MACHINE).await;
    let id = stage.begun("live").await;
    stage.closed(&id).await;
    let parsed: ExecutionId = id.parse().expect("an id");
    let stream = log::stream::<ExecutionState>(parsed).expect("a name");
    let records = log::read_records::<ExecutionState>(&stage.rig.daemon.journal, &stream).await;
    let records = records.expect("read");
    for kept in 1..=records.len() {
        let mut again = Stage::with_machine(MACHINE).await;
        write(&again, parsed, &records[..kept]).await;
        let session = opened(&records[..kept]);
        again.children.adopt(again.rig.session, &id, session, &["fs.write"]);
        let workspace = session.map(|session| again.machines.put(session));
        again.rig = again.rig.crashed().await;
        eventually("its session ends", async || {
            let logs = json!({ "execution_id": id, "limit": 200 });
            let logs = again.as_operator("aegis.task.logs", logs).await.expect("events");
            logs["events"].as_array().expect("events").last().expect("one")["event_type"]
                == "session_closed"
        })
        .await;
        let is_placed = |record: &Record| matches!(record, Record::Placed { .. });
        let placed = records[..kept].iter().any(is_placed);
        assert_eq!(again.machines.calls("make").len(), usize::from(!placed), "at {kept}");
        let ends = again.machines.calls("workspace_lifetime");
        assert_eq!(ends.len(), usize::from(kept < records.len()), "at {kept}");
        let of_it = |end: &Value| workspace.is_none_or(|it| end["workspace_id"] == json!(it));
        assert!(ends.iter().all(of_it), "at {kept}");
    }
}

/// Links that say what they open.
struct FakeLinks;

impl ExecutionFileLinks for FakeLinks {
    fn link(&self, user: User, execution: &str, path: &str, until: DateTime<Utc>) -> String {
        format!("{user} {execution} {path} {}", until.timestamp())
    }

    fn opens(&self, _: User, _: &str, _: &str, _: &str) -> bool {
        false
    }
}

#[tokio::test]
async fn a_file_is_a_text_or_a_link_as_long_as_it_is_kept() {
    let stage = Stage::with_machine(MACHINE).await;
    let id = stage.begun("write").await;
    stage.closed(&id).await;
    stage.machines.write("out/a.txt", "ä text");
    stage.machines.write("b.bin", [0xff, 0, 1]);
    stage.machines.write("long.md", "x".repeat(20_000));
    let text = stage.file(&id, "workspace/out/a.txt").await.expect("read");
    let expected = json!({
        "execution_id": id, "path": "out/a.txt", "content": "ä text", "content_type": "text/plain",
        "is_binary": false, "size_bytes": 7,
    });
    assert_eq!(text, expected);
    assert_eq!(stage.machines.calls("workspace_start").len(), 1, "it was stopped");
    let unserved = stage.file(&id, "b.bin").await.expect_err("no door");
    assert_eq!(unserved.code, "links_not_served");
    stage.rig.daemon.ports.offer::<dyn ExecutionFileLinks>(Arc::new(FakeLinks));
    for (path, binary, size) in [("b.bin", true, 3), ("long.md", false, 20_000)] {
        let file = stage.file(&id, path).await.expect("read");
        assert_eq!((&file["is_binary"], &file["size_bytes"]), (&json!(binary), &json!(size)));
        assert!(file.get("content").is_none());
        let url = file["download_url"].as_str().expect("a link");
        let (opened, until) = url.rsplit_once(' ').expect("parts");
        assert_eq!(opened, format!("uid:0 {id} {path}"));
        let left = until.parse::<i64>().expect("a time") - Utc::now().timestamp();
        assert!((800..=900).contains(&left), "{left}");
    }
    for (path, code) in [("../etc/passwd", "invalid_path"), ("none", "not_found")] {
        assert_eq!(stage.file(&id, path).await.expect_err(path).code, code);
    }
    let asked = || json!({ "execution_id": id, "path": "out/a.txt" });
    let other = stage.as_other("aegis.execution.file", asked()).await.expect_err("another's");
    assert_eq!(other.code, "execution_not_found");
    stage.as_operator("aegis.execution.file", asked()).await.expect("an operator may");

    let files = stage.rig.daemon.ports.need::<dyn ExecutionFiles>().expect("offered");
    assert_eq!((files.user(&id), files.user("exec_x")), (Some(User::Uid(0)), None));
    let part = files.read(&id, "long.md", 19_990).await.expect("read");
    assert_eq!((part.bytes.len(), part.size_bytes, part.next), (10, 20_000, None));
    lock(&stage.machines.0).workspaces.clear();
    assert_eq!(stage.file(&id, "out/a.txt").await.expect_err("gone").code, "execution_files_gone");
}
