//! Folder of a browser as a handle: its profile, its downloads, and the files to upload.
//!
//! Chrome's processes can write anything in it, so no file is reached by its path: each one is resolved
//! beneath the handle, without following links, and only a regular file is read.

use std::{
    fs::{DirBuilder, File},
    io::{self, Read, Write},
    os::{fd::OwnedFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, ResolveFlags, Stat, fchown, fstat, mkdirat, openat2, unlinkat},
    process::{Gid, Uid},
};

use crate::process::HOME;

const DOWNLOADS: &str = "downloads";
const UPLOADS: &str = "uploads";
/// Bytes that all uploads of one browser may have.
const MOST_UPLOADED: u64 = 256 * 1024 * 1024;

/// Handle of a browser's folder.
#[derive(Debug)]
pub(crate) struct BrowserFolder {
    root: OwnedFd,
    path: PathBuf,
    uploaded: AtomicU64,
}

impl BrowserFolder {
    /// Creates the folder. Blocks.
    pub(crate) fn make(path: PathBuf) -> io::Result<Self> {
        for part in ["profile", DOWNLOADS, UPLOADS] {
            DirBuilder::new().recursive(true).mode(0o700).create(path.join(part))?;
        }
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&path, flags, Mode::empty())?;
        Ok(Self { root, path, uploaded: AtomicU64::new(0) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the downloads, as Chrome sees it.
    pub(crate) fn downloads() -> String {
        format!("{HOME}/{DOWNLOADS}")
    }

    fn open(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        Ok(openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)?)
    }

    /// Reads a download of at most `most` bytes. Blocks.
    ///
    /// # Errors
    /// When it is not there, larger, or no file.
    pub(crate) fn read_download(&self, guid: &str, most: u64) -> io::Result<Vec<u8>> {
        // Opening a pipe does not block.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(self.open(&format!("{DOWNLOADS}/{guid}"), flags)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        let mut content = Vec::new();
        file.take(most + 1).read_to_end(&mut content)?;
        match content.len() as u64 > most {
            true => Err(io::Error::other(format!("it has more than {most} bytes"))),
            false => Ok(content),
        }
    }

    /// Removes a download. Blocks.
    pub(crate) fn remove_download(&self, guid: &str) -> io::Result<()> {
        let folder = self.open(DOWNLOADS, OFlags::DIRECTORY)?;
        Ok(unlinkat(folder, guid, AtFlags::empty())?)
    }

    /// Writes a file that Chrome can read, and returns its path as Chrome sees it. Blocks.
    ///
    /// # Errors
    /// When all uploads would exceed 256 MiB, and errors of the disk.
    pub(crate) fn put_upload(&self, name: &str, content: &[u8]) -> io::Result<String> {
        let size = content.len() as u64;
        if self.uploaded.fetch_add(size, Relaxed).saturating_add(size) > MOST_UPLOADED {
            self.uploaded.fetch_sub(size, Relaxed);
            let mb = MOST_UPLOADED / (1024 * 1024);
            let why = format!("a browser is given {mb} MiB at most, all files together");
            return Err(io::Error::other(why));
        }
        // Each upload has a folder of its own: two files may have the same name.
        let own = uuid::Uuid::new_v4().simple().to_string();
        let uploads = self.open(UPLOADS, OFlags::DIRECTORY)?;
        mkdirat(&uploads, own.as_str(), Mode::RWXU)?;
        let folder = self.open(&format!("{UPLOADS}/{own}"), OFlags::DIRECTORY)?;
        // Chrome's user owns the folder itself where the file system maps no ids.
        let Stat { st_uid, st_gid, .. } = fstat(&uploads)?;
        let give =
            |it: &OwnedFd| fchown(it, Some(Uid::from_raw(st_uid)), Some(Gid::from_raw(st_gid)));
        give(&folder)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let file = openat2(folder, name, flags, Mode::RUSR | Mode::WUSR, resolve)?;
        give(&file)?;
        File::from(file).write_all(content)?;
        Ok(format!("{HOME}/{UPLOADS}/{own}/{name}"))
    }
}

/// Removes a folder that a Chrome wrote in, or a folder of such folders.
pub(crate) async fn removed(folder: PathBuf) {
    let tree = folder.clone();
    let removed = tokio::task::spawn_blocking(move || hivekeep_fs::remove_tree(&tree)).await;
    if let Err(error) = removed.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
        tracing::warn!(folder = %folder.display(), %error, "a browser's folder stays");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_that_chrome_puts_there_leads_out_of_it() {
        let home = tempfile::TempDir::new().expect("a folder");
        let outside = home.path().join("outside");
        std::fs::create_dir(&outside).expect("made");
        std::fs::write(outside.join("secret"), "secret").expect("written");
        let folder = BrowserFolder::make(home.path().join("browser")).expect("made");
        let downloads = folder.path().join("downloads");
        std::fs::write(downloads.join("good"), "good").expect("written");
        symlink(outside.join("secret"), downloads.join("link")).expect("made");
        assert_eq!(folder.read_download("good", 4).expect("read"), b"good");
        assert!(folder.read_download("good", 3).is_err(), "too large");
        for guid in ["link", "../../outside/secret", "/etc/hostname", "."] {
            assert!(folder.read_download(guid, 100).is_err(), "{guid}");
        }
        let given = folder.put_upload("a.txt", b"x").expect("put");
        assert!(given.starts_with("/srv/browser/uploads/") && given.ends_with("/a.txt"), "{given}");
        for name in ["downloads", "uploads"] {
            std::fs::rename(folder.path().join(name), home.path().join(name)).expect("moved");
            symlink(&outside, folder.path().join(name)).expect("made");
        }
        assert!(folder.read_download("secret", 100).is_err());
        assert!(folder.remove_download("secret").is_err());
        assert!(folder.put_upload("a.txt", b"x").is_err());
        let left: Vec<_> = std::fs::read_dir(&outside).expect("there").collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[tokio::test]
    async fn a_profile_of_any_depth_is_removed() {
        let home = tempfile::TempDir::new().expect("a folder");
        let folder = BrowserFolder::make(home.path().join("browser")).expect("made");
        let mut at = folder.open("profile", OFlags::DIRECTORY).expect("opened");
        for _ in 0..20_000 {
            mkdirat(&at, "d", Mode::RWXU).expect("made");
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            at = rustix::fs::openat(&at, "d", flags, Mode::empty()).expect("opened");
        }
        removed(folder.path().to_owned()).await;
        assert!(!folder.path().exists());
        removed(folder.path().to_owned()).await;
    }
}
