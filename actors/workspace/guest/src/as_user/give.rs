//! Ownership given to a user before its work begins: standard streams and the working folder.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, Gid, Mode, OFlags, Uid};

use super::Identity;

/// Folder that relative paths begin at.
pub(crate) const HOME: &str = "/workspace";

/// Gives pipes and terminals among the standard streams to the user, who could not open them by their names
/// (`/dev/stdout`) otherwise. A stream that cannot be given is usable all the same.
pub(super) fn streams(identity: &Identity) {
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    let streams = [std::io::stdin().as_fd(), std::io::stdout().as_fd(), std::io::stderr().as_fd()]
        .map(|stream: BorrowedFd<'_>| stream.try_clone_to_owned());
    for stream in streams.into_iter().flatten() {
        let is_pipe = rustix::fs::fstat(&stream)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        if is_pipe {
            let _ = rustix::fs::fchown(&stream, Some(uid), Some(gid));
        } else if rustix::termios::isatty(&stream) {
            let _ = rustix::fs::fchown(&stream, Some(uid), None);
        }
    }
}

/// Gives the folder that relative paths begin at to the user if it is missing, or is the daemon's own and
/// empty: the first user who works there has it. A volume there is left as it is, for other workspaces have it
/// too. Where that fails, the user may not write in it.
pub(crate) fn give_home(identity: &Identity) {
    let _is_there = std::fs::create_dir(HOME);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::open(HOME, flags, Mode::empty()) else { return };
    let (Ok(stat), Ok(root)) = (rustix::fs::fstat(&folder), rustix::fs::stat("/")) else { return };
    let is_own = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_dev == root.st_dev;
    if is_own && std::fs::read_dir(HOME).is_ok_and(|mut entries| entries.next().is_none()) {
        let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
        let _ = rustix::fs::fchown(&folder, Some(uid), Some(gid));
    }
}
