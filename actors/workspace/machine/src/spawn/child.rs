//! Creation of a process that shares this one's memory until it executes, and its steps until then.
//!
//! One thread of the daemon waits for it meanwhile. So it makes system calls on data prepared before, allocates nothing
//! and takes no lock. The C library's `setuid` and its relatives are not used either: those have every thread of the
//! process switch, and the threads that they would find are the daemon's.
#![allow(unsafe_code)]

use std::ffi::{CString, OsStr, c_char, c_int, c_long, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::ptr::{self, null};
use std::sync::atomic::{AtomicI32, Ordering};

use super::{Enclosure, Spawn};
use crate::cgroup::Unified;
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
    fn become_the_program(&self, in_group: bool) -> io::Error {
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

/// Value in `linux/sched.h`; `libc` gives it in a type that is too narrow.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const SHARING: c_int = libc::CLONE_VM | libc::CLONE_VFORK;
/// Size of the stack: 64 KiB in words of 16 bytes, as the ABI aligns a stack: for some small
/// frames, and for a signal handler should the kernel have one run before the child resets it.
const STACK_WORDS: usize = 4096;

/// Data that the child gets.
struct Birth<'c> {
    child: &'c Child,
    in_group: bool,
    /// Error of a child that could not execute.
    errno: AtomicI32,
}

/// Makes the process and returns its pid. Blocks until it executes.
///
/// # Errors
/// When no process can be made, or it cannot execute; then none is left.
pub(super) fn give(child: &Child) -> io::Result<i32> {
    let mut stack: Vec<MaybeUninit<u128>> = Vec::with_capacity(STACK_WORDS);
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end.cast();
    let mut birth = Birth { child, in_group: true, errno: AtomicI32::new(0) };
    let blocked = Blocked::all();
    // SAFETY: `live` keeps to its stack, which ends at `top`, and to `birth`. Both outlive it, since
    // this thread goes on only when the child has executed or ended. With every signal blocked no
    // handler of this process runs in the child before it has reset them.
    let born = unsafe {
        let unified = child.spawn.door.unified.as_ref();
        match unified.and_then(|group| in_group(&birth, top, group)) {
            Some(pid) => Ok(pid),
            None => {
                birth.in_group = false;
                beside(&birth, top)
            }
        }
    };
    drop(blocked);
    let pid = born?;
    match birth.errno.load(Ordering::Acquire) {
        0 => Ok(pid),
        errno => {
            reap(pid);
            Err(io::Error::from_raw_os_error(errno))
        }
    }
}

/// Runs in the child, on its own stack.
extern "C" fn live(birth: *mut c_void) -> c_int {
    // SAFETY: `give` passes a `Birth` that outlives this process's use of it.
    let birth = unsafe { &*birth.cast::<Birth<'_>>() };
    let failed = birth.child.become_the_program(birth.in_group);
    birth.errno.store(failed.raw_os_error().unwrap_or(libc::EIO), Ordering::Release);
    // SAFETY: ends this process without running anything that is the daemon's.
    unsafe { libc::_exit(127) }
}

/// # Safety
/// `live` may run on the stack that ends at `top`.
unsafe fn beside(birth: &Birth<'_>, top: *mut c_void) -> io::Result<i32> {
    let given = ptr::from_ref(birth).cast_mut().cast();
    // SAFETY: as the caller promises.
    match unsafe { libc::clone(live, top, SHARING | libc::SIGCHLD, given) } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(pid),
    }
}

/// Makes a process in a group of the unified hierarchy, which costs no RCU grace period (Linux
/// 5.7). `None` where the kernel or a filter does not allow it.
///
/// # Safety
/// As [`beside`].
unsafe fn in_group(birth: &Birth<'_>, top: *mut c_void, group: &Unified) -> Option<i32> {
    // SAFETY: all zeroes is what the kernel takes for nothing asked.
    let mut asked: libc::clone_args = unsafe { std::mem::zeroed() };
    asked.flags = u64::try_from(SHARING).ok()? | CLONE_INTO_CGROUP;
    asked.exit_signal = u64::try_from(libc::SIGCHLD).ok()?;
    asked.cgroup = u64::try_from(group.dir.as_raw_fd()).ok()?;
    asked.stack_size = (STACK_WORDS * size_of::<u128>()) as u64;
    asked.stack = top as u64 - asked.stack_size;
    // SAFETY: as the caller promises.
    let pid = unsafe { clone3(&asked, ptr::from_ref(birth).cast_mut().cast()) };
    i32::try_from(pid).ok().filter(|pid| *pid > 0)
}

/// clone3(2), which the C library does not have: the child would return from a call whose frame is
/// not on its stack. Here it calls [`live`] with `given` at once. Returns what the kernel returns.
///
/// # Safety
/// As [`beside`], for the stack that is asked for.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3(asked: &libc::clone_args, given: *mut c_void) -> isize {
    let returned;
    // SAFETY: the kernel reads `asked` and changes only these registers; the child leaves this
    // block on its own stack and never comes back.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r8",
            "call r9",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 as isize => returned,
            in("rdi") ptr::from_ref(asked),
            in("rsi") size_of::<libc::clone_args>(),
            in("r8") given,
            in("r9") live as extern "C" fn(*mut c_void) -> c_int,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    returned
}

/// Fails with `ENOSYS`: on other architectures a child enters its group itself.
///
/// # Safety
/// Needs nothing of the caller.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn clone3(_: &libc::clone_args, _: *mut c_void) -> isize {
    -(libc::ENOSYS as isize)
}

/// Collects a child that ended before its exec.
pub(super) fn reap(pid: i32) {
    // SAFETY: takes no pointer; the status is not wanted. The pid is that of a child not yet
    // reaped, so nobody else can have it.
    while unsafe { libc::waitpid(pid, ptr::null_mut(), 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

/// Guard that blocks every signal for this thread while it lives.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn all() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: both sets are initialised by the calls before they are read.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: restores the set that `all` saved.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}
