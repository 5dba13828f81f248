//! Steps of a machine's process before it executes its program.
//!
//! The process shares the daemon's memory meanwhile, and one thread of the daemon waits for it. So
//! it makes system calls on data prepared before, allocates nothing and takes no lock. The C
//! library's `setuid` and its relatives are not used either: those have every thread of the process
//! switch, and the threads that they would find are the daemon's.
#![allow(unsafe_code)]

use std::ffi::{CString, OsStr, c_char, c_int, c_long};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::ptr::null;

use super::{Enclosure, Spawn};
use crate::spawn;

/// Environment of a machine's program, complete.
const ENVIRONMENT: [&str; 2] =
    ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"];
/// Highest signal number.
const MAX_SIGNAL: c_int = 64;

/// Data prepared for the child, which only reads it.
pub(super) struct Child {
    pub(super) spawn: Spawn,
    stdin: File,
    program: CString,
    args: Strings,
    environment: Strings,
}

/// Strings as execve(2) takes them.
struct Strings {
    pointers: Vec<*const c_char>,
    /// Storage that `pointers` point to.
    _strings: Vec<CString>,
}

impl Strings {
    fn new<'s>(strings: impl Iterator<Item = &'s OsStr>) -> io::Result<Self> {
        let strings: Vec<CString> = strings.map(c_string).collect::<io::Result<_>>()?;
        let pointers = strings.iter().map(|string| string.as_ptr()).chain([null()]).collect();
        Ok(Self { pointers, _strings: strings })
    }
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(io::Error::other)
}

impl Child {
    /// # Errors
    /// When a string holds a NUL.
    pub(super) fn new(spawn: Spawn, stdin: File) -> io::Result<Self> {
        let program = spawn.program.as_os_str();
        let args = spawn.args.iter().map(|arg| arg.as_os_str());
        let mark = spawn.enclosure.as_ref().and_then(Enclosure::mark);
        Ok(Self {
            stdin,
            program: c_string(program)?,
            args: Strings::new([program].into_iter().chain(args))?,
            environment: Strings::new(ENVIRONMENT.iter().map(OsStr::new).chain(mark))?,
            spawn,
        })
    }

    /// Runs in the child; returns only when something failed. `in_group` says that it was made in
    /// its group of the unified hierarchy.
    pub(super) fn become_the_program(&self, in_group: bool) -> io::Error {
        if let Err(error) = self.prepare(in_group) {
            return error;
        }
        let (args, environment) = (&self.args.pointers, &self.environment.pointers);
        // SAFETY: null-terminated arrays of C strings that this holds.
        unsafe { libc::execve(self.program.as_ptr(), args.as_ptr(), environment.as_ptr()) };
        io::Error::last_os_error()
    }

    fn prepare(&self, in_group: bool) -> io::Result<()> {
        let Spawn { door, enclosure, user, .. } = &self.spawn;
        if let Some(group) = door.unified.as_ref().filter(|_| !in_group) {
            rustix::io::write(&group.procs, b"0")?;
        }
        for tasks in &door.tasks {
            rustix::io::write(tasks, b"0")?;
        }
        default_signals();
        spawn::lower()?;
        self.hand_over()?;
        rustix::process::setsid()?;
        rustix::process::chdir(c"/")?;
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        if let Some(enclosure) = enclosure {
            enclosure.enter()?;
        }
        if user.switch {
            self.switch_user()?;
        }
        // SAFETY: takes no pointers.
        check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
        for fd in &self.spawn.listen {
            // SAFETY: takes no pointers; a bad descriptor is an error.
            check(unsafe { libc::listen(*fd, 16) }.into())?;
        }
        Ok(())
    }

    /// Sets the standard streams, and the descriptors that outlive the exec.
    fn hand_over(&self) -> io::Result<()> {
        let Spawn { fds, stdout, stderr, .. } = &self.spawn;
        for (stream, number) in [(&self.stdin, 0), (stdout, 1), (stderr, 2)] {
            // SAFETY: takes no pointers; the table of descriptors is the child's own.
            check(unsafe { libc::dup2(stream.as_raw_fd(), number) }.into())?;
        }
        // Closes at exec whatever the starter of the daemon left open (kernels before 5.11 refuse;
        // then it stays).
        let (last, how) = (libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
        // SAFETY: takes no pointers, and changes a flag in the child's own table.
        unsafe { libc::syscall(libc::SYS_close_range, 3, last, how) };
        for fd in fds {
            rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
        }
        Ok(())
    }

    fn switch_user(&self) -> io::Result<()> {
        let is_root_within = self.spawn.enclosure.as_ref().is_some_and(Enclosure::is_root_within);
        let mut capability = 0;
        // SAFETY: takes no pointers. Ends with EINVAL behind the kernel's last capability.
        while !is_root_within
            && unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } == 0
        {
            capability += 1;
        }
        let (groups, user) = (&self.spawn.groups, self.spawn.user);
        let within = self.spawn.enclosure.as_ref().and_then(Enclosure::id_within);
        // SAFETY: the pointer and length are those of a living vector of gid_t.
        check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })?;
        let (uid, gid) = within.map_or((user.uid, user.gid), |id| (id, id));
        // SAFETY: takes no pointers; the child has one thread.
        check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
        // SAFETY: as above.
        check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })
    }
}

/// Resets every signal to its default: no handler of the daemon's may run in the child, nor may a
/// signal that the daemon ignores stay ignored.
fn default_signals() {
    // All zero is the default action without flags, and an empty set, in every layout.
    let zeroes = [0_u64; 4];
    for signal in 1..=MAX_SIGNAL {
        // SAFETY: the table of handlers is the child's own; the kernel refuses the signals that
        // cannot be changed.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, zeroes.as_ptr(), null::<u8>(), 8) };
    }
    let (how, none) = (libc::SIG_SETMASK, null::<u8>());
    // SAFETY: reads eight bytes, the kernel's set of signals.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, zeroes.as_ptr(), none, 8) };
}

fn check(result: c_long) -> io::Result<()> {
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
