//! A mounted family with a place for reading and writing, one for reading, and a folder outside of both.

use std::{path::PathBuf, sync::Arc};

use hivekeep_kernel::{SessionId, ToolError};
use hivekeep_ports::{VolumeFiles, WorkspaceFiles};
use hivekeep_runtime::Daemon;
use hivekeep_testkit::{FakeUsers, Rig, RigServices};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::machines::{MachineFiles, MachineTools, Machines, OneVolume};
use crate::{FilesFamily, Options, PlaceOptions};

pub(super) struct Stage {
    rig: Rig<FilesFamily>,
    folder: TempDir,
    pub(super) machines: Arc<Machines>,
}

impl Stage {
    pub(super) async fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["work", "outside"] {
            std::fs::create_dir(path(name)).expect("made");
        }
        let place = |read_only| PlaceOptions { folder: path("work"), read_only };
        let places = [("work".to_owned(), place(false)), ("look".to_owned(), place(true))];
        let default_place = Some("work".to_owned());
        Self::of(Options { default_place, places: places.into(), ..Options::default() }, folder)
            .await
    }

    pub(super) async fn of(options: Options, folder: TempDir) -> Self {
        let machines = Machines::at(folder.path().to_owned());
        let offered = machines.clone();
        let volume = folder.path().join("volume");
        let services = RigServices {
            sessions: Arc::new(FakeUsers::default()),
            tools: Arc::new(MachineTools(machines.clone())),
            offer: Arc::new(move |ports| {
                ports.offer::<dyn WorkspaceFiles>(Arc::new(MachineFiles(offered.clone())));
                ports.offer::<dyn VolumeFiles>(Arc::new(OneVolume(volume.clone())));
            }),
        };
        Self { rig: Rig::new(options, services).await, folder, machines }
    }

    pub(super) fn session(&self) -> SessionId {
        self.rig.session
    }

    pub(super) fn daemon(&self) -> &Daemon {
        &self.rig.daemon
    }

    /// A path in the place.
    pub(super) fn work(&self, path: &str) -> PathBuf {
        self.folder.path().join("work").join(path)
    }

    /// A path beside the place.
    pub(super) fn outside(&self, path: &str) -> PathBuf {
        self.folder.path().join("outside").join(path)
    }

    /// Calls a tool by its whole name.
    pub(super) async fn tool(&self, tool: &str, args: Value) -> Result<Value, ToolError> {
        self.rig.call(tool, args).await
    }

    /// Calls a tool; those of `fs` by the second part of their names, those that are called as one of
    /// them behind `=`.
    pub(super) async fn call(&self, tool: &str, args: Value) -> Result<Value, ToolError> {
        if let Some(tool) = tool.strip_prefix('=') {
            return self.tool(tool, args).await;
        }
        let tool = if tool.contains('_') && tool != "create_dir" && tool != "multi_edit" {
            tool.to_owned()
        } else {
            format!("fs.{tool}")
        };
        self.rig.call(&tool, args).await
    }

    pub(super) async fn good(&self, tool: &str, args: Value) -> Value {
        self.call(tool, args).await.unwrap_or_else(|error| panic!("{tool}: {error}"))
    }

    pub(super) async fn refused(&self, tool: &str, args: Value) -> String {
        match self.call(tool, args.clone()).await {
            Ok(answer) => panic!("{tool} {args} answers {answer}"),
            Err(error) => error.code.into_owned(),
        }
    }
}

/// Every tool, with a path in each place where it takes one.
pub(super) fn every_tool(path: &str) -> Vec<(&'static str, Value)> {
    let edit = json!({ "target_content": "secret", "replacement_content": "x" });
    let patch =
        json!({ "path": path, "operation": "replace", "old_string": "secret", "new_string": "x" });
    vec![
        ("read", json!({ "path": path })),
        ("write", json!({ "path": path, "content": "x" })),
        ("list", json!({ "path": path })),
        ("create_dir", json!({ "path": path })),
        ("delete", json!({ "path": path, "recursive": true })),
        ("stat", json!({ "path": path, "follow": true })),
        ("stat", json!({ "path": path, "depth": 3 })),
        ("get", json!({ "path": path })),
        ("put", json!({ "path": path, "content_base64": "" })),
        ("put", json!({ "path": path, "content_base64": "eA==", "at": 1 })),
        ("edit", json!({ "path": path, "target_content": "secret", "replacement_content": "x" })),
        ("multi_edit", json!({ "path": path, "edits": [edit] })),
        ("grep", json!({ "path": path, "pattern": "secret" })),
        ("glob", json!({ "path": path, "pattern": "**" })),
        ("file_delete", json!({ "path": path })),
        ("file_rename", json!({ "oldPath": path, "newPath": "moved" })),
        ("file_rename", json!({ "oldPath": "mine", "newPath": path, "overwrite": true })),
        ("file_exists", json!({ "path": path })),
        ("dir_list", json!({ "path": path })),
        ("dir_create", json!({ "path": path })),
        ("=read", json!({ "path": path })),
        ("=patch", json!({ "path": path, "operation": "create", "content": "x" })),
        ("=patch", patch),
    ]
}
