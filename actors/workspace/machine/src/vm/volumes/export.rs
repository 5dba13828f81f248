//! A folder of the host as the whole world of a process that serves it.
#![allow(unsafe_code)]

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use hivekeep_confine::idmap::user_namespace_of;
use hivekeep_confine::mounts::{done, mount, move_mount, view};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::options::MachineUser;
use crate::sandbox::SandboxIds;
use crate::sweep::TAG_VARIABLE;

/// Path at which the process finds the folder.
pub(super) const FOLDER: &str = "/run/volume";
/// virtiofsd keeps a descriptor for each file that its guest knows, which the guest's own memory
/// bounds. This is its own default, which it could not set itself.
const MAX_OPEN_FILES: u64 = 1_000_000;

/// Mount of a folder with an id map, and the user namespace that has the map.
pub(crate) struct Export {
    folder: CString,
    read_only: bool,
    /// Map of the mount.
    map: OwnedFd,
    /// The process's own; without one it is that of the map.
    namespace: Option<OwnedFd>,
    mark: OsString,
}

impl Export {
    /// Id of the machine's user in the user namespace.
    pub(crate) const ID_WITHIN: u32 = 0;

    /// Prepares the mount. The user is alone, or the first of its ids. Blocks for some system calls.
    pub(super) fn new(
        folder: &Path,
        read_only: bool,
        (user, ids): (MachineUser, Option<SandboxIds>),
        tag: &str,
    ) -> io::Result<Self> {
        let (map, namespace) = match ids {
            None => (user_namespace_of((0, 0), user.ids())?, None),
            Some(ids) => (ids.volume_namespace(user)?, Some(ids.servers_namespace(user)?)),
        };
        Ok(Self {
            folder: CString::new(folder.as_os_str().as_bytes())?,
            read_only,
            map,
            namespace,
            mark: format!("{TAG_VARIABLE}={tag}").into(),
        })
    }

    /// Variable of the environment that says whose the process is.
    pub(crate) fn mark(&self) -> &OsStr {
        &self.mark
    }

    /// Mounts and enters the user namespace. Makes system calls on data made before the fork; takes
    /// no lock, allocates nothing.
    pub(crate) fn enter(&self) -> io::Result<()> {
        // Where the kernel allows fewer, the process has what the daemon has.
        let limit = Rlimit { current: Some(MAX_OPEN_FILES), maximum: Some(MAX_OPEN_FILES) };
        let _ = setrlimit(Resource::Nofile, limit);
        // SAFETY: takes no pointers; the child has one thread.
        done(unsafe { libc::unshare(libc::CLONE_NEWNS) }.into())?;
        mount(None, c"/", None, libc::MS_REC | libc::MS_SLAVE)?;
        let folder = view(&self.folder, self.read_only, Some(self.map.as_raw_fd()))?;
        mount(Some(c"tmpfs"), c"/run", Some(c"tmpfs"), libc::MS_NOSUID | libc::MS_NODEV)?;
        // SAFETY: the paths are static C strings.
        unsafe {
            done(libc::chmod(c"/run".as_ptr(), 0o755).into())?;
            done(libc::mkdir(c"/run/volume".as_ptr(), 0o755).into())?;
        }
        move_mount(folder, c"/run/volume")?;
        let namespace = self.namespace.as_ref().unwrap_or(&self.map).as_raw_fd();
        // SAFETY: takes no pointers; the child has one thread.
        done(unsafe { libc::setns(namespace, libc::CLONE_NEWUSER) }.into())?;
        Ok(())
    }
}
