//! Garbage collection: folders, groups and processes that an earlier daemon left between an intent
//! and its record.
//!
//! Changes are limited to what is provably this daemon's: a folder that carries its mark, a cgroup
//! below its own base, a process whose command line or first environment (a sandbox's process 1, of
//! earlier daemons) has the tag of a machine in its run root. Anything else is left alone.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Error;
use crate::cgroup::programs;
use crate::folders;
use crate::handle::ProcessId;
use crate::host_env::HostEnv;
use crate::process;

/// Variable that carries the tag into a sandbox's environment.
pub(super) const TAG_VARIABLE: &str = "HIVEKEEP_MACHINE";
const TAG_PREFIX: &str = "hivekeep:";
/// Limit of the bytes read of a command line.
const CMDLINE_BYTES: u64 = 256 * 1024;
const KILL_WAIT: Duration = Duration::from_secs(10);

/// Leftover without a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leftover {
    /// Process of a machine or one of its helpers.
    Process {
        /// Process to be ended.
        process: ProcessId,
        /// Workspace, from the process's tag.
        workspace: String,
    },
    /// Marked folder in the run, disk or log root.
    Folder {
        /// Path of the folder.
        path: PathBuf,
    },
    /// Control groups of a machine.
    Cgroup {
        /// Name of the machine below this daemon's base.
        workspace: String,
    },
}

/// Collector with the roots of this daemon's machines.
#[derive(Debug, Clone)]
pub struct Sweeper {
    host_env: HostEnv,
    /// Parent of the run folders, absolute; decides which processes are this daemon's.
    run_root: PathBuf,
    /// Roots whose marked folders each belong to a record.
    roots: Vec<PathBuf>,
}

impl Sweeper {
    /// `roots` are further roots besides `run_root`: the disks', and the logs' if they are not to
    /// outlive their workspace.
    pub fn new(host_env: HostEnv, run_root: PathBuf, roots: &[PathBuf]) -> Self {
        let roots = std::iter::once(&run_root).chain(roots).cloned().collect();
        Self { host_env, run_root, roots }
    }

    /// Lists what no workspace of `known` accounts for, processes first. Changes nothing.
    ///
    /// Legal at start only, before anything is launched.
    pub async fn find(&self, known: &HashSet<String>) -> Result<Vec<Leftover>, Error> {
        let (sweeper, known) = (self.clone(), known.clone());
        let find = move || {
            let mut found = sweeper.processes(&known);
            let machines = sweeper.host_env.cgroups.machines().into_iter();
            let machines = machines.filter(|name| !programs::is_one(name));
            let unknown = machines.filter(|workspace| !known.contains(workspace));
            found.extend(unknown.map(|workspace| Leftover::Cgroup { workspace }));
            for root in &sweeper.roots {
                sweeper.folders(root, &known, &mut found)?;
            }
            Ok(found)
        };
        tokio::task::spawn_blocking(find).await.map_err(Error::lost_task)?
    }

    /// Removes one leftover; succeeds if it is gone already.
    pub async fn remove(&self, leftover: &Leftover) -> Result<(), Error> {
        match leftover.clone() {
            Leftover::Process { process, .. } => {
                self.host_env.watcher.kill(process, KILL_WAIT).await
            }
            Leftover::Cgroup { workspace } => {
                let cgroups = self.host_env.cgroups.clone();
                let remove = move || cgroups.remove(&workspace);
                tokio::task::spawn_blocking(remove).await.map_err(Error::lost_task)?
            }
            Leftover::Folder { path } => {
                let (trash, small) = (self.host_env.trash.clone(), self.is_run_dir(&path));
                // The start need not wait for a disk of many files.
                let remove = move || if small { folders::remove(&path) } else { trash.take(&path) };
                tokio::task::spawn_blocking(remove).await.map_err(Error::lost_task)?
            }
        }
    }

    /// Starts the removal of disks that an earlier daemon had moved aside. Does not wait.
    pub fn empty_trash(&self) {
        self.roots.iter().for_each(|root| self.host_env.trash.empty(root));
    }

    fn is_run_dir(&self, path: &Path) -> bool {
        path.parent() == Some(self.run_root.as_path())
    }

    /// Finds and removes every leftover; returns those removed, and those that could not be removed
    /// with the cause.
    pub async fn sweep(
        &self,
        known: &HashSet<String>,
    ) -> Result<(Vec<Leftover>, Vec<(Leftover, Error)>), Error> {
        let (mut removed, mut failed) = (Vec::new(), Vec::new());
        for leftover in self.find(known).await? {
            match self.remove(&leftover).await {
                Ok(()) => removed.push(leftover),
                Err(error) => failed.push((leftover, error)),
            }
        }
        Ok((removed, failed))
    }

    fn processes(&self, known: &HashSet<String>) -> Vec<Leftover> {
        let mut found = Vec::new();
        for pid in process::all_pids() {
            let Ok(process) = ProcessId::of_pid(pid) else { continue };
            let words = ["cmdline", "environ"].map(|file| read_words(pid, file));
            let ours = words.iter().flatten().find_map(|word| workspace_of(word, &self.run_root));
            match ours {
                Some(workspace) if !known.contains(&workspace) && pid != own_pid() => {
                    found.push(Leftover::Process { process, workspace });
                }
                _ => {}
            }
        }
        found
    }

    fn folders(
        &self,
        root: &Path,
        known: &HashSet<String>,
        found: &mut Vec<Leftover>,
    ) -> Result<(), Error> {
        let entries = match fs::read_dir(root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Error::io("list", root)(error)),
        };
        for entry in entries {
            let entry = entry.map_err(Error::io("list", root))?;
            let path = entry.path();
            let is_known = entry.file_name().to_str().is_some_and(|name| known.contains(name));
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_dir && !is_known && folders::owner(&path).is_some() {
                found.push(Leftover::Folder { path });
            }
        }
        Ok(())
    }
}

fn own_pid() -> i32 {
    std::process::id() as i32
}

/// Splits a file of `/proc/PID` whose words end with NUL.
fn read_words(pid: i32, file: &str) -> Vec<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let read = fs::File::open(format!("/proc/{pid}/{file}"))
        .and_then(|file| file.take(CMDLINE_BYTES).read_to_end(&mut bytes));
    if read.is_err() {
        return Vec::new();
    }
    bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Parses a tag (`hivekeep:UUID:RUN_ROOT/WORKSPACE`) of this run root; `None` for any other word.
fn workspace_of(word: &str, run_root: &Path) -> Option<String> {
    let tag = word
        .strip_prefix("guest=")
        .or_else(|| word.strip_prefix(TAG_VARIABLE)?.strip_prefix('='))
        .unwrap_or(word);
    let (uuid, run_dir) = tag.strip_prefix(TAG_PREFIX)?.split_once(':')?;
    uuid.parse::<uuid::Uuid>().ok()?;
    let run_dir = PathBuf::from(run_dir.replace(",,", ","));
    if run_dir.parent()? != run_root {
        return None;
    }
    Some(run_dir.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests;
