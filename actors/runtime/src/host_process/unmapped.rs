//! Folders on file systems that map no ids, as tmpfs before Linux 6.3 and the overlays of containers: a program with
//! a user of its own sees them as they are.

use std::{
    collections::BTreeSet,
    fs::{self, Metadata},
    io,
    os::unix::fs::{MetadataExt, chown, lchown},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// Folders of the operator's of which it was told.
static TOLD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Gives a program's home to its user, with what the daemon has put at the top of it. Blocks.
///
/// # Errors
/// Of the kernel.
pub(super) fn give_home(home: &Path, was: &Metadata, uid: u32) -> io::Result<()> {
    if was.uid() == uid {
        return Ok(());
    }
    for entry in fs::read_dir(home)? {
        lchown(entry?.path(), Some(uid), Some(uid))?;
    }
    chown(home, Some(uid), Some(uid))
}

/// Tells once of a folder that a program's user may not use; what is there stays whose it is.
pub(super) fn tell(folder: &Path, is: &Metadata, read_only: bool, uid: u32) {
    let execute = u32::from(is.is_dir());
    let needed = if read_only { 4 | execute } else { 6 | execute };
    let usable = is.mode() & needed == needed || is.uid() == uid;
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if !usable && told.insert(folder.to_owned()) {
        tracing::warn!(
            folder = %folder.display(), uid,
            "the file system of this folder maps no ids, so a program sees it as a user that may not use it: \
             let that user by `chown`, or put the folder on ext4, xfs or btrfs",
        );
    }
}

#[cfg(test)]
pub(super) fn was_told(folder: &Path) -> bool {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner).contains(folder)
}
