//! Two users over a real journal, and volumes on this host. What is mounted is unmounted again, also
//! after a panic.

use std::{path::Path, sync::Arc};

use hivekeep_kernel::{SessionId, ToolError, User};
use hivekeep_ports::{LateTools, Volumes};
use hivekeep_testkit::{FakeUsers, Rig, RigServices};
use rustix::mount::UnmountFlags;
use serde_json::{Value, json};
use tokio::time::Duration;

use crate::{Options, VolumeFamily, images};

pub(super) const MIB: u64 = 1 << 20;

/// The rig's session is the first user's, the other one the second's, whose tier allows two volumes
/// and 64 MiB; one is over.
pub(super) fn users(other: SessionId, over: SessionId) -> FakeUsers {
    let (first, second) = (User::Uid(0), User::Uid(1));
    let users = FakeUsers::all(first).and(other, second).over(over);
    users.allowed(second, "volumes", 2).allowed(second, "volume_mb", 64)
}

/// Whether this host mounts volumes; a skip for each thing that it lacks.
pub(super) fn can_mount() -> bool {
    let missing = images::missing();
    for (what, ..) in &missing {
        hivekeep_skip::skip(what);
    }
    missing.is_empty()
}

/// Unmounts everything below a folder that is about to be removed.
pub(super) fn unmount_below(folder: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for target in mounts.lines().rev().filter_map(|line| line.split(' ').nth(1)) {
        if Path::new(target).starts_with(folder) {
            let _gone = rustix::mount::unmount(target, UnmountFlags::DETACH);
        }
    }
}

/// Loop devices over files below a folder.
pub(super) fn loops_below(folder: &Path) -> Vec<String> {
    let devices = std::fs::read_dir("/sys/block").expect("devices").flatten();
    let backing = devices
        .filter_map(|device| std::fs::read_to_string(device.path().join("loop/backing_file")).ok());
    backing.filter(|file| Path::new(file.trim()).starts_with(folder)).collect()
}

pub(super) struct Stage {
    /// `None` only while it is started anew.
    rig: Option<Rig<VolumeFamily>>,
    pub(super) other: SessionId,
    pub(super) over: SessionId,
}

impl Stage {
    /// `None` where this host mounts no volumes, which is said.
    pub(super) async fn open(options: Options) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let (other, over) = (SessionId::new(), SessionId::new());
        let services = RigServices {
            sessions: Arc::new(users(other, over)),
            tools: Arc::new(LateTools::default()),
            offer: Arc::new(|_| ()),
        };
        let stage = Self { rig: Some(Rig::new(options, services).await), other, over };
        stage.volumes().all_set();
        Some(stage)
    }

    pub(super) fn rig(&self) -> &Rig<VolumeFamily> {
        self.rig.as_ref().expect("it is started")
    }

    pub(super) fn volumes(&self) -> Arc<dyn Volumes> {
        self.rig().daemon.ports.need::<dyn Volumes>().expect("it is offered")
    }

    pub(super) fn folder(&self) -> &Path {
        &self.rig().daemon.folders.state
    }

    /// The daemon dies and starts again; nobody has told it yet what workspaces have.
    pub(super) async fn crash(&mut self) {
        let rig = self.rig.take().expect("it is started");
        self.rig = Some(rig.crashed().await);
    }

    pub(super) async fn call(&self, tool: &str, args: Value) -> Result<Value, ToolError> {
        self.rig().call(&format!("aegis.{tool}"), args).await
    }

    pub(super) async fn as_session(
        &self,
        session: SessionId,
        tool: &str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let limit = Duration::from_secs(60);
        self.rig().begin_as(session, &format!("aegis.{tool}"), args, limit).answer().await
    }

    pub(super) async fn good(&self, tool: &str, args: Value) -> Value {
        self.call(tool, args).await.unwrap_or_else(|error| panic!("{tool}: {error}"))
    }

    pub(super) async fn refused(&self, tool: &str, args: Value) -> String {
        self.call(tool, args).await.expect_err(tool).code.into_owned()
    }

    pub(super) async fn make(&self, label: &str, mib: u64) -> Value {
        let args = json!({ "label": label, "size_limit_bytes": mib * MIB });
        self.good("volume.create", args).await
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(rig) = &self.rig {
            unmount_below(&rig.daemon.folders.state);
        }
    }
}
