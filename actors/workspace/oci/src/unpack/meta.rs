//! Attributes of entries, and how they are put on what was made.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
};

use hivekeep_image::FileOwner;
use rustix::{
    fs::{
        AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, chownat, fchmod,
        fchown, fsetxattr, futimens, utimensat,
    },
    io::Errno,
};

/// Attribute with the capabilities of a program.
const CAPABILITY: &str = "security.capability";
/// Prefix of the attributes that overlayfs gives a meaning.
const OVERLAY: &str = "user.overlay.";

/// Attributes of an entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EntryMeta {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Seconds and nanoseconds.
    pub(super) modified: (i64, i64),
    pub(super) xattrs: Vec<(String, Vec<u8>)>,
}

impl EntryMeta {
    /// Owner and capability that the store keeps beside the file; `None` for what is plainly root's.
    pub(super) fn owner(&self) -> Option<FileOwner> {
        let capability = self.xattrs.iter().find(|(name, _)| name == CAPABILITY);
        let capability = capability
            .map(|(_, value)| value.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        let owner = FileOwner { uid: self.uid, gid: self.gid, capability };
        (owner != FileOwner::default()).then_some(owner)
    }

    /// Puts the attributes on an open file or folder. Only root can give files away and set capabilities; for
    /// others they are kept in the list of owners.
    ///
    /// Returns how many attributes were left out.
    pub(super) fn put_on(&self, file: &File, is_root: bool) -> io::Result<u64> {
        if is_root {
            fchown(file, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))?;
        }
        // After chown(2), which takes the set-user-id bits away.
        fchmod(file, Mode::from_raw_mode(self.mode))?;
        let mut left_out = 0;
        for (name, value) in &self.xattrs {
            let capability = name == CAPABILITY;
            let users = name.starts_with("user.") && !name.starts_with(OVERLAY);
            if capability && !is_root {
                continue;
            }
            if !capability && !users {
                left_out += 1;
                continue;
            }
            match fsetxattr(file, name.as_str(), value, XattrFlags::empty()) {
                // The file system of the store has none.
                Err(Errno::NOTSUP) if users => left_out += 1,
                set => set?,
            }
        }
        futimens(file, &times(self.modified))?;
        Ok(left_out)
    }

    /// Puts the attributes on a link itself.
    pub(super) fn put_on_link(&self, at: &OwnedFd, name: &str, is_root: bool) -> io::Result<()> {
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        if is_root {
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
            chownat(at.as_fd(), name, Some(uid), Some(gid), nofollow)?;
        }
        Ok(utimensat(at.as_fd(), name, &times(self.modified), nofollow)?)
    }
}

fn times((tv_sec, tv_nsec): (i64, i64)) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec, tv_nsec },
    }
}
