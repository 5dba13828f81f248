//! User namespaces without a process: the id map of a sandbox's tree, and that of a range of
//! subordinate users.
//!
//! The kernel takes the map of a mount only as a user namespace, and makes one only together with a
//! process in it. That process shares the daemon's memory instead of copying its page tables, which
//! would cost more than all the rest.
#![allow(unsafe_code)]

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null_mut;

use rustix::pipe::{PipeFlags, pipe_with};

use crate::options::MachineUser;

/// Enough for two system calls, and for a signal handler should one run.
const STACK_BYTES: usize = 64 * 1024;

/// Makes a user namespace that maps root of the disk to the machine's user.
pub(crate) fn user_namespace(user: MachineUser) -> io::Result<OwnedFd> {
    user_namespace_of((0, 0), user)
}

/// Makes a user namespace that maps a user and a group of a file system to the machine's.
pub(super) fn user_namespace_of((uid, gid): (u32, u32), user: MachineUser) -> io::Result<OwnedFd> {
    namespace_mapped_by(|holder| {
        let map = |file: &str, of: u32, id: u32| {
            fs::OpenOptions::new()
                .write(true)
                .open(format!("/proc/{holder}/{file}"))?
                .write_all(format!("{of} {id} 1").as_bytes())
        };
        map("uid_map", uid, user.uid).and_then(|()| map("gid_map", gid, user.gid))
    })
}

/// Makes a user namespace whose maps `map` writes for the process in it. Blocks for that.
pub(super) fn namespace_mapped_by(
    map: impl FnOnce(libc::pid_t) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    let (wait, release) = pipe_with(PipeFlags::CLOEXEC)?;
    let mut waits_on = wait.as_raw_fd();
    // 16 bytes each, as the ABI aligns a stack.
    let mut stack = vec![0u128; STACK_BYTES / size_of::<u128>()];
    // SAFETY: `hold` keeps to its stack, which ends here, and to `waits_on`; both outlive the child,
    // for which this function waits on every way.
    let holder = unsafe {
        let top = stack.as_mut_ptr().add(stack.len());
        let flags = libc::CLONE_VM | libc::CLONE_NEWUSER | libc::SIGCHLD;
        libc::clone(hold, top.cast(), flags, (&raw mut waits_on).cast())
    };
    if holder < 0 {
        return Err(io::Error::last_os_error());
    }
    let mapped = map(holder)
        .and_then(|()| fs::File::open(format!("/proc/{holder}/ns/user")).map(OwnedFd::from));
    drop(release);
    // SAFETY: waits for the child just made; the status is not wanted.
    while unsafe { libc::waitpid(holder, null_mut(), 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    mapped
}

/// Waits until nobody has the other end of the pipe open any more, so it ends with the daemon too.
/// Keeps no other descriptor: of two such processes made at once, each would have the other's end,
/// and both would wait for ever. Runs beside the daemon's threads in their memory: its calls
/// succeed, or they would write the `errno` of the thread that made it.
extern "C" fn hold(waits_on: *mut libc::c_void) -> libc::c_int {
    let mut byte = 0u8;
    // SAFETY: the pointer is to the number in `user_namespace`; the descriptors are this process's
    // own copies.
    unsafe {
        let wait = *waits_on.cast::<libc::c_int>();
        if let Ok(above) = libc::c_uint::try_from(wait + 1) {
            libc::syscall(libc::SYS_close_range, above, libc::c_uint::MAX, 0);
        }
        if let Ok(below) = libc::c_uint::try_from(wait - 1) {
            libc::syscall(libc::SYS_close_range, 0, below, 0);
        }
        libc::read(wait, (&raw mut byte).cast(), 1);
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_process_stays() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root maps ids");
            return;
        }
        let children = || fs::read_to_string("/proc/thread-self/children").unwrap();
        let before = children();
        user_namespace(MachineUser { uid: 64_777, gid: 64_777, switch: true }).unwrap();
        assert_eq!(children(), before);
    }

    #[test]
    fn many_at_once_do_not_hold_each_other() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root maps ids");
            return;
        }
        let (done, all) = std::sync::mpsc::channel();
        for _ in 0..8 {
            let done = done.clone();
            std::thread::spawn(move || {
                let user = MachineUser { uid: 64_777, gid: 64_777, switch: true };
                for _ in 0..100 {
                    user_namespace(user).unwrap();
                }
                done.send(()).unwrap();
            });
        }
        for _ in 0..8 {
            let patience = std::time::Duration::from_secs(60);
            all.recv_timeout(patience).expect("two holders wait for each other");
        }
    }
}
