//! Image files of volumes, and their mounts: sparse ext4 behind loop devices.
//!
//! ```text
//! state/volumes/ID/image     sparse file of the volume's size, ext4
//! state/volumes/ID/mounted   where it is mounted while something uses it
//! ```
//! The file system's size is the limit of the volume: the kernel keeps it for every writer. Guests
//! write files only, through a mount, and never the image itself, so the host mounts nothing that a
//! guest made. A mount belongs to the host and outlives the daemon. All functions
//! block. What a host lacks for them is told by [`missing`].

use std::{
    env,
    fs::{self, DirBuilder, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use cap_std::{ambient_authority, fs::Dir};
use hivekeep_kernel::{VolumeId, fault_point};
use rustix::{io::Errno, mount::UnmountFlags};

const IMAGE: &str = "image";
const MOUNTED: &str = "mounted";
/// Program and Debian package that make a file system.
const MKFS: &str = "mkfs.ext4";
/// Program that mounts it. It attaches the loop device, and takes the one that the image has already
/// where another mount namespace still holds it: two devices over one image would destroy it.
const MOUNT: &str = "mount";
/// Deleted files give their room back to the host; what goes wrong on the disk makes the volume
/// read-only instead of worse.
const MOUNT_OPTIONS: &str = "loop,nosuid,nodev,noatime,discard,errors=remount-ro";

/// Folder of all volumes. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct VolumeImages(PathBuf);

impl VolumeImages {
    /// Opens the folder, and makes it where it is missing: for the daemon's user alone.
    pub(crate) fn open(root: PathBuf) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&root)?;
        Ok(Self(root))
    }

    /// Folder of all volumes.
    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    /// Place at which a volume is mounted.
    pub(crate) fn mounted(&self, id: VolumeId) -> PathBuf {
        self.folder(id).join(MOUNTED)
    }

    fn folder(&self, id: VolumeId) -> PathBuf {
        self.0.join(id.to_string())
    }

    /// Makes the image, durably. A crash leaves a part of the folder.
    pub(crate) fn make(&self, id: VolumeId, size_bytes: u64) -> io::Result<()> {
        let folder = self.folder(id);
        DirBuilder::new().mode(0o700).create(&folder)?;
        DirBuilder::new().mode(0o700).create(folder.join(MOUNTED))?;
        let path = folder.join(IMAGE);
        let image = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        image.set_len(size_bytes)?;
        // No room is kept for root, who is no other user here, nor for growing.
        let words =
            ["-q", "-F", "-m", "0", "-O", "^resize_inode", "-E", "nodiscard,root_owner=0:0"];
        run(Command::new(MKFS).args(words).arg(&path))?;
        image.sync_all()?;
        hivekeep_fs::sync_folder(&folder)?;
        hivekeep_fs::sync_folder(&self.0)
    }

    /// Mounts a volume that is not mounted, and opens its root: while the handle is open, it stays so.
    pub(crate) fn mount(&self, id: VolumeId) -> io::Result<Dir> {
        let mounted = self.mounted(id);
        if !self.is_mounted(id)? {
            fault_point!("volume.before_mount");
            let image = self.folder(id).join(IMAGE);
            let words = ["-t", "ext4", "-o", MOUNT_OPTIONS];
            run(Command::new(MOUNT).args(words).arg(image).arg(&mounted))?;
            fault_point!("volume.after_mount");
        }
        let root = Dir::open_ambient_dir(&mounted, ambient_authority())?;
        // Otherwise what is written would land on the host's disk.
        if !self.is_mounted(id)? {
            return Err(io::Error::other("it is not mounted, although `mount` said so"));
        }
        Ok(root)
    }

    /// Removes what a new file system has of its own, so that the volume begins empty.
    pub(crate) fn empty(root: &Dir) -> io::Result<()> {
        match root.remove_dir("lost+found") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn is_mounted(&self, id: VolumeId) -> io::Result<bool> {
        let outside = fs::metadata(self.folder(id))?.dev();
        Ok(fs::metadata(self.mounted(id))?.dev() != outside)
    }

    /// Unmounts a volume that nothing has open; false if something has.
    pub(crate) fn unmount(&self, id: VolumeId) -> io::Result<bool> {
        let unmounted = rustix::mount::unmount(self.mounted(id), UnmountFlags::NOFOLLOW);
        fault_point!("volume.after_unmount");
        match unmounted {
            // `EINVAL`: the volume was not mounted.
            Ok(()) | Err(Errno::INVAL) => Ok(true),
            Err(Errno::BUSY) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes a volume with all its content. What still has files of it open keeps them until it
    /// closes them. Success if nothing is there.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        let folder = self.0.join(name);
        // Once for each mount that lies there: a person may have made another.
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        while rustix::mount::unmount(folder.join(MOUNTED), flags).is_ok() {}
        fault_point!("volume.after_detach");
        hivekeep_fs::remove_tree(&folder)?;
        hivekeep_fs::sync_folder(&self.0)
    }

    /// Names of the volumes whose folders are there.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.0)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    /// Bytes that the image takes of the host's disk.
    pub(crate) fn held_bytes(&self, id: VolumeId) -> u64 {
        fs::metadata(self.folder(id).join(IMAGE)).map_or(0, |metadata| metadata.blocks() * 512)
    }
}

/// Bytes of a mounted volume that nothing takes.
pub(crate) fn free_bytes(root: &Dir) -> io::Result<u64> {
    let fs = rustix::fs::fstatvfs(root)?;
    Ok(fs.f_bavail.saturating_mul(fs.f_frsize))
}

/// Runs a program to its end; its error is what it says.
fn run(command: &mut Command) -> io::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).env("LC_ALL", "C").output();
    let output =
        output.map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program}: {}: {}", output.status, said.trim())))
}

/// Lack of a host: what it is, what to do about it, and the package that brings it.
type Lack = (String, &'static str, Option<&'static str>);

/// Requirements that this host lacks.
pub(crate) fn missing() -> Vec<Lack> {
    let mut missing = Vec::new();
    if !rustix::process::geteuid().is_root() {
        let what = "volumes are mounted by a daemon that is root, and this one is not".to_owned();
        missing.push((what, "run the daemon as root, as docs/hivekeep.service does", None));
    }
    if !Path::new("/dev/loop-control").exists() {
        let what = "/dev/loop-control is missing: this host has no loop devices".to_owned();
        missing.push((what, "load the kernel's module `loop`", None));
    }
    for (program, package) in [(MKFS, "e2fsprogs"), (MOUNT, "mount")] {
        if !in_path(program) {
            let what = format!("{program} is not installed");
            missing.push((what, "install its package", Some(package)));
        }
    }
    missing
}

fn in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
