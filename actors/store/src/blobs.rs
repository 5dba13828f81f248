//! Content-addressed blob store: a folder of files named by the hash of their contents.
//!
//! ```text
//! blobs/ab/abcdef…   a value, named by its BLAKE3 hash
//! blobs/tmp/…        values being written; emptied when the folder is opened
//! ```
//!
//! A file gets its name only when its contents are on the disk, so a name never stands for a part.
//! Everything here blocks.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::IoContext;
use crate::{Error, crash, fsx};

mod hash;

pub use hash::BlobHash;

const TEMP_DIR: &str = "tmp";

/// Folder of blobs. Belongs to one process; share it in an `Arc`.
#[derive(Debug)]
pub struct Blobs {
    dir: PathBuf,
    temp_number: AtomicU64,
}

/// Result of a sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepResult {
    /// Number of blobs removed.
    pub removed: u64,
    /// Total size of the removed blobs.
    pub removed_bytes: u64,
    /// Number of blobs kept.
    pub kept: u64,
}

impl Blobs {
    /// Opens or creates the folder and removes what a crash left half-written.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, Error> {
        let dir = dir.into();
        fsx::make_dir(&dir)?;
        fsx::remove_tree(&dir.join(TEMP_DIR))?;
        fs::create_dir(dir.join(TEMP_DIR)).doing("creating the blob folder")?;
        fsx::sync_dir(&dir)?;
        Ok(Blobs { dir, temp_number: AtomicU64::new(0) })
    }

    /// Stores bytes, durably.
    pub fn put(&self, bytes: &[u8]) -> Result<BlobHash, Error> {
        self.put_from(bytes)
    }

    /// Stores everything a reader yields, without holding it in memory.
    pub fn put_from(&self, mut from: impl Read) -> Result<BlobHash, Error> {
        let temp = self.dir.join(TEMP_DIR).join(self.temp_number.fetch_add(1, Relaxed).to_string());
        let written = self.write_temp(&temp, &mut from).and_then(|hash| {
            crash::point("store::blobs::written")?;
            self.keep(&temp, hash)
        });
        if written.is_err() {
            // Best effort: the next open removes it too.
            let _ = fs::remove_file(&temp);
        }
        written
    }

    fn write_temp(&self, temp: &Path, from: &mut impl Read) -> Result<BlobHash, Error> {
        let mut file = File::create_new(temp).doing("creating a blob")?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Error::io("reading what to store", &error)),
            };
            hasher.update(&buffer[..count]);
            file.write_all(&buffer[..count]).doing("writing a blob")?;
        }
        file.sync_all().doing("syncing a blob")?;
        Ok(BlobHash::from(hasher.finalize()))
    }

    fn keep(&self, temp: &Path, hash: BlobHash) -> Result<BlobHash, Error> {
        let path = self.path(&hash);
        let folder = path.parent().expect("a blob lies in a folder");
        fsx::make_dir(folder)?;
        fs::rename(temp, &path).doing("naming a blob")?;
        fsx::sync_dir(folder)?;
        Ok(hash)
    }

    /// Opens a blob for reading. Does not check its contents.
    pub fn get(&self, hash: &BlobHash) -> Result<File, Error> {
        File::open(self.path(hash)).map_err(|error| absent(hash, &error))
    }

    /// True if the blob exists.
    pub fn contains(&self, hash: &BlobHash) -> bool {
        self.path(hash).is_file()
    }

    /// Reads the whole blob and compares its hash.
    pub fn verify(&self, hash: &BlobHash) -> Result<(), Error> {
        let mut hasher = blake3::Hasher::new();
        io::copy(&mut self.get(hash)?, &mut hasher).doing("reading a blob")?;
        if BlobHash::from(hasher.finalize()) != *hash {
            return Err(Error::unreadable(format!("blob {hash} has other contents")));
        }
        Ok(())
    }

    /// Removes a blob, which must exist.
    pub fn remove(&self, hash: &BlobHash) -> Result<(), Error> {
        let path = self.path(hash);
        fs::remove_file(&path).map_err(|error| absent(hash, &error))?;
        path.parent().map_or(Ok(()), fsx::sync_dir)
    }

    /// Removes the blobs that `keep` rejects. Legal only while nobody puts: a blob just put and not
    /// yet referred to would be removed. Files with other names stay.
    pub fn sweep(&self, keep: impl Fn(&BlobHash) -> bool) -> Result<SweepResult, Error> {
        let mut swept = SweepResult::default();
        for folder in fs::read_dir(&self.dir).doing("listing blobs")? {
            let folder = folder.doing("listing blobs")?.path();
            if folder.ends_with(TEMP_DIR) || !folder.is_dir() {
                continue;
            }
            for entry in fs::read_dir(&folder).doing("listing blobs")? {
                let entry = entry.doing("listing blobs")?;
                let name = entry.file_name();
                let Some(hash) = name.to_str().and_then(|name| name.parse::<BlobHash>().ok())
                else {
                    continue;
                };
                if keep(&hash) {
                    swept.kept += 1;
                    continue;
                }
                swept.removed += 1;
                swept.removed_bytes += entry.metadata().doing("listing blobs")?.len();
                fs::remove_file(entry.path()).doing("removing a blob")?;
            }
            fsx::sync_dir(&folder)?;
        }
        Ok(swept)
    }

    fn path(&self, hash: &BlobHash) -> PathBuf {
        let name = hash.to_string();
        self.dir.join(&name[..2]).join(name)
    }
}

fn absent(hash: &BlobHash, error: &io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::NoBlob { hash: hash.to_string() },
        _ => Error::io("opening a blob", error),
    }
}
