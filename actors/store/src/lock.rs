//! One process at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use crate::Error;
use crate::error::Doing;

/// Holds the state directory. Taken before anything is looked at: the
/// database's own lock comes too late for the check at start-up.
#[derive(Debug)]
pub(crate) struct DirLock {
    file: File,
}

impl Drop for DirLock {
    /// Said aloud: a child process that is just being started holds the file as well, and with it
    /// the lock, until it runs its own program.
    fn drop(&mut self) {
        // Closing the file does the same unless there is such a child.
        let _ = self.file.unlock();
    }
}

impl DirLock {
    pub(crate) fn take(dir: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(dir.join("LOCK"))
            .doing("opening the lock file")?;
        match file.try_lock() {
            Ok(()) => Ok(DirLock { file }),
            Err(TryLockError::WouldBlock) => Err(Error::Locked { dir: dir.into() }),
            Err(TryLockError::Error(error)) => Err(Error::io("taking the lock", &error)),
        }
    }
}
