//! Directory lock: one process at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use crate::Error;
use crate::error::IoContext;

/// Lock on the state directory. Taken before anything is read: the database's own lock comes too
/// late for the check at start-up.
#[derive(Debug)]
pub(crate) struct DirLock {
    file: File,
}

impl Drop for DirLock {
    /// Unlocks explicitly: a child process that is just being started has the file open too, and
    /// with it the lock, until it executes its own program.
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
