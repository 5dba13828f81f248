//! The three folders of a workspace: for the time it runs, for its disk, and for its logs.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::plan::Plan;
use super::{Error, console};

/// Says whose folder it is; only a folder that holds it is ever removed.
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
    let marker = dir.join(MARKER);
    if owner(dir) != Some(plan.uuid) {
        let written = fs::File::create(&marker).and_then(|mut file| {
            writeln!(file, "{}", plan.uuid)?;
            file.sync_all()
        });
        written.map_err(Error::io("mark", &marker))?;
    }
    Ok(())
}

/// The machine that a folder belongs to; `None` if it is not a machine's folder.
pub(super) fn owner(dir: &Path) -> Option<Uuid> {
    let mut text = String::new();
    fs::File::open(dir.join(MARKER)).ok()?.take(64).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Removes a marked folder with all it holds; nothing if it is not there. Links are not followed.
/// The marker goes last, so that an interrupted removal can be taken up again.
pub(super) fn remove(dir: &Path) -> Result<(), Error> {
    if !dir.exists() {
        return Ok(());
    }
    if owner(dir).is_none() {
        return Err(Error::BadPlan(format!("{} is not a machine's folder", dir.display())));
    }
    let gone_is_fine = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    for entry in fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let entry = entry.map_err(Error::io("list", dir))?;
        if entry.file_name() == MARKER {
            continue;
        }
        let path = entry.path();
        let is_dir = entry.file_type().map_err(Error::io("look at", &path))?.is_dir();
        let removed = if is_dir { remove_tree(&path) } else { fs::remove_file(&path) };
        gone_is_fine(removed).map_err(Error::io("remove", &path))?;
    }
    gone_is_fine(fs::remove_dir_all(dir)).map_err(Error::io("remove", dir))
}

/// Removes a tree, also one with folders that deny their owner to enter: overlayfs keeps one, and a
/// guest can make any.
fn remove_tree(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(dir, 0)?;
            fs::remove_dir_all(dir)
        }
        other => other,
    }
}

fn open_up(dir: &Path, depth: usize) -> io::Result<()> {
    if depth > 512 {
        return Err(io::Error::other("too many nested folders"));
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path(), depth + 1)?;
        }
    }
    Ok(())
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
