//! A process made before the program that it is to run is known.
//!
//! It shares this daemon's memory, as in [`super::spawn`], but the daemon goes on
//! meanwhile (no `CLONE_VFORK`): the process joins its cgroup, takes its streams
//! and sleeps until [`Preforked::order`] tells it what to execute. What is left on
//! the way of a command is then to wake it and `execve`; and the daemon is not
//! woken in between.
//!
//! Since both run at once, the child must touch nothing of the C library, not even
//! `errno`, which is the daemon's. It makes its system calls itself, reads one
//! [`Held`] and writes nothing but that.
//!
//! Until it executes it dies with the thread that made it, which is to be one that
//! lives as long as its process.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, Ordering};

use rustix::process::Pid;
use rustix::thread::futex;

use super::raw::call;
use super::signals::Blocked;
use super::spawn::{Error, Program, Started, Stdio, pointers};

/// The child's stack holds a few frames without buffers.
const STACK_WORDS: usize = 1024;
/// What this program handles or ignores: Rust's runtime does, and the C library's threads (the two
/// numbers). No handler may run in the child, whose memory is the daemon's.
pub const HANDLED: [c_int; 5] = [libc::SIGBUS, libc::SIGSEGV, libc::SIGPIPE, 32, 33];
/// What `ps` shows of it while it waits.
const NAME: &std::ffi::CStr = c"hivekeep-ready";

const WAITING: u32 = 0;
const ORDERED: u32 = 1;

const STEP_NONE: u8 = 0;
const STEP_CGROUP: u8 = 1;
const STEP_WORKDIR: u8 = 2;
const STEP_EXEC: u8 = 3;

/// What the child reads while the daemon runs on.
struct Held {
    /// `WAITING`, then `ORDERED`; a futex.
    state: AtomicU32,
    /// Written by the child before it exits without having executed.
    failed: AtomicU8,
    errno: AtomicI32,
    stdio: [RawFd; 3],
    cgroup: RawFd,
    parent: i32,
    /// Written by the daemon before `ORDERED`, read by the child after it.
    order: UnsafeCell<Option<Order>>,
    stack: Vec<MaybeUninit<u128>>,
}

struct Order {
    program: Program,
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    workdirs: Vec<*const c_char>,
}

/// A process that waits for its program, or has been given it.
#[derive(Debug)]
pub struct Preforked {
    held: NonNull<Held>,
    ended: bool,
}

// SAFETY: `held` is owned by this alone; the child is no thread of this process,
// and what both touch is atomic or handed over through `state`.
unsafe impl Send for Preforked {}
// SAFETY: a shared reference reads atomics only.
unsafe impl Sync for Preforked {}

impl Preforked {
    /// Makes the process, in a session of its own, with these streams and in this
    /// cgroup. `stdio.extra` is not supported.
    ///
    /// # Errors
    /// When no process can be made. What fails later is told by [`Self::failure`].
    pub fn start(stdio: &Stdio<'_>) -> Result<(Started, Self), Error> {
        let held = Held {
            state: AtomicU32::new(WAITING),
            failed: AtomicU8::new(STEP_NONE),
            errno: AtomicI32::new(0),
            stdio: [stdio.stdin.as_raw_fd(), stdio.stdout.as_raw_fd(), stdio.stderr.as_raw_fd()],
            cgroup: stdio.cgroup.map_or(-1, |fd| fd.as_raw_fd()),
            parent: rustix::process::getpid().as_raw_nonzero().get(),
            order: UnsafeCell::new(None),
            stack: Vec::with_capacity(STACK_WORDS),
        };
        let held = NonNull::from(Box::leak(Box::new(held)));
        let mut standby = Self { held, ended: false };
        let mut pidfd: RawFd = -1;
        let blocked = Blocked::all();
        // SAFETY: `held` with the stack in it is freed only after the child's end
        // (`ended`). The stack is the child's alone, aligned, and large enough for
        // `wait_and_exec`. Every signal is blocked until the child has reset the
        // handlers, so none of this process's runs in it. `pidfd` is written by the
        // kernel before the return.
        let pid = unsafe {
            let top = (*held.as_ptr()).stack.as_mut_ptr().add(STACK_WORDS);
            libc::clone(
                wait_and_exec,
                top.cast::<c_void>(),
                libc::CLONE_VM | libc::CLONE_PIDFD | libc::SIGCHLD,
                held.as_ptr().cast::<c_void>(),
                &raw mut pidfd,
            )
        };
        let clone_error = io::Error::last_os_error();
        drop(blocked);
        let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 0) else {
            standby.ended();
            return Err(Error::Clone(clone_error));
        };
        // SAFETY: the kernel made this descriptor for us and nobody else owns it.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        Ok((Started { pid, pidfd }, standby))
    }

    fn held(&self) -> &Held {
        // SAFETY: freed by `drop` only; the child has shared access, as here.
        unsafe { self.held.as_ref() }
    }

    /// Has it execute `program`. The first order counts.
    pub fn order(&mut self, program: Program) {
        let held = self.held();
        if held.state.load(Ordering::Relaxed) != WAITING {
            return;
        }
        let order = Order {
            argv: pointers(&program.argv),
            env: pointers(&program.env),
            workdirs: pointers(&program.workdirs),
            program,
        };
        // SAFETY: the child looks at it only after `ORDERED`, and `&mut self` keeps
        // everybody else away.
        unsafe { *held.order.get() = Some(order) };
        held.state.store(ORDERED, Ordering::Release);
        // A child that is not asleep yet sees the state before it goes to sleep.
        let _ = futex::wake(&held.state, futex::Flags::PRIVATE, 1);
    }

    /// Why it did not execute its program. Meaningful once it has ended.
    pub fn failure(&self) -> Option<Error> {
        let held = self.held();
        let failed = held.failed.load(Ordering::Acquire);
        let error = io::Error::from_raw_os_error(held.errno.load(Ordering::Relaxed));
        match failed {
            STEP_NONE => None,
            STEP_CGROUP => Some(Error::Cgroup(error)),
            STEP_WORKDIR => Some(Error::Workdir(error)),
            _ => Some(Error::Exec(error)),
        }
    }

    /// To be called when its exit status has been collected: what it reads may be
    /// freed. Without that a drop leaks it, as for a process that does not die.
    pub fn ended(&mut self) {
        self.ended = true;
    }
}

impl Drop for Preforked {
    fn drop(&mut self) {
        if self.ended {
            // SAFETY: made by `Box::leak`, dropped once, and the child has gone.
            drop(unsafe { Box::from_raw(self.held.as_ptr()) });
        }
    }
}

extern "C" fn wait_and_exec(held: *mut c_void) -> c_int {
    // SAFETY: `start` passes a `Held` that outlives this process; see there.
    unsafe {
        let held = &*held.cast::<Held>();
        let (step, errno) = prepare(held).unwrap_or_else(|| exec(held));
        held.errno.store(errno, Ordering::Relaxed);
        held.failed.store(step, Ordering::Release);
        loop {
            call(libc::SYS_exit_group, [127, 0, 0, 0]);
        }
    }
}

/// Everything that does not depend on the program. Returns what failed.
unsafe fn prepare(held: &Held) -> Option<(u8, c_int)> {
    // SAFETY: system calls on numbers and on memory that outlives them; see `call`.
    unsafe {
        let die = [libc::PR_SET_PDEATHSIG as usize, libc::SIGKILL as usize, 0, 0];
        call(libc::SYS_prctl, die);
        // One that died before that sends no signal any more.
        if call(libc::SYS_getppid, [0; 4]) != held.parent as isize {
            return Some((STEP_EXEC, libc::ESRCH));
        }
        if held.cgroup >= 0 {
            let joined =
                call(libc::SYS_write, [held.cgroup as usize, c"0".as_ptr() as usize, 1, 0]);
            if joined != 1 {
                return Some((STEP_CGROUP, errno_of(joined)));
            }
        }
        call(libc::SYS_setsid, [0; 4]);
        for (target, fd) in held.stdio.iter().enumerate() {
            let moved = call(libc::SYS_dup3, [*fd as usize, target, 0, 0]);
            if moved < 0 {
                return Some((STEP_EXEC, errno_of(moved)));
            }
        }
        // It may wait for long, and what it holds open is not closed for others.
        call(libc::SYS_close_range, [3, c_int::MAX as usize, 0, 0]);
        // All zero is the default action without flags, in every layout.
        let default = [0_u64; 4];
        for signal in HANDLED {
            call(libc::SYS_rt_sigaction, [signal as usize, default.as_ptr() as usize, 0, 8]);
        }
        let none = 0_u64;
        let none = ptr::from_ref(&none) as usize;
        call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, none, 0, 8]);
        call(libc::SYS_prctl, [libc::PR_SET_NAME as usize, NAME.as_ptr() as usize, 0, 0]);
    }
    None
}

/// Waits for the order and carries it out. Returns the step that failed.
unsafe fn exec(held: &Held) -> (u8, c_int) {
    let wait = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: as `prepare`; the order is there and stays once the state says so.
    unsafe {
        while held.state.load(Ordering::Acquire) != ORDERED {
            call(libc::SYS_futex, [held.state.as_ptr() as usize, wait, WAITING as usize, 0]);
        }
        let Some(order) = &*held.order.get() else { return (STEP_EXEC, libc::EINVAL) };
        let entered = enter_first(order.workdirs.as_ptr());
        if entered < 0 {
            return (STEP_WORKDIR, errno_of(entered));
        }
        if let Some(max) = order.program.max_open_files {
            let limit =
                libc::rlimit { rlim_cur: if max < 1024 { max } else { 1024 }, rlim_max: max };
            let limit = ptr::from_ref(&limit) as usize;
            call(libc::SYS_prlimit64, [0, libc::RLIMIT_NOFILE as usize, limit, 0]);
        }
        // A program goes on when the daemon dies; who has it killed then sees to that.
        call(libc::SYS_prctl, [libc::PR_SET_PDEATHSIG as usize, 0, 0, 0]);
        let path = order.program.path.as_ptr() as usize;
        let (argv, env) = (order.argv.as_ptr() as usize, order.env.as_ptr() as usize);
        (STEP_EXEC, errno_of(call(libc::SYS_execve, [path, argv, env, 0])))
    }
}

/// Enters the first of a null-terminated array that can be; an empty one is no failure.
unsafe fn enter_first(mut workdirs: *const *const c_char) -> isize {
    let mut outcome = 0;
    // SAFETY: as `prepare`.
    unsafe {
        while !(*workdirs).is_null() {
            outcome = call(libc::SYS_chdir, [*workdirs as usize, 0, 0, 0]);
            if outcome >= 0 {
                break;
            }
            workdirs = workdirs.add(1);
        }
    }
    outcome
}

fn errno_of(returned: isize) -> c_int {
    returned.unsigned_abs() as c_int
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;

    fn program(path: &std::ffi::CStr, words: &[&std::ffi::CStr]) -> Program {
        Program {
            path: path.to_owned(),
            argv: words.iter().map(|&word| word.to_owned()).collect(),
            env: vec![c"NAME=value".to_owned()],
            workdirs: vec![c"/no/such/folder".to_owned(), c"/".to_owned()],
            max_open_files: Some(77),
        }
    }

    /// What it wrote, its status, and what it said of its failure.
    fn outcome(program: Program) -> (String, Option<i32>, Option<Error>) {
        let null = File::open("/dev/null").expect("/dev/null");
        let (read, write) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("pipe");
        let (stdin, out) = (null.as_fd(), write.as_fd());
        let stdio = Stdio { stdin, stdout: out, stderr: out, extra: None, cgroup: None };
        let (started, mut standby) = Preforked::start(&stdio).expect("started");
        drop(write);
        standby.order(program);
        let mut text = String::new();
        File::from(read).read_to_string(&mut text).expect("read");
        let options = rustix::process::WaitOptions::empty();
        let (_, status) = rustix::process::waitpid(Some(started.pid), options)
            .expect("waited for")
            .expect("ended");
        standby.ended();
        (text, status.exit_status(), standby.failure())
    }

    #[test]
    fn it_runs_what_it_is_told_in_a_session_of_its_own() {
        let script = c"echo $NAME $0; pwd; ulimit -Hn; trap; ls /proc/self/fd | wc -l; \
            [ $(cut -d' ' -f6 /proc/$$/stat) = $$ ] && exit 5";
        let (text, status, failure) = outcome(program(c"/bin/sh", &[c"sh", c"-c", script, c"it"]));
        // The fourth descriptor is the folder that ls reads.
        assert_eq!(text, "value it\n/\n77\n4\n");
        assert_eq!(status, Some(5));
        assert!(failure.is_none(), "{failure:?}");
    }

    #[test]
    fn what_it_cannot_run_it_tells() {
        let (_, status, failure) = outcome(program(c"/no/such/program", &[c"x"]));
        assert_eq!(status, Some(127));
        let Some(Error::Exec(error)) = failure else { panic!("{failure:?}") };
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
        let mut lost = program(c"/bin/sh", &[c"sh"]);
        lost.workdirs.truncate(1);
        assert!(matches!(outcome(lost).2, Some(Error::Workdir(_))));
    }

    #[test]
    fn the_daemons_errno_is_left_alone() {
        let errno = || io::Error::last_os_error().raw_os_error();
        // SAFETY: a call that fails and changes nothing.
        unsafe { libc::close(-1) };
        assert_eq!(errno(), Some(libc::EBADF));
        let null = File::open("/dev/null").expect("/dev/null");
        let fd = null.as_fd();
        let stdio = Stdio { stdin: fd, stdout: fd, stderr: fd, extra: None, cgroup: None };
        let (started, mut standby) = Preforked::start(&stdio).expect("started");
        // SAFETY: as above.
        unsafe { libc::close(-1) };
        standby.order(program(c"/no/such/program", &[c"x"]));
        // rustix does not use errno either.
        let options = rustix::process::WaitOptions::empty();
        let _ = rustix::process::waitpid(Some(started.pid), options).expect("waited for");
        assert_eq!(errno(), Some(libc::EBADF));
        standby.ended();
    }
}
