//! The daemon's folders: made if missing, for its user alone.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::config::DaemonFolders;

/// The reason why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Somebody else made it.
    #[error("{} belongs to user {owner}: remove it, or choose another folder", path.display())]
    NotOurs {
        /// The folder.
        path: PathBuf,
        /// The uid of its owner.
        owner: u32,
    },
    /// Something else is at its place.
    #[error("{} is not a folder", path.display())]
    NoFolder {
        /// The place.
        path: PathBuf,
    },
    /// The folder cannot be made or looked at.
    #[error("{}: {source}", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Makes the folders that have to be there before anything else.
pub(super) fn make(folders: &DaemonFolders) -> Result<(), FolderError> {
    // Machines of other users have to pass on the way to their own folders. What is in it is closed by modes
    // of its own, the socket too.
    let root = rustix::process::geteuid().is_root();
    ours(&folders.run, if root { 0o711 } else { 0o700 })?;
    private(&folders.state)?;
    private(&folders.logs)?;
    match folders.socket.parent() {
        // A socket elsewhere: its folder is somebody's choice and stays as it is.
        Some(parent) if parent != folders.run && !parent.exists() => private(parent),
        _ => Ok(()),
    }
}

/// A folder of our own that nobody else can enter.
fn private(path: &Path) -> Result<(), FolderError> {
    ours(path, 0o700)
}

/// A folder of our own of this mode. What is found more open is closed: the
/// folder is checked through a link to nothing else.
fn ours(path: &Path, mode: u32) -> Result<(), FolderError> {
    let io = |source| FolderError::Io { path: path.to_owned(), source };
    fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(io)?;
    let found = fs::symlink_metadata(path).map_err(io)?;
    if !found.is_dir() {
        return Err(FolderError::NoFolder { path: path.to_owned() });
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(FolderError::NotOurs { path: path.to_owned(), owner: found.uid() });
    }
    if found.mode() & 0o777 != mode {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(io)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_for_us_alone_and_an_open_one_is_closed() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a/b");
        private(&path).expect("made");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("opened");
        private(&path).expect("closed");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o700);
    }

    #[test]
    fn a_link_in_its_place_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).expect("links");
        assert!(matches!(private(&link), Err(FolderError::NoFolder { .. })));
    }
}
