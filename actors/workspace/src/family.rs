//! Workspaces as a family: one actor of all of them, one of each, and ports for the others.

use std::{path::Path, sync::Arc, time::Duration};

use hivekeep_git::GitOptions;
use hivekeep_image::{ImageState, ImageStore, Remedy, RequirementPurpose, requirements};
use hivekeep_kernel::{Address, ErrorCode, Resources, RestartPolicy, ToolError, ToolInfo};
use hivekeep_machine::doctor::doctor;
use hivekeep_ports::{
    CommandRunner, DefaultSize, ImagePresence, ProgramConnections, TaskOutputs, Tasks,
    WorkspaceFiles, WorkspaceForks, WorkspacePorts, WorkspaceStandstill,
};
use hivekeep_runtime::{
    Daemon, Family, Finding, Host, Mounted,
    host_process::{self, HostUsers},
};

use crate::{
    Options, TasksHandle, WorkspaceFilesHandle, WorkspacePortsHandle,
    backup::DisksHandle,
    codes,
    commands::runner::CommandsHandle,
    documents::{FileDocuments, LogDocuments, WorkspaceNames},
    guest_binary, image_dir,
    image_upkeep::{self, ImagesHere},
    lifecycle,
    manager::{Msg, Workspaces},
    parking::standstill::WorkspaceStandstillHandle,
    shared::Shared,
    snapshot::fork::WorkspaceForksHandle,
    tools, transfer_dir,
};

/// How long an ordered stop waits for machines to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(120);

/// Needs the network and [`GitOptions`]; offers [`Tasks`], [`TaskOutputs`], [`CommandRunner`], [`WorkspaceFiles`],
/// [`WorkspaceForks`], [`WorkspaceStandstill`], [`WorkspacePorts`], [`ProgramConnections`], [`ImagePresence`], [`DefaultSize`],
/// [`hivekeep_ports::WorkspaceBounds`], [`HostUsers`] and [`DisksHandle`].
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
        let isolations = shared.drivers.iter().map(|driver| driver.isolation().as_str()).collect();
        daemon.ports.offer(Arc::new(lifecycle::create::bounds(&shared.options, isolations)));
        let tasks = Arc::new(TasksHandle::new(shared.clone()));
        daemon.ports.offer::<dyn Tasks>(tasks.clone());
        daemon.ports.offer::<dyn TaskOutputs>(tasks);
        let files = WorkspaceFilesHandle::new(shared.clone());
        daemon.ports.offer::<dyn WorkspaceFiles>(Arc::new(files));
        let guest_ports = Arc::new(WorkspacePortsHandle::new(shared.clone()));
        daemon.ports.offer::<dyn WorkspacePorts>(guest_ports.clone());
        daemon.ports.offer::<dyn ProgramConnections>(guest_ports);
        daemon.ports.offer::<dyn CommandRunner>(Arc::new(CommandsHandle::new(shared.clone())));
        daemon.ports.offer(Arc::new(DisksHandle::new(shared.clone())));
        daemon.ports.offer::<dyn ImagePresence>(Arc::new(ImagesHere(shared.images.clone())));
        let address = daemon.address("workspaces", RestartPolicy::ESSENTIAL);
        let forks = WorkspaceForksHandle { shared: shared.clone(), manager: address.clone() };
        daemon.ports.offer::<dyn WorkspaceForks>(Arc::new(forks));
        let standstill = WorkspaceStandstillHandle(shared.clone());
        daemon.ports.offer::<dyn WorkspaceStandstill>(Arc::new(standstill));
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
        all(options, host).await
    }
}

async fn stop_all(workspaces: Address<Msg>) {
    if let Err(error) = workspaces.ask(STOP_PATIENCE, Msg::StopAll).await {
        tracing::error!(%error, "not all workspaces are stopped");
    }
}

/// All findings, in the order in which a person would fix them.
pub(super) async fn all(options: &Options, host: &Host) -> Vec<Finding> {
    let transfers = transfer_dir(options, &host.folders.state);
    let space = transfers
        .exists()
        .then(|| Finding::space("transfer folder", &transfers, &host.room).optional());
    let mut found: Vec<_> = space.into_iter().collect();
    found.extend(machines(options));
    let first = hivekeep_machine::ids_of_programs(&options.driver).ok();
    found.push(host_process::tried(HostUsers::from_first(first), &host.folders.state).await);
    found.extend(programs());
    found.push(guest(options));
    found.extend(images(options, &host.folders.state).await);
    found
}

/// Requirements of machines. The default isolation needs only the hypervisor; the rest makes machines
/// quicker or better confined.
fn machines(options: &Options) -> Vec<Finding> {
    // A tag of its own leaves the groups of a running daemon as they are.
    let tag = format!("check{}", std::process::id());
    let landlock = options.sandbox.landlock_required;
    let found = doctor(&options.driver, &tag).into_iter();
    found
        .map(|found| Finding {
            what: found.what.to_owned(),
            ok: found.ok,
            needed: found.what == "qemu" || (found.what == "landlock" && landlock),
            detail: found.detail,
            remedy: found.remedy,
            package: found.package,
        })
        .collect()
}

fn programs() -> Vec<Finding> {
    let wanted = requirements().into_iter();
    wanted
        .map(|wanted| {
            let (purpose, needed) = match wanted.purpose {
                RequirementPurpose::Overlay => ("makes disks", true),
                RequirementPurpose::Build => ("builds images", false),
                RequirementPurpose::BuildDebian => ("builds the debian image", false),
                RequirementPurpose::BuildSmallKernel => ("compiles the small kernel", false),
            };
            let name = Path::new(wanted.what).file_name().unwrap_or_default().to_string_lossy();
            let missing = format!("missing; {purpose}");
            match (wanted.found, wanted.remedy) {
                (true, _) => Finding::good(name, purpose),
                (false, Remedy::Package(package)) => {
                    Finding::bad(name, missing, "").package(Some(package))
                }
                (false, Remedy::Otherwise(remedy)) => Finding::bad(name, missing, remedy),
            }
            .needed(needed)
        })
        .collect()
}

fn guest(options: &Options) -> Finding {
    match guest_binary(options) {
        Ok(path) => Finding::good("guest daemon", path.display().to_string()),
        Err(error) => {
            Finding::bad("guest daemon", error.message, error.next_step.unwrap_or_default())
        }
    }
    .optional()
}

async fn images(options: &Options, state_dir: &Path) -> Vec<Finding> {
    let (folder, wanted) = (image_dir(options, state_dir), &options.default_image);
    let build = |name: &str| format!("run `hivekeep image build {name}`");
    if !folder.exists() {
        // A check makes no folders.
        return vec![Finding::bad(format!("image {wanted}"), "not built", build(wanted))];
    }
    let listed = match ImageStore::open(folder) {
        Ok(store) => store.list().await,
        Err(error) => Err(error),
    };
    let images = match listed {
        Ok(images) => images,
        Err(error) => {
            return vec![Finding::bad("images", error.to_string(), "mend the image folder")];
        }
    };
    images
        .into_iter()
        .map(|image| {
            let (what, name) = (format!("image {}", image.name), image.name.as_str());
            let found = match image.state {
                ImageState::Built(manifest) => {
                    Finding::good(what, format!("built {}", manifest.built_at.format("%Y-%m-%d")))
                }
                ImageState::Pulled(image) => {
                    Finding::good(what, format!("pulled {}", image.pulled_at.format("%Y-%m-%d")))
                }
                ImageState::NotBuilt => Finding::bad(what, "not built", build(name)),
                ImageState::Unreadable { reason } => Finding::bad(what, reason, build(name)),
            };
            found.needed(name == wanted)
        })
        .collect()
}
