//! The three folders of a workspace: for the time it runs, for its disk, and for its logs.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hivekeep_trees::remove_tree;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::plan::Plan;
use super::{Error, console};

/// Says whose folder it is; only a folder that holds it is ever removed. A link to the machine's
/// uuid: made whole or not at all, also where the host crashes. Earlier daemons made a file.
const MARKER: &str = ".hivekeep-machine";
/// How much of a log is read back at most.
const LOG_READ_BYTES: u64 = 2 * console::KEEP_BYTES;

/// Each is named after the workspace and stands in a root that holds nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folders {
    /// Sockets; gone with the machine.
    pub run_dir: PathBuf,
    /// The overlay; gone with the workspace.
    pub disk_dir: PathBuf,
    /// Console and stderr; may outlive both.
    pub log_dir: PathBuf,
}

/// Whether discarding a workspace takes its logs too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogsOnDiscard {
    /// A failed creation can still be looked into.
    Keep,
    /// Nothing stays.
    Remove,
}

/// What was kept of a machine's output, oldest first, at most 2 MiB each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Logs {
    /// What the guest printed on its console.
    pub console: String,
    /// What the machine's program itself complained of.
    pub stderr: String,
}

impl Folders {
    /// QEMU's control socket.
    pub fn qmp(&self) -> PathBuf {
        self.run_dir.join("qmp")
    }
    /// The console's socket.
    pub(super) fn console_socket(&self) -> PathBuf {
        self.run_dir.join("console")
    }
    /// A sandbox's console: a FIFO.
    pub(super) fn console_pipe(&self) -> PathBuf {
        self.run_dir.join("console.fifo")
    }
    /// The link's socket (virtio-serial, sandbox).
    pub(super) fn link_socket(&self) -> PathBuf {
        self.run_dir.join("link")
    }
    /// Belongs to the machine's user, for `vhost-device-vsock` makes its sockets itself.
    pub(super) fn vsock_dir(&self) -> PathBuf {
        self.run_dir.join("vsock")
    }
    /// The VM's overlay.
    pub fn disk(&self) -> PathBuf {
        self.disk_dir.join("disk.qcow2")
    }
    /// The console's rolling log.
    pub fn console_log(&self) -> PathBuf {
        self.log_dir.join("console.log")
    }
    /// The program's stderr.
    pub fn stderr_log(&self) -> PathBuf {
        self.log_dir.join("stderr.log")
    }
}

/// Makes the folder where it is missing, and marks it as this plan's.
pub(super) fn make(dir: &Path, mode: u32, plan: &Plan) -> Result<(), Error> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(dir)
        .map_err(Error::io("make the folder", dir))?;
    fs::set_permissions(dir, fs::Permissions::from_mode(mode))
        .map_err(Error::io("set the mode of", dir))?;
    if owner(dir) == Some(plan.uuid) {
        return Ok(());
    }
    let marker = dir.join(MARKER);
    gone_is_fine(fs::remove_file(&marker))
        .and_then(|()| std::os::unix::fs::symlink(plan.uuid.to_string(), &marker))
        .map_err(Error::io("mark", &marker))
}

/// The machine that a folder belongs to; `None` if it is not a machine's folder.
pub(super) fn owner(dir: &Path) -> Option<Uuid> {
    let marker = dir.join(MARKER);
    if let Ok(uuid) = fs::read_link(&marker) {
        return uuid.to_str()?.parse().ok();
    }
    let mut text = String::new();
    fs::File::open(marker).ok()?.take(64).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Removes a marked folder with all it holds; nothing if it is not there. Links are not followed.
/// The marker goes last, so that an interrupted removal can be taken up again.
pub(super) fn remove(dir: &Path) -> Result<(), Error> {
    if !dir.exists() {
        return Ok(());
    }
    if owner(dir).is_none() {
        // Made, and not marked yet when the daemon ended.
        if fs::remove_dir(dir).is_ok() {
            return Ok(());
        }
        return Err(Error::BadPlan(format!("{} is not a machine's folder", dir.display())));
    }
    for entry in fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let entry = entry.map_err(Error::io("list", dir))?;
        if entry.file_name() == MARKER {
            continue;
        }
        let path = entry.path();
        remove_tree(&path).map_err(Error::io("remove", &path))?;
    }
    remove_tree(dir).map_err(Error::io("remove", dir))
}

/// The last `limit` bytes of a file; empty if it is not there. Invalid UTF-8 is replaced.
pub(super) fn tail(path: &Path, limit: u64) -> io::Result<String> {
    let mut file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(limit)))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The end of the machine's stderr for an error message, at most 4 KiB.
pub(super) fn stderr_tail(folders: &Folders) -> String {
    tail(&folders.stderr_log(), 4096).unwrap_or_default().trim().to_owned()
}

pub(super) async fn read_logs(folders: &Folders) -> Result<Logs, Error> {
    let folders = folders.clone();
    let read = move || {
        let both = |log: PathBuf| {
            let older =
                tail(&console::older(&log), LOG_READ_BYTES / 2).map_err(Error::io("read", &log))?;
            let newer = tail(&log, LOG_READ_BYTES / 2).map_err(Error::io("read", &log))?;
            Ok::<_, Error>(older + &newer)
        };
        Ok(Logs { console: both(folders.console_log())?, stderr: both(folders.stderr_log())? })
    };
    tokio::task::spawn_blocking(read).await.map_err(Error::lost_task)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    #[test]
    fn a_folder_is_known_by_its_mark_old_or_new() {
        let root = tempfile::tempdir().unwrap();
        let (plan, dir) = (fake::plan("ws_a", root.path()), root.path().join("deep/ws_a"));
        make(&dir, 0o700, &plan).unwrap();
        make(&dir, 0o711, &plan).unwrap();
        assert_eq!(owner(&dir), Some(plan.uuid));
        fs::remove_file(dir.join(MARKER)).unwrap();
        fs::write(dir.join(MARKER), format!("{}\n", plan.uuid)).unwrap();
        assert_eq!(owner(&dir), Some(plan.uuid));
        fs::write(dir.join(MARKER), Uuid::new_v4().to_string()).unwrap();
        make(&dir, 0o700, &plan).unwrap();
        assert_eq!(owner(&dir), Some(plan.uuid), "another machine's mark stays");
        fs::write(dir.join("file"), "x").unwrap();
        remove(&dir).unwrap();
        assert!(!dir.exists());
    }

    #[test]
    fn only_an_empty_folder_is_removed_without_a_mark() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("ws_a");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("somebodys"), "x").unwrap();
        assert!(remove(&dir).is_err());
        fs::remove_file(dir.join("somebodys")).unwrap();
        remove(&dir).unwrap();
        assert!(!dir.exists());
    }
}
