//! File access as another user, by one thread.

use std::io;

use rustix::fs::Gid;
use rustix::thread::set_thread_groups;

/// Ids of file accesses, root's again when dropped.
struct FsIds;

impl Drop for FsIds {
    fn drop(&mut self) {
        set(0, 0);
    }
}

/// Runs `access` with the file access ids of another user: for the time of that, this thread has no
/// rights of root over files. Legal for root of its user namespace; the C library's `setfsuid` would
/// do no more.
pub fn as_user<T>(uid: u32, gid: u32, access: impl FnOnce() -> T) -> T {
    let _roots_again = FsIds;
    set(uid, gid);
    access()
}

/// Makes this thread, and those that it starts, reach files as another user with these groups, for as
/// long as it lives. Legal for root of its user namespace.
///
/// # Errors
/// When the thread may not: then it must not go on.
pub fn take_on(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    let groups: Vec<_> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    set_thread_groups(&groups)?;
    set(uid, gid);
    // An invalid id changes nothing; the call returns the id in force.
    let none = u32::MAX;
    // SAFETY: takes no pointers, and changes nothing.
    let now = unsafe {
        (libc::syscall(libc::SYS_setfsuid, none), libc::syscall(libc::SYS_setfsgid, none))
    };
    if now == (i64::from(uid), i64::from(gid)) {
        return Ok(());
    }
    Err(io::ErrorKind::PermissionDenied.into())
}

/// Sets the ids of file accesses; an id that the kernel refuses stays as it is.
fn set(uid: u32, gid: u32) {
    // SAFETY: takes no pointers, and changes this thread alone.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn what_is_made_meanwhile_is_the_users_and_nothing_later() {
        if !rustix::process::geteuid().is_root() {
            return hivekeep_skip::skip("only root is somebody else");
        }
        let dir = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::chown(dir.path(), Some(1234), Some(1235)).expect("given");
        let make = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, "").expect("made");
            let meta = std::fs::metadata(path).expect("there");
            (meta.uid(), meta.gid())
        };
        assert_eq!(as_user(1234, 1235, || make("theirs")), (1234, 1235));
        assert_eq!(make("roots"), (0, 0));
    }

    #[test]
    fn a_thread_takes_a_user_on_with_the_groups_and_so_do_those_that_it_starts() {
        if !rustix::process::geteuid().is_root() {
            return hivekeep_skip::skip("only root is somebody else");
        }
        let dir = tempfile::tempdir().expect("a folder");
        let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(dir.path(), mode(0o755)).expect("set");
        let file = |name: &str, gid: u32| {
            let path = dir.path().join(name);
            std::fs::write(&path, "x").expect("made");
            std::os::unix::fs::chown(&path, Some(0), Some(gid)).expect("given");
            std::fs::set_permissions(&path, mode(0o640)).expect("set");
            path
        };
        let (roots, groups) = (file("roots", 0), file("groups", 4711));
        let seen = std::thread::spawn(move || {
            take_on(1234, 1235, &[1235, 4711]).expect("taken on");
            let look = move || (std::fs::read(&roots).is_ok(), std::fs::read(&groups).is_ok());
            (look(), std::thread::spawn(look).join().expect("looked"))
        });
        assert_eq!(seen.join().expect("looked"), ((false, true), (false, true)));
        assert!(std::fs::read(dir.path().join("roots")).is_ok(), "this thread is root's still");
    }
}
