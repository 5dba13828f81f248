//! Starting a program as cheaply as the kernel allows.
//!
//! The child shares the parent's memory until it executes (`CLONE_VM` with
//! `CLONE_VFORK`, as posix_spawn does), so no page table is copied: under
//! software emulation that copy costs more than the rest together. posix_spawn
//! itself cannot join a cgroup before the program runs, hence this module.
//!
//! The job shim detaches itself from its parent by a plain fork.
//!
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::signals::Blocked;

const STACK_WORDS: usize = 4096;
/// Descriptor that [`Stdio::extra`] has in the child.
pub const EXTRA_FD: RawFd = 3;

/// Program to execute, with everything allocated beforehand.
#[derive(Debug, Serialize, Deserialize)]
pub struct Program {
    /// Path given to execve; a search of PATH was done before.
    pub path: CString,
    /// `argv[0]` included.
    pub argv: Vec<CString>,
    /// The whole environment, `NAME=value`.
    pub env: Vec<CString>,
    /// The first that can be entered becomes the working directory; none stays put.
    pub workdirs: Vec<CString>,
    /// Limits for open files, lowered from the daemon's own.
    pub max_open_files: Option<u64>,
}

/// File descriptors of the new process.
#[derive(Debug, Clone, Copy)]
pub struct Stdio<'fd> {
    /// Its standard input.
    pub stdin: BorrowedFd<'fd>,
    /// Its standard output.
    pub stdout: BorrowedFd<'fd>,
    /// Its standard error.
    pub stderr: BorrowedFd<'fd>,
    /// Descriptor that arrives as [`EXTRA_FD`].
    pub extra: Option<BorrowedFd<'fd>>,
    /// An open `cgroup.procs` that the child joins before it executes.
    pub cgroup: Option<BorrowedFd<'fd>>,
    /// Makes the standard input, a terminal, the controlling one of the child's session.
    pub terminal: bool,
}

impl<'fd> Stdio<'fd> {
    /// The three streams and nothing else.
    pub fn of(stdin: BorrowedFd<'fd>, stdout: BorrowedFd<'fd>, stderr: BorrowedFd<'fd>) -> Self {
        Self { stdin, stdout, stderr, extra: None, cgroup: None, terminal: false }
    }
}

/// A started process.
#[derive(Debug)]
pub struct StartedProcess {
    /// Process id, also of its own session and process group.
    pub pid: Pid,
    /// Pidfd, readable once the process has ended.
    pub pidfd: OwnedFd,
}

/// Why a program did not start, and at which step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No process could be made.
    #[error("cannot make a process: {0}")]
    Clone(#[source] io::Error),
    /// The cgroup could not be joined.
    #[error("cannot join the command's cgroup: {0}")]
    Cgroup(#[source] io::Error),
    /// No working directory could be entered.
    #[error("cannot enter the working directory: {0}")]
    Workdir(#[source] io::Error),
    /// execve failed.
    #[error("cannot execute: {0}")]
    Exec(#[source] io::Error),
}

/// SpawnStep of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum SpawnStep {
    /// The new process, with everything that is not one of the others.
    Clone,
    /// Joining the cgroup.
    Cgroup,
    /// Entering a working directory.
    Workdir,
    /// Standard streams and execve.
    Exec,
}

impl Error {
    /// Failure at a step.
    pub fn at(step: SpawnStep, cause: io::Error) -> Self {
        match step {
            SpawnStep::Clone => Self::Clone(cause),
            SpawnStep::Cgroup => Self::Cgroup(cause),
            SpawnStep::Workdir => Self::Workdir(cause),
            SpawnStep::Exec => Self::Exec(cause),
        }
    }

    /// The step, and its error number for another process.
    pub fn parts(&self) -> (SpawnStep, i32) {
        let (step, cause) = match self {
            Self::Clone(cause) => (SpawnStep::Clone, cause),
            Self::Cgroup(cause) => (SpawnStep::Cgroup, cause),
            Self::Workdir(cause) => (SpawnStep::Workdir, cause),
            Self::Exec(cause) => (SpawnStep::Exec, cause),
        };
        (step, cause.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Everything the child reads, and the two fields it writes.
struct Plan {
    path: *const c_char,
    argv: *const *const c_char,
    env: *const *const c_char,
    workdirs: *const *const c_char,
    stdio: [RawFd; 3],
    extra: RawFd,
    cgroup: RawFd,
    terminal: bool,
    max_open_files: Option<libc::rlimit>,
    failed: Option<SpawnStep>,
    errno: c_int,
}

/// Starts `program` in a session of its own. Returns once it executes.
///
/// # Errors
/// When any step up to and including execve failed; then no process is left.
pub fn spawn(program: &Program, stdio: &Stdio<'_>) -> Result<StartedProcess, Error> {
    let (argv, env) = (pointers(&program.argv), pointers(&program.env));
    let workdirs = pointers(&program.workdirs);
    let raw = |fd: Option<BorrowedFd<'_>>| fd.map_or(-1, |fd| fd.as_raw_fd());
    let mut plan = Plan {
        path: program.path.as_ptr(),
        argv: argv.as_ptr(),
        env: env.as_ptr(),
        workdirs: workdirs.as_ptr(),
        stdio: [stdio.stdin.as_raw_fd(), stdio.stdout.as_raw_fd(), stdio.stderr.as_raw_fd()],
        extra: raw(stdio.extra),
        cgroup: raw(stdio.cgroup),
        terminal: stdio.terminal,
        max_open_files: program
            .max_open_files
            .map(|max| libc::rlimit { rlim_cur: max.min(1024), rlim_max: max }),
        failed: None,
        errno: 0,
    };
    let mut stack: Vec<MaybeUninit<u128>> = Vec::with_capacity(STACK_WORDS);
    let mut pidfd: RawFd = -1;
    let blocked = Blocked::all();
    // SAFETY: `run_child` gets `plan`, which outlives it, since CLONE_VFORK keeps
    // this thread from running until the child has executed or exited. The stack is
    // the child's alone, aligned, and large enough for `run_child`, which calls only
    // async-signal-safe functions. With every signal blocked no handler of this
    // process runs in the child. `pidfd` is written by the kernel before the return.
    let pid = unsafe {
        libc::clone(
            run_child,
            stack.as_mut_ptr().add(STACK_WORDS).cast::<c_void>(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD,
            (&raw mut plan).cast::<c_void>(),
            &raw mut pidfd,
        )
    };
    let clone_error = io::Error::last_os_error();
    drop(blocked);
    let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 0) else {
        return Err(Error::Clone(clone_error));
    };
    // SAFETY: the kernel made this descriptor for us and nobody else owns it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    // SAFETY: the child wrote these before it exited; volatile, since the compiler
    // does not see that write.
    let (failed, errno) = unsafe {
        ((&raw const plan.failed).read_volatile(), (&raw const plan.errno).read_volatile())
    };
    let Some(step) = failed else { return Ok(StartedProcess { pid, pidfd }) };
    let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
    Err(Error::at(step, io::Error::from_raw_os_error(errno)))
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s: &CString| CStr::as_ptr(s)).chain([std::ptr::null()]).collect()
}

extern "C" fn run_child(plan: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a live `Plan` that only this child touches meanwhile.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
    // SAFETY: only async-signal-safe calls on descriptors and strings that the
    // suspended parent keeps alive.
    unsafe {
        plan.failed = Some(prepare_and_exec(plan));
        plan.errno = *libc::__errno_location();
        libc::_exit(127)
    }
}

/// Returns the step that failed, with errno set.
unsafe fn prepare_and_exec(plan: &Plan) -> SpawnStep {
    // SAFETY: see `run_child`.
    unsafe {
        if plan.cgroup >= 0 && libc::write(plan.cgroup, c"0".as_ptr().cast(), 1) != 1 {
            return SpawnStep::Cgroup;
        }
        libc::setsid();
        for (target, fd) in plan.stdio.iter().enumerate() {
            if libc::dup2(*fd, target as c_int) < 0 {
                return SpawnStep::Exec;
            }
        }
        if plan.terminal && libc::ioctl(0, libc::TIOCSCTTY as _, 0) < 0 {
            return SpawnStep::Exec;
        }
        if plan.extra == EXTRA_FD {
            libc::fcntl(EXTRA_FD, libc::F_SETFD, 0);
        } else if plan.extra >= 0 && libc::dup2(plan.extra, EXTRA_FD) < 0 {
            return SpawnStep::Exec;
        }
        if !enter_first(plan.workdirs) {
            return SpawnStep::Workdir;
        }
        if let Some(limit) = &plan.max_open_files {
            libc::setrlimit(libc::RLIMIT_NOFILE, limit);
        }
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none = MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        libc::execve(plan.path, plan.argv, plan.env);
    }
    SpawnStep::Exec
}

unsafe fn enter_first(mut workdirs: *const *const c_char) -> bool {
    // SAFETY: a null-terminated array of strings, see `run_child`.
    unsafe {
        if (*workdirs).is_null() {
            return true;
        }
        while !(*workdirs).is_null() {
            if libc::chdir(*workdirs) == 0 {
                return true;
            }
            workdirs = workdirs.add(1);
        }
    }
    false
}

/// Goes on in a child process; the calling one exits with status 0.
///
/// # Errors
/// As [`fork`].
pub fn continue_in_child() -> io::Result<()> {
    match fork()? {
        None => Ok(()),
        // SAFETY: ends this process without running exit handlers twice.
        Some(_) => unsafe { libc::_exit(0) },
    }
}

/// Goes on in this process and in a child process; `None` in the latter.
///
/// # Errors
/// When no process can be made, or when this process has a second thread: its
/// locks would stay held in the child for ever.
pub fn fork() -> io::Result<Option<Pid>> {
    if std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count) != 1 {
        return Err(io::Error::other("forking needs a single-threaded process"));
    }
    // SAFETY: single-threaded as just checked, so no lock can be held by another.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}
