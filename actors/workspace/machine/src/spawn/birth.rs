//! Creation of a process that shares this one's memory until it executes.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use super::child::Child;
use crate::cgroup::Unified;

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
