//! Starting a machine's program: own session, own user, no privileges, in its cgroup, with a given
//! set of descriptors and nothing else.
//!
//! The new process shares the daemon's memory until it executes the program, and the thread that
//! made it waits for that (`CLONE_VM`, `CLONE_VFORK`). [`std::process::Command`] would copy the
//! page tables of the whole daemon instead, which takes longer than the rest of a start and makes
//! every thread of the daemon fault its pages in anew. [`child`] has the creation of the process
//! and the steps in between.
//!
//! Where the machine has a user of its own the kernel makes the shared memory "not dumpable" when
//! the child switches to that user, so that no other process of that user may look into it. It
//! stays so: a daemon that has started a machine as another user leaves core dumps only where
//! `fs.suid_dumpable` asks for them.
//!
//! Descriptors keep their numbers in the child, but for the three standard streams.
//!
//! The soft limit of open files (`RLIMIT_NOFILE`) is 1024 almost everywhere, for the sake of programs that call
//! select(2) or go through all descriptors that they might have. The daemon does neither and has some open for each
//! client and machine, so it raises its own; a machine starts with the one that the daemon was started with.

mod child;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cgroup::Door;
use crate::handle::ProcessId;
use crate::options::MachineUser;
use crate::sandbox::Layout;
use crate::vm::Export;
use crate::{Error, ReattachError};
use child::Child;

/// Parameters of a program to be started.
pub(super) struct Spawn {
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    /// Descriptors that the child gets under the numbers they have here.
    pub(super) fds: Vec<OwnedFd>,
    /// Sockets among `fds` on which the child begins to listen, so that peers see its user.
    pub(super) listen: Vec<RawFd>,
    pub(super) user: MachineUser,
    /// Supplementary groups; set only where the user is switched.
    pub(super) groups: Vec<u32>,
    /// Groups that the child enters before anything else.
    pub(super) door: Door,
    /// Namespaces of the child's own, made or entered before it stops being root.
    pub(super) enclosure: Option<Enclosure>,
    pub(super) stdout: File,
    pub(super) stderr: File,
}

impl Spawn {
    /// Makes the process; blocks until it executes the program, or cannot.
    pub(super) fn start(self) -> Result<ProcessId, Error> {
        let program = self.program.clone();
        let null = Path::new("/dev/null");
        let stdin = File::open(null).map_err(Error::io("open", null))?;
        let pid = Child::new(self, stdin)
            .and_then(|child| child::give(&child))
            .map_err(Error::io("start", &program))?;
        ProcessId::of_pid(pid).map_err(|_| Error::Gone(ReattachError::Ended { pid }))
    }
}

/// Opens a log that the child appends to.
pub(super) fn append_log(path: &Path) -> Result<File, Error> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(Error::io("open", path))
}

/// Opens a file that the machine gets as a descriptor; returns its number too. One to write has `O_DIRECT` where
/// its file system supports that: QEMU 9.1 and later take no other for a file past the page cache, and earlier ones
/// set it themselves.
pub(super) fn open_for(path: &Path, write: bool) -> Result<(OwnedFd, RawFd), Error> {
    use std::os::unix::fs::OpenOptionsExt;
    let direct = if write && takes_direct(path) { libc::O_DIRECT } else { 0 };
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(direct)
        .open(path)
        .map_err(Error::io("open", path))?;
    let number = file.as_raw_fd();
    Ok((file.into(), number))
}

/// True if the file's file system supports `O_DIRECT`.
pub(super) fn takes_direct(path: &Path) -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).is_ok()
}

/// Refuses when `user` may not pass every folder above `path`.
pub(super) fn reachable(path: &Path, user: MachineUser) -> Result<(), Error> {
    use std::os::unix::fs::MetadataExt;
    if !user.switch {
        return Ok(());
    }
    for folder in path.ancestors().skip(1) {
        let meta = std::fs::metadata(folder).map_err(Error::io("look at", folder))?;
        let bit = match () {
            () if meta.uid() == user.uid => 0o100,
            () if meta.gid() == user.gid => 0o010,
            () => 0o001,
        };
        if meta.mode() & bit == 0 {
            return Err(Error::Unreachable {
                path: path.to_owned(),
                folder: folder.to_owned(),
                uid: user.uid,
            });
        }
    }
    Ok(())
}

/// Namespaces of a child's own.
pub(crate) enum Enclosure {
    /// Mounts of a sandbox.
    Sandbox(Layout),
    /// Single folder, for a server of files.
    Export(Export),
}

impl Enclosure {
    /// Makes and enters the namespaces. Runs between fork and exec: takes no lock and allocates nothing.
    fn enter(&self) -> io::Result<()> {
        match self {
            Self::Sandbox(layout) => layout.enter(),
            Self::Export(export) => export.enter(),
        }
    }

    /// Id of the machine's user in the namespace that is entered, for user and group alike.
    fn id_within(&self) -> Option<u32> {
        match self {
            Self::Sandbox(layout) => layout.id_within(),
            Self::Export(_) => Some(Export::ID_WITHIN),
        }
    }

    /// True if the program is root of the user namespace that is entered, and needs what that
    /// may. Outside of it, it may nothing.
    fn is_root_within(&self) -> bool {
        match self {
            Self::Sandbox(layout) => layout.is_root_within(),
            Self::Export(_) => true,
        }
    }

    /// Variable of the environment by which the program is known later.
    fn mark(&self) -> Option<&OsStr> {
        match self {
            Self::Sandbox(_) => None,
            Self::Export(export) => Some(export.mark()),
        }
    }
}

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
fn lower() -> io::Result<()> {
    match FOUND.get() {
        Some(found) => Ok(setrlimit(Resource::Nofile, *found)?),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
