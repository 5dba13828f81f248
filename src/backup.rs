//! Backups: an archive of what cannot be made again, and the way back.
//!
//! ```text
//! FILE            zstd of a tar
//!   journal/…     the journal's copy, as the store makes it while it runs
//!   vault/…       the notes and whatever else lies in the vault's folder
//!   layers/…      if asked for: the frozen layers of disks
//!   bases/…       and the files of images that they stand on, by the hash of their content
//!   MANIFEST.json what there is: size and BLAKE3 hash of each file; the last entry
//! ```
//!
//! The journal is of one moment; each note is as it was when it was read, after that moment; a disk
//! is as it was frozen, before that moment. Images, memory of snapshots, transferred files, logs and
//! the token of the HTTP door are not in it. A workspace whose disk is not in it comes back without
//! one.

mod disks;
mod pack;
mod unpack;

use std::{
    collections::BTreeMap,
    io::{self, Read},
    path::PathBuf,
};

use hivekeep_workspace::backup::{BackedUp, LeftOut};
use serde::{Deserialize, Serialize};

pub use pack::{BackupSources, PackResult, Staging, free, pack, sweep};
pub use unpack::{RestoreResult, RestoreTargets, cut_short, end_restore, restore};

/// The arrangement of the archive: without disks, and with them.
const FORMAT: u32 = 1;
const FORMAT_WITH_DISKS: u32 = 2;
/// The last entry.
const MANIFEST: &str = "MANIFEST.json";
/// The entries' first folders.
const JOURNAL: &str = "journal";
const VAULT: &str = "vault";
const LAYERS: &str = hivekeep_workspace::LAYERS;
const BASES: &str = "bases";
/// The longest manifest that is read.
const MANIFEST_BYTES: u64 = 256 << 20;

/// The manifest of an archive: its maker, and the size and hash of each file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    format: u32,
    /// The version of hivekeep that made the archive.
    hivekeep: String,
    /// Time of the backup, in seconds since 1970.
    at: u64,
    /// Files by their path in the archive.
    files: BTreeMap<String, Content>,
    /// Workspaces whose disks are in the archive, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    disks: Option<ArchivedDisks>,
}

/// The workspaces whose disks an archive holds, and those whose disks it does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedDisks {
    /// Workspaces that come back with their disks.
    pub kept: Vec<BackedUp>,
    /// Workspaces that come back without.
    pub left_out: Vec<LeftOut>,
    /// Snapshots whose memory is left out; their disks are in the archive.
    pub memories_left_out: usize,
}

/// A file, as it must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    bytes: u64,
    blake3: String,
}

/// The reason why a backup or a restore failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The target exists, and nothing is overwritten.
    #[error("{} is there already: {next}", path.display())]
    There {
        /// The target.
        path: PathBuf,
        /// The next step for the operator.
        next: &'static str,
    },
    /// A name that the archive cannot hold.
    #[error("{} has a name that is not UTF-8, which a backup cannot hold: rename it", .0.display())]
    Name(PathBuf),
    /// A file that another program wrote to.
    #[error("{} was changed while it was read: try again", .0.display())]
    Changed(PathBuf),
    /// The daemon ended, and with it what was to be packed.
    #[error("the daemon ended while the backup was packed: try again")]
    Gone,
    /// A file of an image whose path does not say what it holds.
    #[error("{} is not an object of an image folder, and every disk is based on one", .0.display())]
    Base(PathBuf),
    /// A file of an image folder that is not what its place says.
    #[error(
        "{} is damaged: the backup holds another file of that name; move it away and restore again",
        .0.display()
    )]
    Differs(PathBuf),
    /// The archive is not one, or not whole.
    #[error("{} is not a whole backup: {what}", path.display())]
    Broken {
        /// The archive.
        path: PathBuf,
        /// The fault.
        what: String,
    },
    /// The journal in the archive does not open.
    #[error("the backup's journal: {0}")]
    Journal(#[from] hivekeep_store::Error),
}

impl Error {
    fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

/// Reader that counts and hashes its bytes.
struct Hashed<R> {
    inner: R,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl<R> Hashed<R> {
    fn new(inner: R) -> Self {
        Self { inner, hasher: blake3::Hasher::new(), bytes: 0 }
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}
