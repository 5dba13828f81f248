//! A staging folder: where the journal's copy is until it is packed.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::Error;

/// Prefix of staging folders, under which nobody keeps a folder of his own.
const PREFIX: &str = ".hivekeep-backup-";

/// Number of the next folder: the last one may not be removed yet when the next is made.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// A folder in the state folder, removed when this is dropped.
#[derive(Debug)]
pub struct Staging(PathBuf);

impl Staging {
    /// Makes a folder for the daemon's user alone. Blocks.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make(state: &Path) -> Result<Self, Error> {
        let number = NUMBER.fetch_add(1, Relaxed);
        let path = state.join(format!("{PREFIX}{}-{number}", std::process::id()));
        remove(&path).map_err(Error::io(&path))?;
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(Error::io(&path))?;
        Ok(Self(path))
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.0) {
            tracing::warn!(%error, folder = %self.0.display(), "a backup's staging folder stays");
        }
    }
}

/// Removes what a crash left. Only while no daemon and no backup runs. Blocks.
///
/// # Errors
/// When the state folder cannot be listed, or a folder not be removed.
pub fn sweep(state: &Path) -> io::Result<()> {
    for entry in fs::read_dir(state)? {
        let entry = entry?;
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if ours && entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_takes_what_a_crash_left_and_nothing_of_the_operators() {
        let state = tempfile::tempdir().unwrap();
        let (first, second) =
            (Staging::make(state.path()).unwrap(), Staging::make(state.path()).unwrap());
        assert_ne!(first.path(), second.path());
        fs::write(first.path().join("file"), "x").unwrap();
        // A killed daemon leaves its folder.
        std::mem::forget(first);
        drop(second);
        for folder in ["backup-2026", "backups"] {
            fs::create_dir(state.path().join(folder)).unwrap();
        }
        fs::write(state.path().join("backup-today.tar.zst"), "x").unwrap();
        sweep(state.path()).unwrap();
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 3);
    }
}
