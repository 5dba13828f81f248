//! Host environment shared by both drivers: watching, killing and cleaning up.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hivekeep_kernel::lock;
use tokio::task::AbortHandle;

use crate::cgroup::programs::ProgramGroups;
use crate::cgroup::{self, Cgroups};
use crate::console;
use crate::exit::MachineExit;
use crate::folders::{self, MachineFolders};
use crate::handle::{MachineHandle, ProcessId};
use crate::options::{MachineUser, Options};
use crate::process::{self, Pinned, Watcher};
use crate::sandbox::{SandboxIds, Subordinates};
use crate::trash::Trash;
use crate::{Error, LogsOnDiscard, MachinePlan, MachineUsage};

/// Maximum time for a killed process to vanish.
const KILL_WAIT: Duration = Duration::from_secs(10);
/// Maximum time for a helper to end by itself after its machine.
const HELPER_WAIT: Duration = Duration::from_secs(2);

/// Environment of one daemon's drivers. Cheap to clone; all clones share one.
#[derive(Debug, Clone)]
pub struct HostEnv {
    pub(super) options: Options,
    pub(super) cgroups: Cgroups,
    pub(super) watcher: Watcher,
    pub(super) trash: Trash,
    /// Users that an unprivileged daemon may give to sandboxes, or the reason why it has none.
    pub(super) subordinates: Result<Subordinates, String>,
    /// Ids of the host for the users of sandboxes, or the reason why there are none.
    pub(super) sandbox_ids: Result<SandboxIds, String>,
    /// Tasks beside a running machine, by workspace; behind a plain mutex never held across an
    /// await.
    beside: Arc<Mutex<HashMap<String, Beside>>>,
}

/// Tasks and processes of a running machine.
#[derive(Debug)]
struct Beside {
    tasks: Vec<AbortHandle>,
    processes: Vec<ProcessId>,
    /// Why this daemon ended the machine without being asked to.
    ended_for: Option<String>,
}

impl HostEnv {
    /// Finds the host's cgroups. `run_root` is the folder of all run folders: it distinguishes this
    /// daemon's cgroups from another's. Blocks for some file system calls, and for some short
    /// programs where the daemon is not root. Legal before any machine is started.
    pub fn open(options: Options, run_root: &Path) -> Self {
        let cgroups = Cgroups::detect(&tag(run_root));
        let subordinates = Subordinates::find(options.machine_uid_count);
        let sandbox_ids = SandboxIds::find(&options);
        let trash = Trash::of(subordinates.clone().ok());
        let (watcher, beside) = (Watcher::default(), Arc::default());
        Self { options, cgroups, watcher, trash, subordinates, sandbox_ids, beside }
    }

    /// Groups for programs of the host that are no machines; what an earlier daemon left of them is
    /// killed and removed. Blocks. Legal once, before any is made.
    ///
    /// # Errors
    /// Why there are none.
    pub fn program_groups(&self) -> Result<ProgramGroups, String> {
        ProgramGroups::of(&self.cgroups)
    }

    /// Removes the daemon's cgroup folders that hold no machine. Legal at the very end of a
    /// graceful stop.
    pub fn leave(&self) {
        self.cgroups.leave();
    }

    /// Fails when limits are required and the host lacks a controller. Starts nothing.
    pub(super) fn check_limits(&self) -> Result<(), Error> {
        match self.cgroups.missing() {
            Some((what, why)) if self.options.cgroup_required => {
                Err(Error::LimitsUnavailable { what, why: why.to_owned() })
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn watch(&self, handle: &MachineHandle) -> MachineExit {
        let how = if handle.boot_id == super::handle::boot_id() {
            self.watcher.exited(handle.process).await
        } else {
            super::ExitHow::Unknown
        };
        let folders = handle.folders.clone();
        let tail = tokio::task::spawn_blocking(move || folders::stderr_tail(&folders)).await;
        let mut stderr_tail = tail.unwrap_or_default();
        let beside = lock(&self.beside);
        // The last word: what its helpers still said is of no interest then.
        if let Some(why) =
            beside.get(&handle.workspace).and_then(|beside| beside.ended_for.as_ref())
        {
            stderr_tail.push('\n');
            stderr_tail.push_str(why);
        }
        drop(beside);
        MachineExit { how, at: chrono::Utc::now(), stderr_tail }
    }

    /// Kills the machine, then its helpers, then whatever is left in its cgroup.
    pub(super) async fn kill(&self, handle: &MachineHandle) -> Result<(), Error> {
        // After a reboot of the host the same pid and start time may belong to another process.
        if handle.boot_id != super::handle::boot_id() {
            return Ok(());
        }
        self.watcher.kill(handle.process, KILL_WAIT).await?;
        for helper in &handle.helpers {
            // Bubblewrap's outer half is the parent of process 1: it reaps it and ends by itself.
            if handle.isolation == super::Isolation::Sandbox {
                let ended = self.watcher.exited(*helper);
                let _ = tokio::time::timeout(HELPER_WAIT, ended).await;
            }
            self.watcher.kill(*helper, KILL_WAIT).await?;
        }
        let dirs = handle.cgroup_dirs.clone();
        let kill = move || dirs.iter().for_each(|dir| cgroup::kill_all(dir));
        tokio::task::spawn_blocking(kill).await.map_err(Error::lost_task)
    }

    /// Starts the tasks that run as long as the machine: the trimming of its logs and what the
    /// driver adds. Replaces those of an earlier call.
    pub(super) fn begin_beside(&self, handle: &MachineHandle, tasks: Vec<AbortHandle>) {
        self.watcher.watch(handle.process);
        for helper in &handle.helpers {
            self.watcher.watch(*helper);
        }
        let (mut logs, mut tasks) = (vec![handle.folders.stderr_log()], tasks);
        if handle.isolation == super::Isolation::Sandbox {
            let (pipe, log) = (handle.folders.console_pipe(), handle.folders.console_log());
            match pipe.exists() {
                true => tasks.push(tokio::spawn(console::drain_pipe(pipe, log)).abort_handle()),
                // Started by a daemon that had it append to the log itself.
                false => logs.push(log),
            }
        }
        tasks.push(tokio::spawn(console::keep_trimmed(logs)).abort_handle());
        let mut beside = lock(&self.beside);
        let processes = std::iter::once(&handle.process).chain(&handle.helpers).copied().collect();
        let earlier =
            beside.insert(handle.workspace.clone(), Beside { tasks, processes, ended_for: None });
        drop(beside);
        earlier.into_iter().flat_map(|earlier| earlier.tasks).for_each(|task| task.abort());
    }

    /// Notes why a machine is about to be ended.
    pub(super) fn ends_for(&self, workspace: &str, why: String) {
        let mut beside = lock(&self.beside);
        if let Some(beside) = beside.get_mut(workspace) {
            beside.ended_for = Some(why);
        }
    }

    pub(super) fn end_beside(&self, workspace: &str) {
        let mut beside = lock(&self.beside);
        let ended = beside.remove(workspace);
        drop(beside);
        if let Some(Beside { tasks, processes, .. }) = ended {
            tasks.iter().for_each(AbortHandle::abort);
            processes.into_iter().for_each(|process| self.watcher.forget(process));
        }
    }

    pub(super) async fn release(&self, plan: &MachinePlan) -> Result<(), Error> {
        self.end_beside(&plan.workspace);
        let (cgroups, plan) = (self.cgroups.clone(), plan.clone());
        let release = move || {
            cgroups.remove(&plan.workspace)?;
            let (pipe, log) = (plan.folders.console_pipe(), plan.folders.console_log());
            if pipe.exists()
                && let Err(error) = console::drain_rest(&pipe, &log)
            {
                tracing::warn!(log = %log.display(), %error, "console log");
            }
            folders::remove(&plan.folders.run_dir)
        };
        tokio::task::spawn_blocking(release).await.map_err(Error::lost_task)?
    }

    pub(super) async fn discard(
        &self,
        plan: &MachinePlan,
        logs: LogsOnDiscard,
    ) -> Result<(), Error> {
        self.release(plan).await?;
        let MachineFolders { disk_dir, log_dir, .. } = plan.folders.clone();
        let trash = self.trash.clone();
        let discard = move || {
            trash.take(&disk_dir)?;
            if logs == LogsOnDiscard::Remove { folders::remove(&log_dir) } else { Ok(()) }
        };
        tokio::task::spawn_blocking(discard).await.map_err(Error::lost_task)?
    }

    pub(super) async fn usage(&self, handle: &MachineHandle) -> Result<MachineUsage, Error> {
        handle.verify_process()?;
        let handle = handle.clone();
        let measure = move || MachineUsage::of(&process::processes(&handle));
        tokio::task::spawn_blocking(measure).await.map_err(Error::lost_task)
    }
}

/// Makes the folders of a plan. The machine's user may enter the run and disk folders, because it
/// must reach their contents; the logs are the daemon's alone.
pub(super) fn make_folders(plan: &MachinePlan) -> Result<(), Error> {
    folders::make(&plan.folders.run_dir, 0o711, plan)?;
    folders::make(&plan.folders.disk_dir, 0o711, plan)?;
    folders::make(&plan.folders.log_dir, 0o700, plan)
}

/// Gives a path to the machine's user.
pub(super) fn give(path: &Path, user: MachineUser) -> Result<(), Error> {
    if user.switch {
        std::os::unix::fs::lchown(path, Some(user.uid), Some(user.gid))
            .map_err(Error::io("give away", path))?;
    }
    Ok(())
}

/// Eight hex digits for a run root.
pub(super) fn tag(run_root: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    blake3::hash(run_root.as_os_str().as_bytes()).to_hex()[..8].to_owned()
}

/// Drop guard of processes that were started but belong to no handle yet. Dropped without
/// [`Newborn::keep`], as when a launch fails or is cancelled, it kills them and removes their
/// cgroup.
pub(super) struct Newborn {
    host_env: HostEnv,
    workspace: String,
    processes: Vec<ProcessId>,
}

impl Newborn {
    pub(super) fn new(host_env: &HostEnv, workspace: &str) -> Self {
        Self { host_env: host_env.clone(), workspace: workspace.to_owned(), processes: Vec::new() }
    }

    pub(super) fn add(&mut self, process: ProcessId) {
        self.processes.push(process);
    }

    /// Releases the processes: the machine is up and belongs to its handle.
    pub(super) fn keep(mut self) {
        self.processes.clear();
        self.workspace.clear();
    }
}

impl Drop for Newborn {
    fn drop(&mut self) {
        if self.workspace.is_empty() {
            return;
        }
        for process in &self.processes {
            // Watched, so that they are reaped.
            if tokio::runtime::Handle::try_current().is_ok() {
                self.host_env.watcher.watch(*process);
            }
            if let Ok(pinned) = Pinned::open(*process) {
                let _ = pinned.signal(rustix::process::Signal::KILL);
            }
        }
        self.host_env.cgroups.remove_aside(self.workspace.clone());
    }
}
