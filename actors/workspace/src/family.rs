//! Workspaces as a family: one actor of all of them, one of each, and ports for the others.

mod check;

use std::{sync::Arc, time::Duration};

use hivekeep_git::GitOptions;
use hivekeep_kernel::{
    Address, ErrorCode, Resources, RestartPolicy, ToolError, ToolInfo,
    ports::{CommandRunner, DefaultSize, ImagePresence, Tasks, WorkspaceFiles, WorkspacePorts},
};
use hivekeep_runtime::{Daemon, Family, Finding, Host, Mounted, host_process::HostUsers};

use crate::{
    Options, TasksHandle, WorkspaceFilesHandle, WorkspacePortsHandle,
    backup::DisksHandle,
    codes,
    commands::runner::CommandsHandle,
    documents::{FileDocuments, LogDocuments, WorkspaceNames},
    image_upkeep::{self, ImagesHere},
    manager::{Msg, Workspaces},
    shared::Shared,
    tools,
};

/// How long an ordered stop waits for machines to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(120);

/// Needs the network and [`GitOptions`]; offers [`Tasks`], [`CommandRunner`], [`WorkspaceFiles`],
/// [`WorkspacePorts`], [`ImagePresence`], [`DefaultSize`], [`HostUsers`] and [`DisksHandle`].
pub struct WorkspaceFamily;

impl Family for WorkspaceFamily {
    type Options = Options;

    const INSTRUCTIONS: &'static str = "\
- workspace_create makes one; use its workspace_id, or its name, in all other calls. \
workspace_list shows what there is.
- exec runs a shell command and returns exit_code, stdout and stderr; a non-zero exit_code is a \
result, not an error. For anything longer than its timeout use exec_background and poll the job.
- file_write, file_read, file_edit and file_list work inside a workspace; file_transfer copies \
files between the host and a workspace.
- Workspaces live until workspace_destroy. If one belongs to a session that is gone, \
workspace_adopt takes it over.";

    fn tools() -> Vec<&'static ToolInfo> {
        tools::catalogue()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        [
            codes::ALL,
            hivekeep_image::codes::ALL,
            hivekeep_oci::codes::ALL,
            hivekeep_link::codes::ALL,
            hivekeep_machine::codes::ALL,
        ]
        .concat()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let git = daemon.ports.need::<GitOptions>()?;
        let first = hivekeep_machine::ids_of_programs(&options.driver).ok();
        daemon.ports.offer(Arc::new(HostUsers::from_first(first)));
        let size = Resources::workspace(options.default_memory_mb, options.default_disk_gb);
        let shared = Shared::open(daemon, options, GitOptions::clone(&git)).await?;
        daemon.ports.offer(Arc::new(DefaultSize(size)));
        daemon.ports.offer::<dyn Tasks>(Arc::new(TasksHandle::new(shared.clone())));
        let files = WorkspaceFilesHandle::new(shared.clone());
        daemon.ports.offer::<dyn WorkspaceFiles>(Arc::new(files));
        let guest_ports = WorkspacePortsHandle::new(shared.clone());
        daemon.ports.offer::<dyn WorkspacePorts>(Arc::new(guest_ports));
        daemon.ports.offer::<dyn CommandRunner>(Arc::new(CommandsHandle::new(shared.clone())));
        daemon.ports.offer(Arc::new(DisksHandle::new(shared.clone())));
        daemon.ports.offer::<dyn ImagePresence>(Arc::new(ImagesHere(shared.images.clone())));
        let address = daemon.address("workspaces", RestartPolicy::ESSENTIAL);
        let prune_every = Duration::from_secs(shared.options.images.prune_every_secs);
        let mut mounted = Mounted::default().serving::<Workspaces>(&address, shared.clone());
        if !prune_every.is_zero() {
            let images = daemon.address("images", RestartPolicy::ENTITY);
            mounted = mounted.periodic(&images, prune_every, shared.clone(), image_upkeep::look);
        }
        Ok(mounted
            .directory("workspace", Arc::new(shared.directory.clone()))
            .documents(Arc::new(FileDocuments))
            .documents(Arc::new(LogDocuments))
            .names(Arc::new(WorkspaceNames))
            .tear_down(|| stop_all(address)))
    }

    async fn check(options: &Options, host: &Host) -> Vec<Finding> {
        check::all(options, host).await
    }
}

async fn stop_all(workspaces: Address<Msg>) {
    if let Err(error) = workspaces.ask(STOP_PATIENCE, Msg::StopAll).await {
        tracing::error!(%error, "not all workspaces are stopped");
    }
}
