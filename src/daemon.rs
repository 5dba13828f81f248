//! The daemon: one process that holds the supervision tree and opens the doors.
//!
//! ```text
//! folders ─▶ lock ─▶ logging ─▶ journal ─▶ root ─▶ { journal, registry, sessions } ─▶ families
//!                                                                      ─▶ doors ─▶ READY
//! ```
//!
//! It stops in the opposite order: doors, running calls, the tree bottom-up, the
//! journal.

mod boot;
mod catalogue;
mod folders;
mod introspection;
mod logging;
mod open_doors;
mod people;
mod root;
mod service;
mod socket;

use hivekeep_config::DaemonFolders;

pub use boot::{Error, StopMode, run};
pub use folders::{DaemonLock, FolderError, LockError, LockHolder};
pub use logging::LoggingError;

/// Makes the folders and takes the lock of the one daemon, for a command that works on its state.
///
/// # Errors
/// When a daemon runs, or a folder does not belong to this user.
pub fn hold(folders: &DaemonFolders) -> Result<DaemonLock, Error> {
    folders::make(folders)?;
    Ok(DaemonLock::take(&folders.lock_file())?)
}

/// Exit code of a daemon whose state cannot be read. Starting it again changes
/// nothing, so the unit file tells systemd not to.
pub const EXIT_UNREADABLE_STATE: u8 = 3;
/// Exit code of a daemon that found another one running.
pub const EXIT_ALREADY_RUNNING: u8 = 4;
