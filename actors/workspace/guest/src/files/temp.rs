//! Replacing a file as a whole: new content is written to a temporary file beside
//! it, synced, and renamed over it.
//!
//! A note of each temporary file is kept in the run folder (a symlink, so that it
//! is made in one step), by which the next daemon removes what a killed one left.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use hivekeep_protocol::{GuestCode, GuestError};

use super::{append::Appending, io_error, path};

pub(crate) const PREFIX: &str = ".hivekeep-";
const NEW_FILE_MODE: u32 = 0o644;

/// A file on its way to replace another. Dropping it leaves the old one.
#[derive(Debug)]
pub struct FileReplacement {
    file: Appending,
    temp: PathBuf,
    note: PathBuf,
    target: PathBuf,
    old: Option<Metadata>,
    new_dirs: Vec<PathBuf>,
}

/// What [`FileReplacement::commit`] did.
#[derive(Debug, Clone, Copy)]
pub struct ReplacedFile {
    /// There was a file before.
    pub existed: bool,
    /// Permission bits it now has.
    pub mode: u32,
}

impl FileReplacement {
    /// Begins to replace `target`, whose missing parents are made. `expected_bytes`
    /// are reserved on the disk, so that a full one is noticed first.
    ///
    /// # Errors
    /// `IsADirectory`, `Invalid` for a target that is no file, `NoSpace`, or as open(2).
    pub fn begin(target: &Path, expected_bytes: u64, run_dir: &Path) -> Result<Self, GuestError> {
        let name = target.to_string_lossy().into_owned();
        let failed = |error: io::Error| io_error(&error, &name);
        let target = path::through_links(target.to_path_buf()).map_err(failed)?;
        let old = match std::fs::symlink_metadata(&target) {
            Ok(meta) => Some(meta),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        if let Some(meta) = &old {
            path::regular(meta, &name)?;
        }
        let no_name = || GuestError::new(GuestCode::Invalid, format!("{name}: names no file"));
        if target.file_name().is_none() || name.ends_with('/') {
            return Err(no_name());
        }
        let parent = target.parent().ok_or_else(no_name)?;
        let new_dirs = make_parents(parent).map_err(failed)?;
        let (temp, note) = fresh_names(parent, run_dir);
        let _ = std::fs::create_dir_all(run_dir.join("temps"));
        std::os::unix::fs::symlink(&temp, &note).map_err(failed)?;
        let file = File::options().write(true).create_new(true).mode(0o600).open(&temp);
        let file = file.map_err(|error| {
            let _ = std::fs::remove_file(&note);
            failed(error)
        })?;
        let file = Appending::new(file, expected_bytes);
        let this = Self { file, temp, note, target, old, new_dirs };
        reserve(this.file.file(), expected_bytes).map_err(failed)?;
        Ok(this)
    }

    /// Appends.
    ///
    /// # Errors
    /// As write(2).
    pub fn append(&mut self, contents: &[&[u8]]) -> io::Result<()> {
        self.file.append(contents)
    }

    /// Makes it durable under the target's name. Owner and mode stay as they were
    /// unless `mode` says otherwise.
    ///
    /// # Errors
    /// As fsync(2) and rename(2); the old file is then still there.
    pub fn commit(self, mode: Option<u32>) -> io::Result<ReplacedFile> {
        let kept = self.old.as_ref().map_or(NEW_FILE_MODE, |old| old.mode() & 0o7777);
        let mode = mode.map_or(kept, |mode| mode & 0o7777);
        let file = self.file.file();
        if let Some(old) = &self.old {
            std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()?;
        std::fs::rename(&self.temp, &self.target)?;
        for dir in &self.new_dirs {
            sync_parent(dir)?;
        }
        sync_parent(&self.target)?;
        Ok(ReplacedFile { existed: self.old.is_some(), mode })
    }
}

impl Drop for FileReplacement {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.temp);
        let _ = std::fs::remove_file(&self.note);
    }
}

fn fresh_names(parent: &Path, run_dir: &Path) -> (PathBuf, PathBuf) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let name = format!("{PREFIX}{}-{}-{number}", std::process::id(), now.tv_sec);
    (parent.join(&name), run_dir.join("temps").join(name))
}

/// Makes missing directories; returns them, the outermost first.
fn make_parents(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let missing: Vec<PathBuf> =
        dir.ancestors().take_while(|dir| !dir.exists()).map(Path::to_path_buf).collect();
    std::fs::create_dir_all(dir)?;
    Ok(missing.into_iter().rev().collect())
}

/// Makes a directory entry durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    File::open(parent)?.sync_all()
}

fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    if bytes < 1024 * 1024 {
        return Ok(());
    }
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes temporary files that a killed daemon left.
pub fn sweep(run_dir: &Path) {
    for note in std::fs::read_dir(run_dir.join("temps")).into_iter().flatten().flatten() {
        if let Ok(temp) = std::fs::read_link(note.path()) {
            let ours = temp.file_name().is_some_and(|n| n.to_string_lossy().starts_with(PREFIX));
            if ours && std::fs::remove_file(&temp).is_ok() {
                crate::say!("removed the unfinished {}", temp.display());
            }
        }
        let _ = std::fs::remove_file(note.path());
    }
}
