//! Sandboxes by bubblewrap: namespaces on the host's kernel, native speed, weaker than a VM.
//!
//! Bubblewrap runs as an unprivileged user and makes user, pid, net, ipc, uts, mount and cgroup
//! namespaces; where the sandbox has users besides root, the user namespace is made before. In them
//! the guest daemon, as process 1, mounts the overlay over the image's tree, confines itself and
//! serves the inherited listening socket.
//!
//! The machine's process is that process 1: with it dies everything in its pid namespace.
//! Bubblewrap's outer half is a helper that only waits; `--die-with-parent` is not used, since a
//! sandbox outlives the daemon.
//!
//! An ordinary user may not map the ids of a mount, and a contained root has rights over files of its own user only.
//! So the tree is copied once for each subordinate user and given away; the next sandbox of the same user finds it. An
//! existing copy is complete: it is made aside, flushed and renamed. Copies of trees that no longer exist are removed
//! when the next copy is made.
//!
//! `.hivekeep-trees/ID/KEY/` beside the machines' disks has the copy, `tree`, and a link to its original, `source`. ID is
//! the user's in the namespace, KEY is made of the source's path: a tree's path is made of its content, and is never
//! another's.

mod args;
mod ids;
mod launch;
mod layout;
mod subordinates;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use async_trait::async_trait;

pub(super) use ids::SandboxIds;
pub use ids::ids_of_programs;
pub(super) use layout::Layout;
pub(super) use subordinates::{REMEDY as USERS_REMEDY, Subordinates};

use crate::cgroup;
use crate::exit::{ExitHow, MachineExit};
use crate::host_env::{self, HostEnv};
use crate::options;
use crate::process::Pinned;
use crate::{
    AcceleratorKind, Capabilities, CapabilitySupport, CarrierKind, Confinement, Driver,
    DriverFacts, Error, Isolation, LaunchedMachine, LogsOnDiscard, MachineHandle, MachinePlan,
    MachineUsage, ReattachError,
};
use subordinates::Within;

pub(super) const BWRAP_REMEDY: &str = "apt-get install bubblewrap";
const GUEST_REMEDY: &str = "build hivekeep-guest and set guest_path";

/// Driver for `isolation = "sandbox"`.
pub struct SandboxDriver {
    host_env: HostEnv,
    bwrap: PathBuf,
    guest: PathBuf,
    facts: DriverFacts,
    capabilities: Capabilities,
}

impl SandboxDriver {
    /// Finds bubblewrap and the guest daemon. Blocks for some milliseconds.
    pub fn open(host_env: HostEnv) -> Result<Self, Error> {
        let bwrap = options::find_program(&host_env.options.bwrap_path, BWRAP_REMEDY)?;
        let guest = options::find_program(&host_env.options.guest_path, GUEST_REMEDY)?;
        let mut cannot = vec![
            "limit disk: the overlay shares the host's file system".to_owned(),
            "save memory: there is no machine to save".to_owned(),
        ];
        if let Err(why) = &host_env.sandbox_ids {
            cannot.push(format!("have users besides root: {why}"));
        }
        if let Some((what, why)) = host_env.cgroups.missing() {
            cannot.push(format!("limit {what}: {why}"));
        }
        let facts = DriverFacts {
            accelerator: AcceleratorKind::Namespaces,
            accelerator_why: "processes of the host's kernel need none".into(),
            program: options::program_version(&bwrap)?,
            carrier: CarrierKind::Unix,
            cgroup: host_env.cgroups.version(),
            cannot,
            confinement: Some(Confinement::with(&host_env.subordinates)),
        };
        let capabilities = Capabilities {
            memory_snapshots: CapabilitySupport::no(
                "a sandbox is processes, not a machine with memory",
            ),
            own_kernel: CapabilitySupport::no("a sandbox runs on the host's kernel"),
            disk_limit: CapabilitySupport::no("a sandbox's files lie on the host's file system"),
            several_users: match &host_env.sandbox_ids {
                Ok(_) => CapabilitySupport::Yes,
                Err(why) => CapabilitySupport::no(why.clone()),
            },
            volumes: match rustix::process::geteuid().is_root() {
                true => CapabilitySupport::Yes,
                false => CapabilitySupport::no("only root maps the ids of a mount"),
            },
        };
        Ok(Self { host_env, bwrap, guest, facts, capabilities })
    }

    /// Refuses when all of Landlock is required and the kernel lacks a part.
    fn check_landlock(&self) -> Result<(), Error> {
        let missing = self.facts.confinement.as_ref().map(|walls| &walls.landlock.missing);
        match missing {
            Some(missing)
                if self.host_env.options.sandbox.landlock_required && !missing.is_empty() =>
            {
                Err(Error::LandlockIncomplete { missing: missing.join(", ") })
            }
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Driver for SandboxDriver {
    fn isolation(&self) -> Isolation {
        Isolation::Sandbox
    }

    fn facts(&self) -> &DriverFacts {
        &self.facts
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn prepare(&self, plan: &MachinePlan) -> Result<(), Error> {
        plan.check()?;
        let (host_env, plan) = (self.host_env.clone(), plan.clone());
        let prepare = move || {
            host_env::make_folders(&plan)?;
            make_overlay(&plan, &args::of(&host_env, &plan)?)
        };
        tokio::task::spawn_blocking(prepare).await.map_err(Error::lost_task)?
    }

    async fn launch(&self, plan: &MachinePlan) -> Result<LaunchedMachine, Error> {
        let launched = launch::launch(self, plan).await?;
        self.host_env.begin_beside(&launched.handle, Vec::new());
        Ok(launched)
    }

    async fn reattach(&self, handle: &MachineHandle) -> Result<(), ReattachError> {
        handle.verify_process()?;
        self.host_env.begin_beside(handle, Vec::new());
        Ok(())
    }

    async fn watch(&self, handle: &MachineHandle) -> MachineExit {
        let mut exit = self.host_env.watch(handle).await;
        // Process 1 is not a child of the daemon; bubblewrap's outer half is, and ends with its
        // status.
        if let Some(outer) = handle.helpers.first() {
            let ended = self.host_env.watcher.exited(*outer);
            let ended = tokio::time::timeout(launch::OUTER_WAIT, ended).await;
            if let Ok(ExitHow::Exited { code }) = ended {
                exit.how = match code {
                    129..=192 => ExitHow::Signaled { signal: code - 128 },
                    code => ExitHow::Exited { code },
                };
            }
        }
        exit
    }

    async fn power_down(&self, handle: &MachineHandle) -> Result<(), Error> {
        handle.verify_process()?;
        let pinned = Pinned::open(handle.process)?;
        let path = format!("/proc/{}", handle.process.pid);
        pinned.signal(rustix::process::Signal::TERM).map_err(Error::io("terminate", path.as_ref()))
    }

    async fn kill(&self, handle: &MachineHandle) -> Result<(), Error> {
        self.host_env.kill(handle).await
    }

    async fn halt(&self, handle: &MachineHandle) -> Result<(), Error> {
        freeze(handle, true).await
    }

    async fn go_on(&self, handle: &MachineHandle) -> Result<(), Error> {
        freeze(handle, false).await
    }

    async fn is_halted(&self, handle: &MachineHandle) -> Result<bool, Error> {
        Ok(cgroup::is_frozen(&handle.cgroup_dirs))
    }

    async fn release(&self, plan: &MachinePlan) -> Result<(), Error> {
        self.host_env.release(plan).await
    }

    async fn discard(&self, plan: &MachinePlan, logs: LogsOnDiscard) -> Result<(), Error> {
        self.host_env.discard(plan, logs).await
    }

    async fn usage(&self, handle: &MachineHandle) -> Result<MachineUsage, Error> {
        self.host_env.usage(handle).await
    }
}

async fn freeze(handle: &MachineHandle, still: bool) -> Result<(), Error> {
    handle.verify_process()?;
    let dirs = handle.cgroup_dirs.clone();
    let work = tokio::task::spawn_blocking(move || cgroup::freeze(&dirs, still));
    work.await.map_err(Error::lost_task)?
}

/// Folder of the overlay's upper and work folders, which share one file system and belong to the
/// machine's user.
fn overlay_dir(plan: &MachinePlan) -> PathBuf {
    plan.folders.disk_dir.join("overlay")
}

fn make_overlay(plan: &MachinePlan, user: &args::User) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;
    let overlay = overlay_dir(plan);
    let make = |dir: &Path, mode: u32| -> Result<(), Error> {
        match std::fs::create_dir(dir) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
            made => made.map_err(Error::io("make the folder", dir))?,
        }
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode))
            .map_err(Error::io("set the mode of", dir))?;
        if user.within.is_none() { host_env::give(dir, user.host) } else { Ok(()) }
    };
    make(&overlay, 0o700)?;
    if user.within.is_some() {
        // The launch gives it away with its content, from within the subordinate users' namespace.
        return Ok(());
    }
    // The upper folder becomes the guest's root.
    make(&overlay.join("upper"), 0o755)?;
    make(&overlay.join("work"), 0o700)
}

const COPIES: &str = ".hivekeep-trees";
const TREE: &str = "tree";
const SOURCE: &str = "source";
/// Name of a copy in the making; not a possible key.
const FRESH: &str = ".new";

/// Returns this user's copy; makes it if it is missing. Blocks for as long as copying takes. Each
/// user has one sandbox, so that no two callers make the same copy.
fn tree_of(users: &Subordinates, user: &Within, tree: &Path, disks: &Path) -> io::Result<PathBuf> {
    let own = disks.join(COPIES).join(user.id.to_string());
    let kept = own.join(&blake3::hash(tree.as_os_str().as_bytes()).to_hex()[..16]);
    if kept.exists() {
        return Ok(kept.join(TREE));
    }
    let fresh = own.join(FRESH);
    let folder = |path| DirBuilder::new().recursive(true).mode(0o700).create(path);
    folder(&own)?;
    remove_stale(users, &own)?;
    folder(&fresh)?;
    symlink(tree, fresh.join(SOURCE))?;
    let copy = fresh.join(TREE);
    users.run(Command::new("cp").args(["-a", "--reflink=auto", "--"]).arg(tree).arg(&copy))?;
    // Clears set-user-id of programs: only one user exists there, and it owns them.
    let owner = format!("{0}:{0}", user.id);
    users.run(Command::new("chown").args(["-hR", &owner, "--"]).arg(&copy))?;
    rustix::fs::syncfs(File::open(&own)?)?;
    hivekeep_fs::rename(&fresh, &kept)?;
    Ok(kept.join(TREE))
}

/// Removes incomplete copies that a crash left, and copies of trees that no longer exist.
fn remove_stale(users: &Subordinates, own: &Path) -> io::Result<()> {
    for entry in fs::read_dir(own)? {
        let entry = entry?;
        if entry.file_name() == FRESH || !entry.path().join(SOURCE).exists() {
            users.remove(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
