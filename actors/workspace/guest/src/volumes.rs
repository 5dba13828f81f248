//! Volumes: file systems of the host, mounted where the host says.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use hivekeep_protocol::{GuestCode, GuestError, MountVolume, VolumeMounted};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, mkdirat, open, openat, statx};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use crate::files::{io_error, off_thread};
use crate::session::call::RequestContext;
use crate::settings::GuestKind;

const KIND: &str = "virtiofs";
/// The driver is loaded beside the first calls, see `init`.
const DRIVER_WAIT: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Answers [`MountVolume`].
///
/// # Errors
/// `Unsupported` in a sandbox and where the kernel has no driver, `NotADirectory` for a link or a
/// file in the way, or as the kernel says.
pub async fn mount_one(
    cx: &RequestContext,
    asked: MountVolume,
) -> Result<VolumeMounted, GuestError> {
    if cx.agent.settings.place == GuestKind::Sandbox {
        let text = "a sandbox has its volumes from its start";
        return Err(GuestError::new(GuestCode::Unsupported, text));
    }
    let agent = cx.agent.clone();
    off_thread(move || {
        let _alone = agent.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        let target = folder(Path::new("/"), Path::new(&asked.path));
        let target = target.map_err(|error| io_error(&error, &asked.path))?;
        if is_mounted(&target, &asked.tag).map_err(|error| io_error(&error, &asked.path))? {
            return Ok(VolumeMounted { was_mounted: true });
        }
        attach(&target, &asked)?;
        Ok(VolumeMounted { was_mounted: false })
    })
    .await
}

/// Opens a folder below `root`, and makes what is missing of it. No link is followed.
///
/// # Errors
/// For `..`, and for what is no folder.
pub(crate) fn folder(root: &Path, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut target = open(root, flags, Mode::empty())?;
    for part in path.components() {
        match part {
            Component::RootDir => continue,
            Component::Normal(name) => {
                match mkdirat(&target, name, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno.into()),
                }
                target = openat(&target, name, flags, Mode::empty())?;
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
    Ok(target)
}

/// Mounts once the driver is there.
fn attach(target: &OwnedFd, asked: &MountVolume) -> Result<(), GuestError> {
    let read_only = if asked.read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    let flags = MountFlags::NOSUID | MountFlags::NODEV | read_only;
    let at = format!("/proc/self/fd/{}", target.as_raw_fd());
    let end = Instant::now() + DRIVER_WAIT;
    loop {
        match mount(asked.tag.as_str(), at.as_str(), KIND, flags, c"") {
            Ok(()) => return Ok(()),
            Err(Errno::NODEV) if Instant::now() < end => std::thread::sleep(LOOK_EVERY),
            Err(Errno::NODEV) => {
                let text = "the kernel of this machine's image has no driver for virtio-fs";
                return Err(GuestError::new(GuestCode::Unsupported, text));
            }
            Err(error) => return Err(io_error(&error.into(), &asked.path)),
        }
    }
}

/// True if the folder is the root of the device's file system.
fn is_mounted(folder: &OwnedFd, tag: &str) -> io::Result<bool> {
    let id = statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?.stx_mnt_id;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    Ok(mounts.lines().any(|line| is_mount_of(line, id, tag)))
}

/// True if a line of `mountinfo` is the mount of this id, with the root of the device's file system.
fn is_mount_of(line: &str, id: u64, tag: &str) -> bool {
    let Some((mount, kind)) = line.split_once(" - ") else { return false };
    let mut mount = mount.split(' ');
    mount.next().and_then(|word| word.parse().ok()) == Some(id)
        && mount.nth(2) == Some("/")
        && kind.split(' ').take(2).eq([KIND, tag])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_known_by_its_id_kind_and_tag() {
        let line = "87 63 0:31 / /a\\040b rw,nosuid - virtiofs volume0 rw";
        assert!(is_mount_of(line, 87, "volume0"));
        for (id, tag) in [(8, "volume0"), (88, "volume0"), (87, "volume1"), (87, "volume")] {
            assert!(!is_mount_of(line, id, tag), "{id} {tag}");
        }
        assert!(!is_mount_of(&line.replace(" / /a", " /x /a"), 87, "volume0"));
        assert!(!is_mount_of(&line.replace("virtiofs", "tmpfs"), 87, "volume0"));
    }

    #[test]
    fn folders_are_made_and_no_link_is_followed() {
        let root = tempfile::tempdir().unwrap();
        let below = |path: &str| folder(root.path(), Path::new(path));
        below("/a/b").unwrap();
        assert!(root.path().join("a/b").is_dir());
        std::os::unix::fs::symlink("/tmp", root.path().join("out")).unwrap();
        std::fs::write(root.path().join("file"), "").unwrap();
        for bad in ["/out", "/out/x", "/a/../b", "/file", "/file/x"] {
            assert!(below(bad).is_err(), "{bad}");
        }
    }
}
