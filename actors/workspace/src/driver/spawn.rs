//! Starting a machine's program: own session, own user, no privileges, in its cgroup, with a given
//! set of descriptors and nothing else.
//!
//! Descriptors keep their numbers in the child. Giving them chosen numbers would close whatever the
//! child still needs at that number, such as the pipe by which a failed exec is told.
#![allow(unsafe_code)]

mod rebirth;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use command_fds::CommandFdExt;

use self::rebirth::Announce;
use super::cgroup::Door;
use super::handle::ProcessId;
use super::options::MachineUser;
use super::{Error, Gone};

/// Everything about a program to be started.
pub(super) struct Spawn {
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    /// Handed over under the numbers they have here.
    pub(super) fds: Vec<OwnedFd>,
    /// Those of `fds` that the child begins to listen on, so that peers see its user.
    pub(super) listen: Vec<RawFd>,
    pub(super) user: MachineUser,
    /// Supplementary groups; only given where the user is switched.
    pub(super) groups: Vec<u32>,
    /// The groups that the child enters before anything else.
    pub(super) door: Door,
    /// Mounted in a namespace of the child's own, before it stops being root.
    pub(super) layout: Option<super::sandbox::Layout>,
    pub(super) stdout: File,
    pub(super) stderr: File,
}

impl Spawn {
    /// Forks and executes; blocks until the exec succeeded or failed.
    pub(super) fn start(self) -> Result<ProcessId, Error> {
        let program = self.program.clone();
        let (announce, heard) = match self.door.unified {
            Some(_) => rebirth::announcement().map(|(say, hear)| (Some(say), Some(hear))),
            None => Ok((None, None)),
        }
        .map_err(Error::io("make a pipe for", &program))?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LANG", "C.UTF-8")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(self.stdout)
            .stderr(self.stderr)
            .preserved_fds(self.fds);
        let child = Child {
            listen: self.listen,
            user: self.user,
            groups: self.groups,
            door: self.door,
            rebirth: announce,
            layout: self.layout,
        };
        // SAFETY: `enter` makes system calls on data made before the fork; it takes no lock and
        // allocates nothing.
        unsafe { command.pre_exec(move || child.enter()) };
        let spawned = command.spawn();
        // With it goes this process's end of the announcement.
        drop(command);
        let reborn = heard.and_then(rebirth::Hear::pid);
        // The `Child` is dropped: the process is reaped through its pidfd.
        let pid = match (spawned, reborn) {
            (Ok(child), None) => child.id() as i32,
            (Ok(mut former), Some(pid)) => {
                former.wait().map_err(Error::io("start", &program))?;
                pid
            }
            (Err(error), reborn) => {
                reborn.into_iter().for_each(rebirth::reap);
                return Err(Error::io("start", &program)(error));
            }
        };
        ProcessId::of_pid(pid).map_err(|_| Error::Gone(Gone::Ended { pid }))
    }
}

/// What happens between fork and exec.
struct Child {
    listen: Vec<RawFd>,
    user: MachineUser,
    groups: Vec<u32>,
    door: Door,
    /// Set where the child may be born anew in its group.
    rebirth: Option<Announce>,
    layout: Option<super::sandbox::Layout>,
}

impl Child {
    fn enter(&self) -> io::Result<()> {
        if let (Some(group), Some(announce)) = (&self.door.unified, &self.rebirth)
            && !announce.born_in(&group.dir)
        {
            rustix::io::write(&group.procs, b"0")?;
        }
        for tasks in &self.door.tasks {
            rustix::io::write(tasks, b"0")?;
        }
        rustix::process::setsid()?;
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        if let Some(layout) = &self.layout {
            layout.enter()?;
        }
        if self.user.switch {
            self.switch_user()?;
        }
        // SAFETY: takes no pointers.
        check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
        for fd in &self.listen {
            // SAFETY: takes no pointers; a bad descriptor is an error.
            check(unsafe { libc::listen(*fd, 16) })?;
        }
        Ok(())
    }

    fn switch_user(&self) -> io::Result<()> {
        let mut capability = 0;
        // SAFETY: takes no pointers. Ends with EINVAL behind the kernel's last capability.
        while unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } == 0 {
            capability += 1;
        }
        // SAFETY: the pointer and length are those of a living vector of gid_t.
        check(unsafe { libc::setgroups(self.groups.len(), self.groups.as_ptr()) })?;
        let (uid, gid) = (self.user.uid, self.user.gid);
        // SAFETY: takes no pointers; the child has one thread.
        check(unsafe { libc::setresgid(gid, gid, gid) })?;
        // SAFETY: as above.
        check(unsafe { libc::setresuid(uid, uid, uid) })
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A log that the child appends to.
pub(super) fn append_log(path: &Path) -> Result<File, Error> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(Error::io("open", path))
}

/// Opens a file that the machine gets as a descriptor; returns also its number.
pub(super) fn open_for(path: &Path, write: bool) -> Result<(OwnedFd, RawFd), Error> {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(write)
        .open(path)
        .map_err(Error::io("open", path))?;
    let number = file.as_raw_fd();
    Ok((file.into(), number))
}

/// Whether the file's file system takes `O_DIRECT`.
pub(super) fn takes_direct(path: &Path) -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).is_ok()
}

/// Whether `user` may pass every folder above `path`.
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
