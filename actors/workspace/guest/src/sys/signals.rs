//! Signals as something to wait for instead of handlers, and sent by number: real-time signals have no name in
//! rustix.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

/// Every signal is blocked for this thread while it lives.
pub(super) struct Blocked(libc::sigset_t);

impl Blocked {
    pub(super) fn all() -> Self {
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
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: initialised by the first call; sigaddset refuses bad numbers.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

/// Blocks the signals for this thread for good, so that they queue up.
pub fn block(signals: &[i32]) {
    let set = set_of(signals);
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

/// Ignores a signal, which programs that are started inherit.
pub fn ignore(signal: i32) {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Resets signals that the parent of this process ignored; ignoring is inherited, and commands expect the
/// usual. SIGPIPE stays: the runtime needs it ignored here.
pub fn restore_defaults() {
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| *signal != libc::SIGPIPE) {
        let mut now = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: the first call fills `now` when it succeeds; both refuse numbers
        // that are no signal.
        unsafe {
            let known = libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) == 0;
            if known && now.assume_init().sa_sigaction == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

/// Waits for one of the blocked `signals`, at most `for_at_most`.
pub fn wait_for(signals: &[i32], for_at_most: Duration) -> Option<i32> {
    let set = set_of(signals);
    let limit = libc::timespec {
        tv_sec: for_at_most.as_secs().try_into().unwrap_or(i32::MAX.into()),
        tv_nsec: for_at_most.subsec_nanos().into(),
    };
    // SAFETY: valid set and time; no information is asked for.
    let signal =
        unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const limit) };
    (signal > 0).then_some(signal)
}

/// A descriptor that is readable while one of the blocked `signals` is pending.
///
/// # Errors
/// When the kernel has no descriptor left.
pub fn descriptor(signals: &[i32]) -> std::io::Result<OwnedFd> {
    let set = set_of(signals);
    // SAFETY: a valid set; the new descriptor is ours.
    unsafe {
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Sends a signal to one process.
///
/// # Errors
/// As kill(2): no such process, not permitted, no such signal.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    if pid <= 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: plain system call on a single process.
    if unsafe { libc::kill(pid, signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends a signal to every process but this one and, in a VM, the kernel's.
/// Only for a process that is PID 1 of its namespace.
pub fn kill_everyone(signal: i32) {
    if std::process::id() == 1 {
        // SAFETY: plain system call.
        unsafe { libc::kill(-1, signal) };
    }
}
