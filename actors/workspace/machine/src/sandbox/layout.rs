//! Mount layout of a sandbox: its parts, mounted where its unprivileged user can reach them.
//!
//! The image's tree is root's, so that no machine can change it or run its set-user-id programs.
//! Inside a sandbox's user namespace only the machine's own user exists, and a contained root has
//! no rights over files of anybody else. So the tree is mounted with an id map (mount_setattr(2),
//! MOUNT_ATTR_IDMAP) in which root's files are that user's, read-only. A daemon that is not root
//! has a copy of the tree for each such user instead, see [`crate::sandbox`]. The tree, the overlay
//! and the guest daemon are bound below `/run` of a mount namespace of the sandbox alone: no mount
//! is left on the host when the sandbox ends, by whatever cause, and the modes of the daemon's own
//! folders do not matter.
//!
//! Where the sandbox has several users, the map is that of its user namespace, and the process enters
//! that once everything is mounted: see [`super::ids`].
//!
//! A volume is mounted with the same id map: what root wrote there is the machine user's, and what
//! that writes is root's on the volume, so that machines with other users find it theirs too. A folder
//! of the host is mounted with one from its owner.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use hivekeep_confine::idmap::user_namespace_of;
use hivekeep_confine::mounts::{self, done, mount, move_mount, open_tree};

use super::args::User;
use super::subordinates::Within;
use crate::{MAX_VOLUMES, VolumeMount};

/// Mount points of the parts.
pub(super) const TREE: &str = "/run/lower";
pub(super) const OVERLAY: &str = "/run/overlay";
pub(super) const GUEST: &str = "/run/guest";
/// Folder of the volumes' mount points, which are numbers.
pub(super) const VOLUMES: &str = "/run/volumes";

/// Mounts to make between fork and exec, while still root, or root of the subordinate users'
/// namespace.
pub(crate) struct Layout {
    tree: CString,
    overlay: CString,
    guest: CString,
    volumes: Vec<MappedVolume>,
    rights: Rights,
}

/// Volume to mount with the machine user's rights.
struct MappedVolume {
    folder: CString,
    target: CString,
    read_only: bool,
    /// Namespace that maps the owner of a folder of the host, or the users of a volume; without one
    /// the volume has the map of the tree.
    map: Option<OwnedFd>,
}

/// Source of the machine user's rights over the tree.
enum Rights {
    /// An id map from root to the user that this namespace maps.
    Mapped(OwnedFd),
    /// Map of a user namespace with several users, which is the sandbox's own too.
    Several(OwnedFd),
    /// Ownership: the files are the user's.
    Own(Within),
}

impl Layout {
    /// Prepares the mounts, with an id map where one is needed. Blocks for some system calls.
    pub(super) fn new(tree: &Path, overlay: &Path, guest: &Path, user: &User) -> io::Result<Self> {
        let c_string =
            |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other);
        let rights = match (&user.within, &user.several) {
            (Some(within), _) => Rights::Own(within.clone()),
            (None, Some(ids)) => Rights::Several(ids.namespace(user.host)?),
            (None, None) => Rights::Mapped(user_namespace_of((0, 0), user.host.ids())?),
        };
        let (tree, overlay, guest) = (c_string(tree)?, c_string(overlay)?, c_string(guest)?);
        Ok(Self { tree, overlay, guest, volumes: Vec::new(), rights })
    }

    /// Adds volumes, at most [`MAX_VOLUMES`].
    pub(super) fn with_volumes(mut self, volumes: &[VolumeMount], user: &User) -> io::Result<Self> {
        if !volumes.is_empty() && matches!(self.rights, Rights::Own(_)) {
            return Err(io::Error::other("only root maps the ids of a volume"));
        }
        let map = |volume: &VolumeMount| match (volume.owner, &user.several) {
            // Root's alone: what other users would make there has no owner on the host.
            (Some(of), _) => user_namespace_of(of, user.host.ids()).map(Some),
            (None, Some(ids)) => ids.volume_namespace(user.host).map(Some),
            (None, None) => Ok(None),
        };
        let mapped = |(n, volume): (usize, &VolumeMount)| {
            Ok(MappedVolume {
                folder: CString::new(volume.folder.as_os_str().as_bytes())?,
                target: CString::new(format!("{VOLUMES}/{n}"))?,
                read_only: volume.read_only,
                map: map(volume)?,
            })
        };
        self.volumes = volumes.iter().enumerate().map(mapped).collect::<io::Result<_>>()?;
        Ok(self)
    }

    /// Id of the machine's user in the namespace that is entered, for user and group alike.
    pub(crate) fn id_within(&self) -> Option<u32> {
        match &self.rights {
            Rights::Own(within) => Some(within.id),
            Rights::Several(_) => Some(0),
            Rights::Mapped(_) => None,
        }
    }

    /// True if the program is root of the user namespace that is entered, and makes none itself.
    pub(crate) fn is_root_within(&self) -> bool {
        matches!(self.rights, Rights::Several(_))
    }

    /// Mounts. Makes system calls on data made before the fork; takes no lock, allocates nothing.
    pub(crate) fn enter(&self) -> io::Result<()> {
        if let Rights::Own(within) = &self.rights {
            let namespace = within.namespace.as_raw_fd();
            // SAFETY: takes no pointers; the child has one thread.
            done(unsafe { libc::setns(namespace, libc::CLONE_NEWUSER) }.into())?;
        }
        // SAFETY: takes no pointers; the child has one thread.
        done(unsafe { libc::unshare(libc::CLONE_NEWNS) }.into())?;
        mount(None, c"/", None, libc::MS_REC | libc::MS_SLAVE)?;
        // The sources are looked up before the mount that may cover them.
        let tree = self.view(&self.tree, true, None)?;
        let mut volumes = [0; MAX_VOLUMES];
        for (view, volume) in volumes.iter_mut().zip(&self.volumes) {
            *view = self.view(&volume.folder, volume.read_only, volume.map.as_ref())?;
        }
        let overlay = open_tree(&self.overlay)?;
        let guest = open_tree(&self.guest)?;
        mount(Some(c"tmpfs"), c"/run", Some(c"tmpfs"), libc::MS_NOSUID | libc::MS_NODEV)?;
        // SAFETY: the paths are static C strings.
        unsafe {
            done(libc::chmod(c"/run".as_ptr(), 0o755).into())?;
            done(libc::mkdir(c"/run/lower".as_ptr(), 0o755).into())?;
            done(libc::mkdir(c"/run/overlay".as_ptr(), 0o755).into())?;
            done(libc::mkdir(c"/run/volumes".as_ptr(), 0o755).into())?;
            // Whatever the umask is: unlike the others it is no mount point.
            done(libc::chmod(c"/run/volumes".as_ptr(), 0o755).into())?;
            done(libc::mknod(c"/run/guest".as_ptr(), libc::S_IFREG | 0o755, 0).into())?;
        }
        for (view, volume) in volumes.into_iter().zip(&self.volumes) {
            // SAFETY: the path is a C string that lives on.
            done(unsafe { libc::mkdir(volume.target.as_ptr(), 0o755) }.into())?;
            move_mount(view, &volume.target)?;
        }
        move_mount(tree, c"/run/lower")?;
        move_mount(overlay, c"/run/overlay")?;
        move_mount(guest, c"/run/guest")?;
        match &self.rights {
            Rights::Mapped(_) => Ok(()),
            // SAFETY: takes no pointers; the child has one thread.
            Rights::Several(namespace) => {
                done(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWUSER).into() })
                    .map(drop)
            }
            Rights::Own(within) => give_overlay(within.id),
        }
    }

    /// Mount of a folder in which root's files, or those of the user of another map, are the machine
    /// user's.
    fn view(
        &self,
        folder: &CStr,
        read_only: bool,
        other: Option<&OwnedFd>,
    ) -> io::Result<libc::c_long> {
        let map = match &self.rights {
            Rights::Mapped(map) | Rights::Several(map) => Some(other.unwrap_or(map).as_raw_fd()),
            Rights::Own(_) => None,
        };
        mounts::view(folder, read_only, map)
    }
}

/// Makes the missing folders of the overlay and gives them to the machine's user: the outer folder
/// first, so that a folder that was begun is known to be that user's.
fn give_overlay(id: u32) -> io::Result<()> {
    let folders = [
        (c"/run/overlay", 0o700),
        // The upper folder becomes the guest's root.
        (c"/run/overlay/upper", 0o755),
        (c"/run/overlay/work", 0o700),
    ];
    for (folder, mode) in folders {
        // SAFETY: the paths are static C strings. A folder that is there stays as it is.
        let made = unsafe { libc::mkdir(folder.as_ptr(), mode) };
        if made == 0 {
            // Whatever the umask is. SAFETY: as above.
            done(unsafe { libc::chmod(folder.as_ptr(), mode) }.into())?;
        } else if io::Error::last_os_error().raw_os_error() != Some(libc::EEXIST) {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above.
        done(unsafe { libc::lchown(folder.as_ptr(), id, id) }.into())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::MachineUser;
    use std::fs;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn roots_files_become_the_machine_users_and_stay_read_only() {
        if !rustix::process::geteuid().is_root() {
            return hivekeep_skip::skip("only root maps ids");
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("tree")).unwrap();
        fs::create_dir(at("overlay")).unwrap();
        fs::write(at("guest"), "g").unwrap();
        fs::write(at("tree").join("file"), "x").unwrap();
        let host = MachineUser { uid: 64_777, gid: 64_777, switch: true };
        let user = User { host, within: None, several: None };
        let layout = Layout::new(&at("tree"), &at("overlay"), &at("guest"), &user).unwrap();
        let mut command = Command::new("sh");
        let script = "stat -c %u:%g /run/lower/file; echo y > /run/lower/file || echo refused; \
            touch /run/overlay/made; cat /run/guest";
        command.args(["-c", script]);
        // SAFETY: `enter` is made for this place.
        unsafe { command.pre_exec(move || layout.enter()) };
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "64777:64777\nrefused\ng");
        assert!(!Path::new(TREE).exists(), "the mount is seen on the host");
        assert!(at("overlay").join("made").exists());
        assert_eq!(fs::read_to_string(at("tree").join("file")).unwrap(), "x");
    }
}
