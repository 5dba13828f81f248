//! File access as another user, by one thread.
#![allow(unsafe_code)]

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

/// One that may not be had stays what it is.
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
            return eprintln!("SKIPPED: only root is somebody else");
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
}
