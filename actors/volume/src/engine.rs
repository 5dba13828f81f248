//! File operations beneath the handle of a mounted volume. Guests change it meanwhile: each path is
//! resolved by the kernel beneath the handle, and nothing that is not a file is opened. All functions
//! block.

use std::{
    io::{self, Read, Seek, SeekFrom, Write},
    os::fd::AsRawFd,
    path::Path,
};

use cap_std::fs::{Dir, File, Metadata, MetadataExt, OpenOptions, OpenOptionsExt, PermissionsExt};
use hivekeep_kernel::{Layer, ToolError};
use rustix::{
    fs::{Gid, Mode, OFlags, Uid, fchmod, fchown, fsync, openat},
    io::Errno,
};

use crate::{codes, images::free_bytes, volume_path::VolumePath, volume_path::outside};

/// Names of one folder that are looked at; a hostile one has more.
const MAX_NAMES: usize = 100_000;

/// Range of a file.
pub(crate) struct FileRange {
    pub(crate) bytes: Vec<u8>,
    pub(crate) size_bytes: u64,
}

/// Reads at most `limit` bytes from `offset` on.
///
/// # Errors
/// `volume_not_a_file`, `is_a_directory`, and as [`failed`].
pub(crate) fn read(
    root: &Dir,
    path: &VolumePath,
    offset: u64,
    limit: u64,
) -> Result<FileRange, ToolError> {
    let io = |error| failed(&error, path, root);
    // Looked at before it is opened: to open a device may do something.
    regular(&root.metadata(path.as_str()).map_err(io)?, path)?;
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let options = OpenOptions::new().read(true).custom_flags(flags).clone();
    let mut file = root.open_with(path.as_str(), &options).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    regular(&metadata, path)?;
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset.min(metadata.len()))).map_err(io)?;
    file.take(limit).read_to_end(&mut bytes).map_err(io)?;
    Ok(FileRange { bytes, size_bytes: metadata.len() })
}

/// Entries of a folder.
pub(crate) struct FolderNames {
    /// Sorted by name; without metadata for one that was removed meanwhile.
    pub(crate) entries: Vec<(String, Option<Metadata>)>,
    /// True if there are more than are looked at.
    pub(crate) more: bool,
}

/// Lists a folder.
///
/// # Errors
/// As [`failed`].
pub(crate) fn list(root: &Dir, path: &VolumePath) -> Result<FolderNames, ToolError> {
    let io = |error| failed(&error, path, root);
    let mut names = root.read_dir(path.as_str()).map_err(io)?;
    let mut entries = Vec::new();
    for entry in names.by_ref().take(MAX_NAMES) {
        let entry = entry.map_err(io)?;
        let metadata = entry.metadata().ok();
        entries.push((entry.file_name().to_string_lossy().into_owned(), metadata));
    }
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(FolderNames { entries, more: names.next().is_some() })
}

/// Replaces the content of a file, which keeps its mode and owner, or makes it with its folders: whole,
/// or not at all. True if there was a file before. A link is replaced, not followed.
///
/// # Errors
/// `volume_full`, `volume_not_a_file`, `is_a_directory`, and as [`failed`].
pub(crate) fn write(root: &Dir, path: &VolumePath, content: &[u8]) -> Result<bool, ToolError> {
    let io = |error| failed(&error, path, root);
    let (parent, name) = path.split()?;
    make_all(root, parent).map_err(io)?;
    let folder = root.open_dir(parent).map_err(io)?;
    let before = match folder.symlink_metadata(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        found => Some(found.map_err(io)?),
    };
    if let Some(before) = before.as_ref().filter(|before| !before.is_symlink()) {
        regular(before, path)?;
    }
    let draft = format!(".{}.hivekeep-draft", uuid::Uuid::now_v7().simple());
    let written = fill(&folder, &draft, content, before.as_ref())
        .and_then(|()| folder.rename(&draft, &folder, name))
        .and_then(|()| sync(&folder));
    if written.is_err() {
        // The error that led here is the one that is told.
        let _ = folder.remove_file(&draft);
    }
    written.map_err(io)?;
    Ok(before.is_some())
}

fn fill(folder: &Dir, draft: &str, content: &[u8], before: Option<&Metadata>) -> io::Result<()> {
    let options = OpenOptions::new().write(true).create_new(true).mode(0o600).clone();
    let mut file: File = folder.open_with(draft, &options)?;
    file.write_all(content)?;
    let mode = match before.filter(|before| before.is_file()) {
        None => 0o644,
        Some(before) => {
            let (uid, gid) = (Uid::from_raw(before.uid()), Gid::from_raw(before.gid()));
            fchown(&file, Some(uid), Some(gid))?;
            // Without the bits that lend its owner's rights, as the kernel does for a write.
            before.permissions().mode() & 0o1777
        }
    };
    fchmod(&file, Mode::from_raw_mode(mode))?;
    file.sync_all()
}

/// Makes a folder and those that it is in; false if it is there.
///
/// # Errors
/// As [`failed`].
pub(crate) fn make(root: &Dir, path: &VolumePath) -> Result<bool, ToolError> {
    let io = |error| failed(&error, path, root);
    let made = make_all(root, path.as_str()).map_err(io)?;
    // What was there may be a file.
    root.open_dir(path.as_str()).map_err(io)?;
    Ok(made)
}

/// True if the last one was made. Each that was is on the disk.
fn make_all(root: &Dir, path: &str) -> io::Result<bool> {
    let mut made = false;
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    for prefix in ends.map(|end| &path[..end]) {
        made = match root.create_dir(prefix) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            made => made.map(|()| true)?,
        };
        if made {
            let parent = prefix.rsplit_once('/').map_or(".", |(parent, _)| parent);
            sync(&root.open_dir(parent)?)?;
        }
    }
    Ok(made)
}

/// Deletes a file, a link itself, or a folder with everything in it.
///
/// # Errors
/// As [`failed`]; what could be deleted of a folder is gone all the same.
pub(crate) fn remove(root: &Dir, path: &VolumePath) -> Result<(), ToolError> {
    let io = |error| failed(&error, path, root);
    let (parent, name) = path.split()?;
    let folder = root.open_dir(parent).map_err(io)?;
    if folder.symlink_metadata(name).map_err(io)?.is_dir() {
        // The handle's own name leads to the folder, wherever it has been moved.
        let handle = format!("/proc/self/fd/{}", folder.as_raw_fd());
        hivekeep_trees::remove_tree(&Path::new(&handle).join(name)).map_err(io)?;
    } else {
        folder.remove_file(name).map_err(io)?;
    }
    sync(&folder).map_err(io)
}

/// Has the names in a folder written to the disk. A handle for resolving paths cannot do it itself.
fn sync(folder: &Dir) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fsync(openat(folder, ".", flags, Mode::empty())?)?)
}

fn regular(metadata: &Metadata, path: &VolumePath) -> Result<(), ToolError> {
    let (code, what) = match metadata.file_type() {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => (codes::IS_A_DIRECTORY, "is a folder"),
        _ => (codes::VOLUME_NOT_A_FILE, "is a device, a pipe or a socket"),
    };
    Err(ToolError::new(Layer::Actor, code, format!("`{path}` {what}")))
}

/// Tool error of a failed operation on `path`.
pub(crate) fn failed(error: &io::Error, path: &VolumePath, root: &Dir) -> ToolError {
    let errno = Errno::from_io_error(error);
    // The resolver's own refusal of a path that leaves the handle carries no number.
    if errno.is_none() && error.kind() == io::ErrorKind::PermissionDenied {
        return outside(path.as_str());
    }
    let (code, what) = match errno {
        Some(Errno::NOENT) => (codes::NOT_FOUND, "does not exist"),
        Some(Errno::XDEV) => return outside(path.as_str()),
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
            (codes::PERMISSION_DENIED, "may not be used this way")
        }
        Some(Errno::NOTDIR) => (codes::NOT_A_DIRECTORY, "is not a folder, or a part of it is not"),
        Some(Errno::ISDIR) => (codes::IS_A_DIRECTORY, "is a folder"),
        Some(Errno::NAMETOOLONG) => (codes::INVALID_PATH, "has a name that is too long"),
        Some(Errno::LOOP) => (codes::INVALID_PATH, "is a link to itself, or passes too many"),
        Some(Errno::NOSPC | Errno::DQUOT) => return full(path, root),
        _ => {
            let message = format!("`{path}`: {error}");
            return ToolError::new(Layer::Actor, codes::VOLUME_FAILED, message);
        }
    };
    ToolError::new(Layer::Actor, code, format!("`{path}` {what}"))
}

/// Refusal of a write that finds no room, with the sizes as far as the volume tells them.
fn full(path: &VolumePath, root: &Dir) -> ToolError {
    let error = ToolError::new(
        Layer::Quota,
        codes::VOLUME_FULL,
        format!("`{path}` finds no room in the volume"),
    )
    .next("delete files, or use a larger volume; a file that is replaced needs room beside the old one");
    match (free_bytes(root), total_bytes(root)) {
        (Ok(free), Ok(size)) => error.detail("free_bytes", free).detail("size_bytes", size),
        _ => error,
    }
}

fn total_bytes(root: &Dir) -> io::Result<u64> {
    let fs = rustix::fs::fstatvfs(root)?;
    Ok(fs.f_blocks.saturating_mul(fs.f_frsize))
}
