//! User namespaces without a process: the id maps of mounts, those of sandboxes with several users,
//! and that of a range of subordinate users.
//!
//! The kernel takes the map of a mount only as a user namespace, and makes one only together with a
//! process in it. That process shares the daemon's memory instead of copying its page tables, which
//! would cost more than all the rest.
#![allow(unsafe_code)]

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null_mut;

use rustix::pipe::{PipeFlags, pipe_with};

/// Enough for two system calls, and for a signal handler should one run.
const STACK_BYTES: usize = 64 * 1024;

/// `SECBIT_NO_SETUID_FIXUP`: a change of the user takes no capability away.
const KEEP_CAPABILITIES: libc::c_ulong = 1 << 2;

/// Consecutive ids of a map, for users and groups alike.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// First in the namespace: on the disk, if it is the map of a mount.
    pub inside: u32,
    /// First on the host.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// User of the host that a namespace is charged to, and the limits of setrlimit(2) that it is made
/// under: those that the kernel counts by user hold for all of its users together.
#[derive(Debug, Clone, Copy)]
pub struct NamespaceOwner {
    /// User and group.
    pub user: (u32, u32),
    /// Number of each limit, and its value.
    pub limits: [(libc::c_uint, u64); 4],
}

/// Makes a user namespace that maps a user and a group of a file system to those of the host.
///
/// # Errors
/// Of the kernel.
pub fn user_namespace_of((uid, gid): (u32, u32), to: (u32, u32)) -> io::Result<OwnedFd> {
    let one = |inside, outside| [Extent { inside, outside, count: 1 }];
    let (users, groups) = (one(uid, to.0), one(gid, to.1));
    namespace_mapped_by(|holder| write_maps(holder, &users, &groups))
}

/// Makes a user namespace with this map.
///
/// # Errors
/// Of the kernel.
pub fn namespace_of(map: &[Extent]) -> io::Result<OwnedFd> {
    namespace_mapped_by(|holder| write_maps(holder, map, map))
}

/// Makes a user namespace with this map that a user owns.
///
/// # Errors
/// Of the kernel.
pub fn owned_namespace(map: Extent, owner: &NamespaceOwner) -> io::Result<OwnedFd> {
    namespace_held(Some(owner), |holder| write_maps(holder, &[map], &[map]))
}

fn write_maps(holder: libc::pid_t, users: &[Extent], groups: &[Extent]) -> io::Result<()> {
    for (file, map) in [("uid_map", users), ("gid_map", groups)] {
        let line = |it: &Extent| format!("{} {} {}\n", it.inside, it.outside, it.count);
        let text: String = map.iter().map(line).collect();
        // A single write: the kernel takes no second one.
        fs::OpenOptions::new()
            .write(true)
            .open(format!("/proc/{holder}/{file}"))?
            .write_all(text.as_bytes())?;
    }
    Ok(())
}

/// Makes a user namespace whose maps `map` writes for the process in it. Blocks for that.
///
/// # Errors
/// Of the kernel.
pub fn namespace_mapped_by(map: impl FnOnce(libc::pid_t) -> io::Result<()>) -> io::Result<OwnedFd> {
    namespace_held(None, map)
}

/// Arguments of the process in a namespace.
struct Held {
    waits_on: libc::c_int,
    /// Set where the process makes the namespace itself, as this user, and says so.
    owner: Option<(NamespaceOwner, libc::c_int)>,
}

fn namespace_held(
    owner: Option<&NamespaceOwner>,
    map: impl FnOnce(libc::pid_t) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    let (wait, release) = pipe_with(PipeFlags::CLOEXEC)?;
    let (heard, says) = pipe_with(PipeFlags::CLOEXEC)?;
    let owner = owner.map(|owner| (*owner, says.as_raw_fd()));
    let flags = if owner.is_some() { 0 } else { libc::CLONE_NEWUSER };
    let mut held = Held { waits_on: wait.as_raw_fd(), owner };
    // 16 bytes each, as the ABI aligns a stack.
    let mut stack = vec![0u128; STACK_BYTES / size_of::<u128>()];
    // SAFETY: `hold` keeps to its stack, which ends here, and to `held`; both outlive the child,
    // for which this function waits on every way.
    let holder = unsafe {
        let top = stack.as_mut_ptr().add(stack.len());
        libc::clone(
            hold,
            top.cast(),
            libc::CLONE_VM | flags | libc::SIGCHLD,
            (&raw mut held).cast(),
        )
    };
    if holder < 0 {
        return Err(io::Error::last_os_error());
    }
    drop(says);
    let made = if held.owner.is_some() { told(fs::File::from(heard)) } else { Ok(()) };
    let mapped = made
        .and_then(|()| map(holder))
        .and_then(|()| fs::File::open(format!("/proc/{holder}/ns/user")).map(OwnedFd::from));
    drop(release);
    // SAFETY: waits for the child just made; the status is not wanted.
    while unsafe { libc::waitpid(holder, null_mut(), 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    mapped
}

/// Reads the number of the error with which a holder made its namespace, 0 for none.
fn told(mut heard: fs::File) -> io::Result<()> {
    let mut errno = [0; 4];
    heard.read_exact(&mut errno)?;
    match i32::from_ne_bytes(errno) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Waits until nobody has the other end of the pipe open any more, so it ends with the daemon too.
/// Keeps no other descriptor: of two such processes made at once, each would have the other's end,
/// and both would wait for ever. Runs beside the daemon's threads in their memory: its calls
/// succeed, or they would write the `errno` of the thread that made it, which until it is told only
/// waits for that.
extern "C" fn hold(held: *mut libc::c_void) -> libc::c_int {
    let mut byte = 0u8;
    // SAFETY: the pointer is to what `namespace_held` has; the descriptors are this process's own
    // copies.
    unsafe {
        let Held { waits_on: wait, owner } = &*held.cast::<Held>();
        if let Some((owner, says)) = owner {
            let errno = make_as(owner);
            libc::write(*says, (&raw const errno).cast(), size_of::<libc::c_int>());
        }
        if let Ok(above) = libc::c_uint::try_from(wait + 1) {
            libc::syscall(libc::SYS_close_range, above, libc::c_uint::MAX, 0);
        }
        if let Ok(below) = libc::c_uint::try_from(wait - 1) {
            libc::syscall(libc::SYS_close_range, 0, below, 0);
        }
        libc::read(*wait, (&raw mut byte).cast(), 1);
        libc::_exit(0)
    }
}

/// Becomes the owner and makes a user namespace, with root's rights until then, whatever the host
/// allows other users. The C library's `setuid` and its relatives would have the daemon's threads
/// switch too. Returns the error's number, 0 for none.
fn make_as(owner: &NamespaceOwner) -> libc::c_int {
    let NamespaceOwner { user: (uid, gid), limits } = owner;
    let failed = |result: libc::c_long| result < 0;
    for (resource, value) in limits {
        let limit = libc::rlimit { rlim_cur: *value, rlim_max: *value };
        // SAFETY: the structure lives on; limits are this process's own.
        if failed(unsafe {
            libc::syscall(libc::SYS_prlimit64, 0, *resource, &raw const limit, null_mut::<u8>())
        }) {
            return errno();
        }
    }
    // SAFETY: takes no pointers that are followed, and changes this process alone. Where the rights
    // cannot be kept, the owner's own may do.
    let steps = unsafe {
        libc::syscall(libc::SYS_prctl, libc::PR_SET_SECUREBITS, KEEP_CAPABILITIES, 0, 0, 0);
        failed(libc::syscall(libc::SYS_setgroups, 0, null_mut::<u8>()))
            || failed(libc::syscall(libc::SYS_setresgid, *gid, *gid, *gid))
            || failed(libc::syscall(libc::SYS_setresuid, *uid, *uid, *uid))
            || failed(libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUSER))
    };
    if steps { errno() } else { 0 }
}

fn errno() -> libc::c_int {
    // SAFETY: the number of the thread that this process shares its memory with.
    unsafe { *libc::__errno_location() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: (u32, u32) = (64_777, 64_777);
    const LIMITS: [(libc::c_uint, u64); 4] = [
        (libc::RLIMIT_MEMLOCK, 8 << 20),
        (libc::RLIMIT_MSGQUEUE, 819_200),
        (libc::RLIMIT_SIGPENDING, 1024),
        (libc::RLIMIT_NPROC, 8),
    ];

    #[test]
    fn no_process_stays() {
        if !rustix::process::geteuid().is_root() {
            return hivekeep_skip::skip("only root maps ids");
        }
        let children = || fs::read_to_string("/proc/thread-self/children").unwrap();
        let before = children();
        user_namespace_of((0, 0), USER).unwrap();
        assert_eq!(children(), before);
    }

    #[test]
    fn an_owned_namespace_is_charged_to_its_owner() {
        if !rustix::process::geteuid().is_root() {
            return hivekeep_skip::skip("only root maps ids");
        }
        const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;
        let owner = NamespaceOwner { user: USER, limits: LIMITS };
        let map = Extent { inside: 0, outside: 64_777, count: 3 };
        let namespace = owned_namespace(map, &owner).unwrap();
        let mut uid: libc::uid_t = 0;
        // SAFETY: the kernel writes a number of this type.
        let asked = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID, &raw mut uid) };
        assert_eq!((asked, uid), (0, 64_777));
        assert!(rustix::process::geteuid().is_root(), "the daemon stays what it is");
    }

    #[test]
    fn what_a_holder_cannot_do_is_told() {
        if !rustix::process::geteuid().is_root() {
            return hivekeep_skip::skip("only root maps ids");
        }
        let user = (u32::MAX - 1, u32::MAX - 1);
        let limits = [(libc::c_uint::MAX, 0); 4];
        let map = Extent { inside: 0, outside: 64_777, count: 1 };
        let error = owned_namespace(map, &NamespaceOwner { user, limits }).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn many_at_once_do_not_hold_each_other() {
        if !rustix::process::geteuid().is_root() {
            return hivekeep_skip::skip("only root maps ids");
        }
        let (done, all) = std::sync::mpsc::channel();
        for _ in 0..8 {
            let done = done.clone();
            std::thread::spawn(move || {
                let owner = NamespaceOwner { user: USER, limits: LIMITS };
                let map = Extent { inside: 0, outside: 64_777, count: 1 };
                for _ in 0..100 {
                    user_namespace_of((0, 0), USER).unwrap();
                    owned_namespace(map, &owner).unwrap();
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
