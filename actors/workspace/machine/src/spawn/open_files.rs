//! The limit of open files (`RLIMIT_NOFILE`): the daemon raises its own, a machine starts with the
//! one that the daemon was started with.
//!
//! The soft limit is 1024 almost everywhere, for the sake of programs that call select(2) or go
//! through all descriptors that they might have. The daemon does neither and has some open for each
//! client and machine. Programs that it starts may do both.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limit with which the daemon was started; empty as long as nothing was raised.
static FOUND: OnceLock<Rlimit> = OnceLock::new();

/// Raises this process's soft limit to the hard one; returns both earlier values. `None` is no
/// limit.
///
/// # Errors
/// As setrlimit(2).
pub fn raise_open_files() -> io::Result<[Option<u64>; 2]> {
    let found = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: found.maximum, ..found })?;
    let answer = [found.current, found.maximum];
    let _raised_before = FOUND.set(found);
    Ok(answer)
}

/// Restores the first limit. Runs between fork and exec: takes no lock and allocates nothing.
pub(super) fn lower() -> io::Result<()> {
    match FOUND.get() {
        Some(found) => Ok(setrlimit(Resource::Nofile, *found)?),
        None => Ok(()),
    }
}
