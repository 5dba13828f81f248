//! Durable file operations, which survive a power cut. All of them block.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

use super::{Error, Result};

/// Prefix of unfinished files; `sweep` removes them.
pub(super) const TEMP_PREFIX: &str = ".tmp-";

/// Temporary name beside `path`, so that a rename to it stays in one filesystem.
pub(super) fn temp_beside(path: &Path) -> PathBuf {
    path.with_file_name(format!("{TEMP_PREFIX}{}", Uuid::new_v4().simple()))
}

/// Makes the names in a folder durable.
pub(super) fn sync_dir(dir: &Path) -> Result<()> {
    hivekeep_fs::sync_folder(dir).map_err(Error::io("sync", dir))
}

/// Replaces `path` by a file with these bytes; after a crash it is the old file or the new one.
pub(super) fn write_durably(path: &Path, bytes: &[u8]) -> Result<()> {
    let temp = temp_beside(path);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temp)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .and_then(|()| hivekeep_fs::rename(&temp, path))
        .map_err(Error::io("write", path));
    if written.is_err() {
        // Best effort: the sweep at the next open removes it.
        let _ = fs::remove_file(&temp);
    }
    written
}

/// Removes unfinished files in `dir` that no living writer can still own (older than ten minutes;
/// writing one takes milliseconds).
pub(super) fn sweep(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let entry = entry.map_err(Error::io("list", dir))?;
        let stale = entry
            .metadata()
            .and_then(|meta| meta.modified())
            .is_ok_and(|at| at.elapsed().is_ok_and(|age| age > Duration::from_secs(600)));
        if stale && entry.file_name().as_encoded_bytes().starts_with(TEMP_PREFIX.as_bytes()) {
            fs::remove_file(entry.path()).map_err(Error::io("remove", entry.path()))?;
        }
    }
    Ok(())
}

/// True if something is mounted at or below `dir`; then nothing there may be removed.
pub(super) fn has_mounts(dir: &Path) -> Result<bool> {
    let table = "/proc/self/mountinfo";
    let text = fs::read_to_string(table).map_err(Error::io("read", table))?;
    Ok(text
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .any(|point| Path::new(&point.replace("\\040", " ")).starts_with(dir)))
}
