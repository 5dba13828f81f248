//! Workspaces of the test's own: their guests run the real engine beneath a folder, and the tools that
//! make and start them count.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use hivekeep_file_engine::{FileError, FileOperation, FileOutcome, FileRoot, decode, encode, run};
use hivekeep_kernel::{CallCx, Layer, SessionId, ToolError, VolumeId, WorkspaceId};
use hivekeep_ports::{
    FileChange, FileChangeKind, FileChanges, FoundWorkspace, GuestOperation, InternalCall, Tools,
    VolumeFiles, WatchRequest, WorkspaceFiles, WorkspaceReadiness,
};
use serde_json::{Value, json};

use crate::codes;

/// What a guest answers instead of what the engine says.
type Lie = Box<dyn Fn(FileOperation) -> Vec<u8> + Send + Sync>;

#[derive(Default)]
pub(super) struct Machines {
    /// Folder that is every guest's home.
    pub(super) home: PathBuf,
    pub(super) known: Mutex<BTreeMap<String, FoundWorkspace>>,
    /// Calls of tools, with their inputs.
    pub(super) calls: Mutex<Vec<(&'static str, Value)>>,
    pub(super) lie: Mutex<Option<Lie>>,
    /// User and folder of the last operation.
    pub(super) ran_as: Mutex<(Option<String>, Option<String>)>,
}

impl Machines {
    pub(super) fn at(home: PathBuf) -> Arc<Self> {
        Arc::new(Self { home, ..Self::default() })
    }

    pub(super) fn put(&self, name: &str, owner: Option<SessionId>, readiness: WorkspaceReadiness) {
        let found =
            FoundWorkspace { id: WorkspaceId::new(), name: name.to_owned(), owner, readiness };
        self.known.lock().expect("no panic").insert(name.to_owned(), found);
    }

    /// How often a tool was called.
    pub(super) fn count(&self, tool: &str) -> usize {
        self.calls.lock().expect("no panic").iter().filter(|(name, _)| *name == tool).count()
    }

    fn settle(&self, name: &str, readiness: WorkspaceReadiness) {
        let mut known = self.known.lock().expect("no panic");
        known.get_mut(name).expect("it is known").readiness = readiness;
    }
}

/// The port of the test's workspaces.
pub(super) struct MachineFiles(pub(super) Arc<Machines>);

#[async_trait]
impl WorkspaceFiles for MachineFiles {
    fn find(&self, id_or_name: &str) -> Option<FoundWorkspace> {
        let known = self.0.known.lock().expect("no panic");
        let mut all = known.values();
        all.find(|it| it.name == id_or_name || it.id.to_string() == id_or_name).cloned()
    }

    async fn run(
        &self,
        cx: &CallCx,
        id: WorkspaceId,
        operation: GuestOperation,
    ) -> Result<Vec<u8>, ToolError> {
        let found = self.find(&id.to_string()).expect("it is known");
        assert_eq!(found.owner, Some(cx.session), "it is judged before it gets here");
        let GuestOperation { encoded, max_bytes, user, folder, .. } = operation;
        *self.0.ran_as.lock().expect("no panic") = (user, folder.clone());
        let operation: FileOperation = decode(&encoded).expect("an operation");
        if let Some(lie) = &*self.0.lie.lock().expect("no panic") {
            return Ok(lie(operation));
        }
        let home = folder.as_deref().or(self.0.home.to_str()).expect("UTF-8");
        let root = FileRoot::system(home).expect("opened");
        let outcome: Result<FileOutcome, FileError> = run(&root, &operation, &|| false);
        let answer = encode(&outcome).expect("it fits");
        assert!(answer.len() as u64 <= max_bytes);
        Ok(answer)
    }

    async fn watch(
        &self,
        _: &CallCx,
        _: WorkspaceId,
        request: WatchRequest,
    ) -> Result<u64, ToolError> {
        *self.0.ran_as.lock().expect("no panic") = (request.user, Some(request.path));
        Ok(if request.recursive { 8 } else { 7 })
    }

    async fn changes(
        &self,
        _: &CallCx,
        _: WorkspaceId,
        watch: u64,
        after: u64,
        wait: Duration,
    ) -> Result<FileChanges, ToolError> {
        if watch != 7 {
            return Err(ToolError::foreign(Layer::Guest, "watch_unknown", "no such watch"));
        }
        let path = format!("waited {} s", wait.as_secs());
        let change = FileChange { seq: after + 1, kind: FileChangeKind::Create, path };
        Ok(FileChanges { changes: vec![change], next: after + 1, lost: after == 5 })
    }

    async fn unwatch(&self, _: &CallCx, _: WorkspaceId, watch: u64) -> Result<bool, ToolError> {
        Ok(watch == 7)
    }

    async fn home(
        &self,
        _: &CallCx,
        _: WorkspaceId,
        user: Option<&str>,
    ) -> Result<String, ToolError> {
        match user {
            Some("ghost") => Err(ToolError::foreign(Layer::Guest, "user_unknown", "no ghost")),
            user => Ok(format!("{}/{}", self.0.home.display(), user.unwrap_or("image"))),
        }
    }
}

/// One volume, `v`, whose files are in a folder.
pub(super) struct OneVolume(pub(super) PathBuf);

#[async_trait]
impl VolumeFiles for OneVolume {
    fn find(&self, _: SessionId, volume: &str) -> Result<VolumeId, ToolError> {
        match volume {
            "v" => Ok(VolumeId::new()),
            _ => Err(ToolError::foreign(Layer::Actor, "volume_not_found", "no such volume")),
        }
    }

    async fn run(&self, cx: &CallCx, volume: &str, asked: Vec<u8>) -> Result<Vec<u8>, ToolError> {
        self.find(cx.session, volume)?;
        let operation: FileOperation = decode(&asked).expect("an operation");
        let root = FileRoot::folder(&self.0).expect("opened");
        Ok(encode(&run(&root, &operation, &|| false)).expect("it fits"))
    }
}

/// The tools that make and start the test's workspaces.
pub(super) struct MachineTools(pub(super) Arc<Machines>);

#[async_trait]
impl Tools for MachineTools {
    async fn call(
        &self,
        call: InternalCall,
        tool: &'static str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let field = if tool == "workspace_create" { "name" } else { "workspace_id" };
        let name = args[field].as_str().expect("a name").to_owned();
        if tool == "workspace_create" {
            let mut known = self.0.known.lock().expect("no panic");
            if known.contains_key(&name) {
                return Err(ToolError::new(Layer::Actor, codes::NAME_TAKEN, "it exists"));
            }
            let readiness = WorkspaceReadiness::Changing;
            let (id, owner) = (WorkspaceId::new(), Some(call.session));
            known.insert(name.clone(), FoundWorkspace { id, name: name.clone(), owner, readiness });
        }
        self.0.calls.lock().expect("no panic").push((tool, args));
        // Others come by meanwhile.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        self.0.settle(&name, WorkspaceReadiness::Ready);
        Ok(json!({}))
    }
}
