//! The sandbox's root: an overlay, and the few special places in it.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, unmount};

const NEW_ROOT: &str = "/newroot";
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
];
/// Size of the file system of `/dev`, for a few nodes and links.
const DEV_BYTES: u64 = 1 << 20;
const PAGE_BYTES: u64 = 4096;
/// Path of this program inside the sandbox: what the sandbox was started from is gone after the pivot, and
/// Landlock lets nothing be executed that is not below `/`.
pub(super) const GUEST: &CStr = c"/run/hivekeep/guest";

/// The root could not be made.
#[derive(Debug, thiserror::Error)]
#[error("sandbox: {step}: {cause}")]
pub struct Error {
    step: &'static str,
    #[source]
    cause: io::Error,
}

fn at<T>(step: &'static str, result: Result<T, impl Into<io::Error>>) -> Result<T, Error> {
    result.map_err(|cause| Error { step, cause: cause.into() })
}

/// Mounts everything and makes it the root. `/run` and `/dev/shm` hold `tmpfs_mb` each at most;
/// without it half of the host's memory, as the kernel has it.
pub(super) fn enter(
    lower: &Path,
    upper: &Path,
    work: &Path,
    volumes: &[(PathBuf, PathBuf)],
    tmpfs_mb: Option<u64>,
) -> Result<(), Error> {
    let root = Path::new(NEW_ROOT);
    at("new root", std::fs::create_dir_all(root))?;
    let options = format!(
        "lowerdir={},upperdir={},workdir={},userxattr",
        lower.display(),
        upper.display(),
        work.display()
    );
    let options = at("overlay options", CString::new(options).map_err(io::Error::other))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    at("overlay", mount("overlay", root, "overlay", flags, options.as_c_str()))?;
    for name in ["proc", "dev", "run", "tmp", "sys"] {
        at("folders", std::fs::create_dir_all(root.join(name)))?;
    }
    // The one that bubblewrap mounted for this PID namespace.
    at("/proc", mount_bind_recursive("/proc", root.join("proc")))?;
    devices(&root.join("dev"), tmpfs_mb)?;
    tmpfs("/run", &root.join("run"), flags, 755, tmpfs_mb.map(|mb| mb << 20))?;
    guest(&root.join(GUEST.to_string_lossy().trim_start_matches('/')))?;
    for (folder, path) in volumes {
        at("a volume's folder", volume(root, folder, path))?;
    }
    at("pivot", std::env::set_current_dir(root))?;
    at("pivot", rustix::process::pivot_root(".", "."))?;
    at("leave the old root", unmount(".", UnmountFlags::DETACH))?;
    at("pivot", std::env::set_current_dir("/"))
}

/// A file a page at most: those cost the kernel memory, too.
fn tmpfs(
    step: &'static str,
    target: &Path,
    flags: MountFlags,
    mode: u32,
    bytes: Option<u64>,
) -> Result<(), Error> {
    let size = bytes.map(|bytes| format!(",size={bytes},nr_inodes={}", bytes / PAGE_BYTES));
    let options = format!("mode={mode}{}", size.unwrap_or_default());
    let options = at(step, CString::new(options).map_err(io::Error::other))?;
    at(step, mount("tmpfs", target, "tmpfs", flags, options.as_c_str()))
}

/// Mounts a volume. What the sandbox left in its root before is not trusted: no link is followed.
fn volume(root: &Path, folder: &Path, path: &Path) -> io::Result<()> {
    let target = crate::volumes::folder(root, path)?;
    Ok(mount_bind(folder, format!("/proc/self/fd/{}", target.as_raw_fd()))?)
}

fn devices(dev: &Path, shm_mb: Option<u64>) -> Result<(), Error> {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    // Not 1777: the kernel refuses writes to another user's device in a sticky folder.
    tmpfs("/dev", dev, flags, 755, Some(DEV_BYTES))?;
    for name in DEVICES {
        let target = dev.join(name);
        at("/dev", std::fs::File::create(&target))?;
        at("/dev", mount_bind(Path::new("/dev").join(name), &target))?;
    }
    for name in ["pts", "shm"] {
        at("/dev", std::fs::create_dir(dev.join(name)))?;
    }
    let pts = c"newinstance,ptmxmode=0666,mode=620";
    at("/dev/pts", mount("devpts", dev.join("pts"), "devpts", flags, pts))?;
    let shm = flags | MountFlags::NODEV;
    tmpfs("/dev/shm", &dev.join("shm"), shm, 1777, shm_mb.map(|mb| mb << 20))?;
    for (target, name) in LINKS {
        at("/dev", symlink(target, dev.join(name)))?;
    }
    Ok(())
}

fn guest(target: &Path) -> Result<(), Error> {
    let parent = target.parent().unwrap_or(Path::new("/"));
    at("/run/hivekeep", std::fs::create_dir_all(parent))?;
    at("the guest's own program", std::fs::File::create(target))?;
    at("the guest's own program", mount_bind("/proc/self/exe", target))
}
