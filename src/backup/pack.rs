//! Packing: folders to an archive that is whole before it has its name, and the staging folder where the journal's
//! copy is until then.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::SystemTime,
};

use hivekeep_workspace::backup::Contents;
use indicatif::ProgressBar;
use rustix::fs::OFlags;
use tar::{Builder, EntryType, Header};

use super::{
    ArchivedDisks, Content, Error, FORMAT, FORMAT_WITH_DISKS, Hashed, JOURNAL, LAYERS, MANIFEST,
    Manifest, VAULT, disks::base_in_archive,
};

const VAULT_FILES: &str = "vault/";
/// A folder in the vault that is the daemon's own, for a moment.
const VAULT_STAGING: &str = ".hivekeep";
/// zstd's own default.
const LEVEL: i32 = 3;

/// The result of a backup.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PackResult {
    /// The archive.
    pub file: PathBuf,
    /// The archive's size.
    pub bytes: u64,
    /// Files of the journal.
    pub journal_files: usize,
    /// Files of the vault.
    pub vault_files: usize,
    /// Entries of the vault that are neither file nor folder, and are not in the archive.
    pub left_out: Vec<PathBuf>,
    /// Workspaces whose disks are in the archive, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disks: Option<ArchivedDisks>,
}

/// The sources of a backup.
#[derive(Debug)]
pub struct BackupSources {
    /// The journal's copy.
    pub journal: PathBuf,
    /// The vault, if there is one.
    pub vault: Option<PathBuf>,
    /// The parts that disks are made of, if they were asked for.
    pub disks: Option<Contents>,
}

/// Checks that no file has the archive's name yet.
///
/// # Errors
/// [`Error::There`].
pub fn free(file: &Path) -> Result<(), Error> {
    if file.symlink_metadata().is_ok() { Err(taken(file)) } else { Ok(()) }
}

fn taken(file: &Path) -> Error {
    Error::There { path: file.to_owned(), next: "choose another name" }
}

/// Packs all of it into `file`, which must not be there. It is readable by its owner alone, and on
/// the disk when this returns. Tells `bar` of the bytes that were read. Blocks.
///
/// # Errors
/// Leaves nothing but perhaps `FILE.part`, which the next attempt replaces. [`Error::Gone`] when the
/// sources are not `there` at the end.
pub fn pack(
    file: &Path,
    sources: &BackupSources,
    bar: &ProgressBar,
    there: impl FnOnce() -> bool,
) -> Result<PackResult, Error> {
    free(file)?;
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    // The file is made anew: an existing one may be open to others.
    match fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io(&part)(error));
        }
        _ => {}
    }
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
    let packed = opened
        .map_err(Error::io(&part))
        .and_then(|out| write(&part, out, sources, bar))
        .and_then(|packed| {
            if !there() {
                return Err(Error::Gone);
            }
            match hivekeep_fs::rename_new(&part, file) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(taken(file));
                }
                renamed => renamed.map_err(Error::io(file))?,
            }
            Ok(PackResult { file: file.to_owned(), ..packed })
        });
    if packed.is_err() {
        // A partial file that cannot be removed is replaced by the next attempt.
        let _ = fs::remove_file(&part);
    }
    packed
}

fn write(
    part: &Path,
    out: File,
    sources: &BackupSources,
    bar: &ProgressBar,
) -> Result<PackResult, Error> {
    let io = || Error::io(part);
    let mut encoder = zstd::Encoder::new(out, LEVEL).map_err(io())?;
    // The manifest has the contents of files; this has all the rest, the manifest itself included.
    encoder.include_checksum(true).map_err(io())?;
    let mut archive = Archive {
        builder: Builder::new(encoder),
        files: BTreeMap::new(),
        left_out: Vec::new(),
        bar: bar.clone(),
    };
    archive.tree(part, JOURNAL, &sources.journal)?;
    let journal_files = archive.files.len();
    if let Some(vault) = &sources.vault {
        archive.tree(part, VAULT, vault)?;
    }
    let vault_files = archive.files.len() - journal_files;
    if let Some(disks) = &sources.disks {
        archive.disks(part, disks)?;
    }
    let disks = sources.disks.as_ref().map(|disks| ArchivedDisks {
        kept: disks.kept.clone(),
        left_out: disks.left_out.clone(),
        memories_left_out: disks.memories_left_out,
    });
    let Archive { mut builder, files, left_out, .. } = archive;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let manifest = Manifest {
        format: if disks.is_some() { FORMAT_WITH_DISKS } else { FORMAT },
        hivekeep: env!("CARGO_PKG_VERSION").to_owned(),
        at: since.as_secs(),
        files,
        disks,
    };
    let text = serde_json::to_vec_pretty(&manifest).map_err(|error| io()(error.into()))?;
    let mut header = header(EntryType::Regular, 0o600, manifest.at);
    header.set_size(text.len() as u64);
    builder.append_data(&mut header, MANIFEST, &*text).map_err(io())?;
    let out = builder.into_inner().and_then(zstd::Encoder::finish).map_err(io())?;
    out.sync_all().map_err(io())?;
    let bytes = out.metadata().map_err(io())?.len();
    Ok(PackResult {
        file: part.to_owned(),
        bytes,
        journal_files,
        vault_files,
        left_out,
        disks: manifest.disks,
    })
}

struct Archive<W: Write> {
    builder: Builder<W>,
    files: BTreeMap<String, Content>,
    left_out: Vec<PathBuf>,
    bar: ProgressBar,
}

impl<W: Write> Archive<W> {
    /// A folder with all it holds; links are not followed.
    fn tree(&mut self, part: &Path, name: &str, root: &Path) -> Result<(), Error> {
        let mut todo = vec![(name.to_owned(), root.to_owned())];
        while let Some((name, path)) = todo.pop() {
            let meta = path.symlink_metadata().map_err(Error::io(&path))?;
            if meta.is_dir() {
                let mut header = header(EntryType::Directory, 0o700, mtime(&meta));
                let ended = format!("{name}/");
                self.builder
                    .append_data(&mut header, ended, io::empty())
                    .map_err(Error::io(part))?;
                for entry in fs::read_dir(&path).map_err(Error::io(&path))? {
                    let entry = entry.map_err(Error::io(&path))?;
                    let child = entry.file_name();
                    let child = child.to_str().ok_or_else(|| Error::Name(entry.path()))?;
                    if name != VAULT || child != VAULT_STAGING {
                        todo.push((format!("{name}/{child}"), entry.path()));
                    }
                }
            } else if meta.is_file() {
                self.file(part, name, &path)?;
            } else {
                self.left_out.push(path);
            }
        }
        Ok(())
    }

    /// Just what the journal's copy names, whatever else lies there.
    fn disks(&mut self, part: &Path, disks: &Contents) -> Result<(), Error> {
        for layer in &disks.layers {
            self.file(part, format!("{LAYERS}/{layer}"), &disks.folder.join(layer))?;
        }
        for base in &disks.bases {
            let name = base_in_archive(base).ok_or_else(|| Error::Base(base.clone()))?;
            // Folders of images may share an object.
            if !self.files.contains_key(&name) {
                self.file(part, name, base)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, part: &Path, name: String, path: &Path) -> Result<(), Error> {
        let io = || Error::io(path);
        // A link in the file's place is not followed, and a pipe there does not block.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = match opened {
            // A note may have gone since its folder was listed. Nothing else goes.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && name.starts_with(VAULT_FILES) =>
            {
                return Ok(());
            }
            opened => opened.map_err(io())?,
        };
        let meta = file.metadata().map_err(io())?;
        let mut header = header(EntryType::Regular, 0o600, mtime(&meta));
        header.set_size(meta.len());
        let mut hashed = Hashed::new(self.bar.wrap_read(file.take(meta.len())));
        self.builder.append_data(&mut header, &name, &mut hashed).map_err(Error::io(part))?;
        if hashed.bytes != meta.len() {
            return Err(Error::Changed(path.to_owned()));
        }
        let blake3 = hashed.hasher.finalize().to_hex().to_string();
        self.files.insert(name, Content { bytes: hashed.bytes, blake3 });
        Ok(())
    }
}

fn mtime(meta: &fs::Metadata) -> u64 {
    u64::try_from(meta.mtime()).unwrap_or_default()
}

/// Header without an owner: restored files belong to whoever restores.
fn header(kind: EntryType, mode: u32, mtime: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(mtime);
    header.set_size(0);
    header
}

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
