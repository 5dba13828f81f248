//! Folders of a workspace: one for the time it runs, one for its disk, and one for its logs; and the Unix sockets that
//! are bound in the first and served by the machine.
//!
//! A socket is bound before the machine starts and handed over as a descriptor, so the machine needs no right to the run
//! folder. It begins to listen in the child after the user was switched: SO_PEERCRED then names the machine's user, and
//! a connection attempt after the spawn is queued instead of refused.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hivekeep_fs::remove_tree;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Error;
use crate::console;
use crate::plan::MachinePlan;

/// Name of the marker that says whose folder it is; only a marked folder is ever removed. A
/// symbolic link to the machine's uuid, which is made atomically even if the host crashes. Earlier
/// daemons made a file.
const MARKER: &str = ".hivekeep-machine";
/// Maximum number of bytes of a log that are read back.
const LOG_READ_BYTES: u64 = 2 * console::KEEP_BYTES;

/// Folders of one workspace. Each is named after the workspace and lies in a root that contains
/// nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFolders {
    /// Folder of sockets; removed with the machine.
    pub run_dir: PathBuf,
    /// Folder of the overlay; removed with the workspace.
    pub disk_dir: PathBuf,
    /// Folder of console and stderr; may outlive both.
    pub log_dir: PathBuf,
}

/// Fate of the logs when a workspace is discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogsOnDiscard {
    /// Keep them, so that a failed creation can be examined.
    Keep,
    /// Remove them.
    Remove,
}

/// Kept output of a machine, oldest first, at most 2 MiB each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MachineLogs {
    /// Output of the guest's console.
    pub console: String,
    /// Error output of the machine's program.
    pub stderr: String,
}

impl MachineFolders {
    /// Path of QEMU's control socket.
    pub fn qmp(&self) -> PathBuf {
        self.run_dir.join("qmp")
    }
    /// Path of the console's socket.
    pub(super) fn console_socket(&self) -> PathBuf {
        self.run_dir.join("console")
    }
    /// Path of a sandbox's console, a FIFO.
    pub(super) fn console_pipe(&self) -> PathBuf {
        self.run_dir.join("console.fifo")
    }
    /// Path of the link's socket (virtio-serial, sandbox).
    pub(super) fn link_socket(&self) -> PathBuf {
        self.run_dir.join("link")
    }
    /// Folder of the vsock sockets. Belongs to the machine's user, because `vhost-device-vsock`
    /// makes its sockets itself.
    pub(super) fn vsock_dir(&self) -> PathBuf {
        self.run_dir.join("vsock")
    }
    /// Path of the socket by which a volume's server is reached, for as long as that takes.
    pub(super) fn volume_socket(&self) -> PathBuf {
        self.run_dir.join("volume")
    }
    /// Path of the VM's overlay.
    pub fn disk(&self) -> PathBuf {
        self.disk_dir.join("disk.qcow2")
    }
    /// Path of the console's rolling log.
    pub fn console_log(&self) -> PathBuf {
        self.log_dir.join("console.log")
    }
    /// Path of the program's stderr.
    pub fn stderr_log(&self) -> PathBuf {
        self.log_dir.join("stderr.log")
    }
}

/// Makes the folder if it is missing, and marks it as this plan's.
pub(super) fn make(dir: &Path, mode: u32, plan: &MachinePlan) -> Result<(), Error> {
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

/// Machine that a folder belongs to; `None` if it is not a machine's folder.
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

/// Removes a marked folder with its contents; success if it does not exist. Links are not followed.
/// The marker is removed last, so that an interrupted removal can be resumed.
pub(super) fn remove(dir: &Path) -> Result<(), Error> {
    if !dir.exists() {
        return Ok(());
    }
    if owner(dir).is_none() {
        // The folder was made, and not marked yet when the daemon ended.
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

/// Last `limit` bytes of a file; empty if it does not exist. Invalid UTF-8 is replaced.
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

/// End of the machine's stderr for an error message, at most 4 KiB.
pub(super) fn stderr_tail(folders: &MachineFolders) -> String {
    tail(&folders.stderr_log(), 4096).unwrap_or_default().trim().to_owned()
}

pub(super) async fn read_logs(folders: &MachineFolders) -> Result<MachineLogs, Error> {
    let folders = folders.clone();
    let read = move || {
        let both = |log: PathBuf| {
            let older =
                tail(&console::older(&log), LOG_READ_BYTES / 2).map_err(Error::io("read", &log))?;
            let newer = tail(&log, LOG_READ_BYTES / 2).map_err(Error::io("read", &log))?;
            Ok::<_, Error>(older + &newer)
        };
        Ok(MachineLogs {
            console: both(folders.console_log())?,
            stderr: both(folders.stderr_log())?,
        })
    };
    tokio::task::spawn_blocking(read).await.map_err(Error::lost_task)?
}

/// Binds a stream socket that only the daemon's user may connect to. Replaces a stale one.
pub(super) fn bind(path: &Path) -> Result<OwnedFd, Error> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io("remove the stale socket", path)(error));
        }
        _ => {}
    }
    let bound = || -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(socket)
    };
    bound().map_err(Error::io("bind", path))
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
