//! Mount calls between fork and exec: on data made before the fork, without a lock or an allocation.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;
use std::ptr::null;

/// Makes a mount of a folder that is not attached anywhere, without set-user-id programs and
/// devices, and with the id map of the user namespace `map`.
///
/// # Errors
/// Of the kernel; `EINVAL` where the file system maps no ids.
pub fn view(folder: &CStr, read_only: bool, map: Option<RawFd>) -> io::Result<libc::c_long> {
    let view = open_tree(folder)?;
    let read_only = if read_only { libc::MOUNT_ATTR_RDONLY } else { 0 };
    let mapped = if map.is_some() { libc::MOUNT_ATTR_IDMAP } else { 0 };
    let attributes = libc::mount_attr {
        attr_set: read_only | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | mapped,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::try_from(map.unwrap_or_default()).unwrap_or(u64::MAX),
    };
    // SAFETY: the structure and its size are those of this call; the path is a static C string.
    done(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            view,
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    })?;
    Ok(view)
}

/// Makes a mount of a file or a folder that is not attached anywhere.
///
/// # Errors
/// Of the kernel.
pub fn open_tree(path: &CStr) -> io::Result<libc::c_long> {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    // SAFETY: the path is a C string that lives on.
    done(unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) })
}

/// Attaches a mount.
///
/// # Errors
/// Of the kernel.
pub fn move_mount(tree: libc::c_long, target: &CStr) -> io::Result<()> {
    // SAFETY: both paths are C strings that live on.
    done(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree,
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            libc::MOVE_MOUNT_F_EMPTY_PATH,
        )
    })
    .map(drop)
}

/// Makes a mount without data, or changes how one propagates.
///
/// # Errors
/// Of the kernel.
pub fn mount(
    source: Option<&CStr>,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
) -> io::Result<()> {
    let (source, kind) = (source.map_or(null(), CStr::as_ptr), kind.map_or(null(), CStr::as_ptr));
    // SAFETY: the paths are C strings or null; these mounts take no data.
    done(unsafe { libc::mount(source, target.as_ptr(), kind, flags, null()) }.into()).map(drop)
}

/// Result of a system call.
///
/// # Errors
/// The thread's `errno`, for a negative result.
pub fn done(result: libc::c_long) -> io::Result<libc::c_long> {
    if result >= 0 { Ok(result) } else { Err(io::Error::last_os_error()) }
}
