//! Assembly of the shared state from the configuration.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use hivekeep_image::ImageStore;
use hivekeep_kernel::{Layer, ToolError};
use hivekeep_machine::{
    Driver, HostEnv, probe_kvm,
    sandbox::SandboxDriver,
    sweep::Sweeper,
    vm::{OverlayMaker, VmDriver},
};
use hivekeep_oci::ImagePuller;
use hivekeep_ports::{Network, Volumes};
use hivekeep_runtime::Daemon;

use crate::{
    Options, codes,
    logs::WorkspaceLogSet,
    programs,
    transfer_quota::TransferQuota,
    {folders::WorkspaceFolders, shared::Shared},
};

/// The folder of disks in the state folder: one disk a workspace.
pub const DISKS: &str = "disks";
/// The folder of disks' layers in the state folder.
pub const LAYERS: &str = "layers";
/// Prefix of the temporary files of downloads.
pub(crate) const TEMPORARY: &str = ".hivekeep-";

/// Where images are, by configuration.
pub fn image_dir(options: &Options, state_dir: &Path) -> PathBuf {
    or_below(&options.image_dir, state_dir, "images")
}

/// Where file_transfer keeps its files on the host, by configuration.
pub fn transfer_dir(options: &Options, state_dir: &Path) -> PathBuf {
    or_below(&options.transfer_dir, state_dir, "transfers")
}

fn or_below(configured: &Path, base: &Path, name: &str) -> PathBuf {
    if configured.as_os_str().is_empty() { base.join(name) } else { configured.to_owned() }
}

/// The guest daemon's binary: as configured, or `lib/hivekeep/hivekeep-guest`
/// beside the folder of this program.
///
/// # Errors
/// `guest_binary_missing`, with the way to build it.
pub fn guest_binary(options: &Options) -> Result<PathBuf, ToolError> {
    let path = if options.guest_binary.as_os_str().is_empty() {
        // Same layout as `/usr/lib/hivekeep` beside `/usr/bin`.
        let me = std::env::current_exe().ok();
        let prefix = me.as_deref().and_then(Path::parent).and_then(Path::parent);
        prefix.unwrap_or(Path::new("/usr")).join("lib/hivekeep/hivekeep-guest")
    } else {
        options.guest_binary.clone()
    };
    if path.is_file() {
        return Ok(path);
    }
    let message = format!("the guest daemon is not at {}", path.display());
    Err(ToolError::new(Layer::Machine, codes::GUEST_BINARY_MISSING, message)
        .next("build it with `cargo xtask guest`, or set workspace.guest_binary"))
}

impl Shared {
    /// Makes the folders, opens the images, finds out what this host can do.
    ///
    /// A kind of isolation that the host cannot do is left out; asking for it is
    /// then refused by name.
    ///
    /// # Errors
    /// When a folder or the image store cannot be opened.
    pub async fn open(
        daemon: &Daemon,
        mut options: Options,
        git: crate::GitOptions,
    ) -> Result<Arc<Self>, ToolError> {
        let network = daemon.ports.need::<dyn Network>()?;
        let volumes = daemon.ports.need::<dyn Volumes>()?;
        let hivekeep_runtime::Folders { state: state_dir, run: run_dir, logs: log_dir } =
            &daemon.folders;
        let folders = WorkspaceFolders {
            disks: state_dir.join(DISKS),
            layers: state_dir.join(LAYERS),
            memories: state_dir.join("memories"),
            run: run_dir.join("machines"),
            logs: log_dir.join("machines"),
            transfers: transfer_dir(&options, state_dir),
        };
        let WorkspaceFolders { disks, layers, memories, run, logs, transfers } = &folders;
        for folder in [disks, layers, memories, run, logs, transfers] {
            make(folder)?;
        }
        let folders = WorkspaceFolders { transfers: canonical(&folders.transfers)?, ..folders };
        let transfers = folders.transfers.clone();
        tokio::task::spawn_blocking(move || remove_cut_downloads(&transfers, 16))
            .await
            .map_err(|error| ToolError::internal(error.to_string()))?;
        let image_dir = image_dir(&options, state_dir);
        make(&image_dir)?;
        let images = tokio::task::spawn_blocking(move || ImageStore::open(image_dir))
            .await
            .map_err(|error| ToolError::internal(error.to_string()))??;
        if let Ok(guest) = guest_binary(&options) {
            options.driver.guest_path = guest;
        }
        options.driver.sandbox = options.sandbox.clone();
        let found = find_drivers(&options, &folders, images.clone()).await?;
        let puller = ImagePuller::new(images.clone(), options.images.clone());
        let roots = [folders.disks.clone(), folders.logs.clone()];
        let sweeper = Sweeper::new(found.host_env, folders.run.clone(), &roots);
        let disks = folders.disks.clone();
        Ok(Arc::new(Self {
            daemon: daemon.clone(),
            transfers: TransferQuota::of_mb(options.transfer_max_total_mb),
            wakes: tokio::sync::Semaphore::new(options.max_parallel_wakes.max(1)),
            options,
            git,
            folders,
            logs: WorkspaceLogSet::new(daemon.journal.clone(), disks),
            network,
            volumes,
            puller,
            images,
            drivers: found.drivers,
            sweeper,
            directory: Default::default(),
            ref_counts: Default::default(),
            merges: tokio::sync::Semaphore::new(1),
            fresh: Default::default(),
            traffic: Default::default(),
            booted: Default::default(),
        }))
    }
}

struct Found {
    host_env: HostEnv,
    drivers: Vec<Arc<dyn Driver>>,
}

/// Opens the drivers. Probing takes a fraction of a second and blocks.
async fn find_drivers(
    options: &Options,
    folders: &WorkspaceFolders,
    images: ImageStore,
) -> Result<Found, ToolError> {
    let (options, run) = (options.driver.clone(), folders.run.clone());
    let overlays = overlays(images, tokio::runtime::Handle::current());
    let look = move || {
        let host_env = HostEnv::open(options, &run);
        programs::bound(&host_env);
        let mut drivers: Vec<Arc<dyn Driver>> = Vec::new();
        match VmDriver::open(host_env.clone(), &probe_kvm(), overlays) {
            Ok(vm) => drivers.push(Arc::new(vm)),
            Err(error) => tracing::warn!(%error, "no virtual machines on this host"),
        }
        match SandboxDriver::open(host_env.clone()) {
            Ok(sandbox) => drivers.push(Arc::new(sandbox)),
            Err(error) => tracing::warn!(%error, "no sandboxes on this host"),
        }
        Found { host_env, drivers }
    };
    tokio::task::spawn_blocking(look).await.map_err(|error| ToolError::internal(error.to_string()))
}

/// Maker of disks from the image store's prepared overlays.
fn overlays(images: ImageStore, runtime: tokio::runtime::Handle) -> OverlayMaker {
    Arc::new(move |backing, bytes, path| {
        runtime.block_on(async {
            let name = images.image_of(backing).await.map_err(std::io::Error::other)?;
            if let Some(name) = name {
                let image = images.resolve(name).await.map_err(std::io::Error::other)?;
                let made = images.overlay(&image, path, bytes >> 30).await;
                return made.map_err(std::io::Error::other);
            }
            let gone = format!("no image has the root file system {}", backing.display());
            Err(std::io::Error::new(std::io::ErrorKind::NotFound, gone))
        })
    })
}

fn make(folder: &Path) -> Result<(), ToolError> {
    std::fs::create_dir_all(folder).map_err(|error| folder_error(folder, &error))
}

fn canonical(folder: &Path) -> Result<PathBuf, ToolError> {
    folder.canonicalize().map_err(|error| folder_error(folder, &error))
}

fn folder_error(folder: &Path, error: &std::io::Error) -> ToolError {
    ToolError::new(Layer::Machine, codes::FOLDER_UNUSABLE, format!("{}: {error}", folder.display()))
        .next("`hivekeep check` looks at the folders")
}

/// Removes the temporary files of downloads that a crash cut short. Follows no
/// symlink and goes `depth` folders deep.
fn remove_cut_downloads(folder: &Path, depth: usize) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        let name = entry.file_name();
        if kind.is_dir() && depth > 0 {
            remove_cut_downloads(&entry.path(), depth - 1);
        } else if kind.is_file()
            && name.to_string_lossy().starts_with(TEMPORARY)
            && let Err(error) = std::fs::remove_file(entry.path())
        {
            tracing::warn!(file = %entry.path().display(), %error, "a cut download stays");
        }
    }
}
