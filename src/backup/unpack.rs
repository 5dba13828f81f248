//! Restoring: an archive that is found whole becomes the state of a daemon that has none.
//!
//! ```text
//! verify the whole archive ─▶ unpack to restore.part ─▶ open the journal ─▶ disks ─▶ vault ─▶ journal
//! ```
//! The journal gets its name last and in one step: with it the state is there. Until then a daemon
//! does not start ([`cut_short`]), and the restore can be repeated.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::DirBuilderExt,
    path::{Component, Path, PathBuf},
};

use hivekeep_store::{Journal, Options, Recovered};
use indicatif::{ProgressBar, ProgressBarIter};
use tar::{Archive, EntryType};

use super::{
    ArchivedDisks, BASES, Content, Error, FORMAT, FORMAT_WITH_DISKS, Hashed, JOURNAL, LAYERS,
    MANIFEST, MANIFEST_BYTES, Manifest, VAULT, disks,
};

const PART: &str = "restore.part";

/// The target folders of a restore.
#[derive(Debug)]
pub struct RestoreTargets {
    /// The state folder; it is there.
    pub state: PathBuf,
    /// The journal's options; its folder is in the state folder.
    pub journal: Options,
    /// The vault's folder.
    pub vault: PathBuf,
    /// The folder of images.
    pub images: PathBuf,
}

/// The result of a restore.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RestoreResult {
    /// The version that made the backup.
    pub made_by: String,
    /// Time of the backup, in seconds since 1970.
    pub made_at: u64,
    /// Files of the vault.
    pub vault_files: usize,
    /// Contents of the recovered journal.
    pub journal: Recovered,
    /// Workspaces whose disks came back, if the backup has disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disks: Option<ArchivedDisks>,
}

/// True when a restore in this state folder was cut short before its journal was in place.
pub fn cut_short(state: &Path, journal: &Path) -> bool {
    state.join(PART).exists() && !journal.exists()
}

/// Removes what a restore left that was cut short at its very end. Only where the journal is in its
/// place, for then all of it is. Blocks.
///
/// # Errors
/// When it cannot be removed.
pub fn end_restore(state: &Path) -> Result<(), Error> {
    remove(&state.join(PART))
}

/// Restores an archive. Holds no lock: no daemon may run on these places meanwhile. Blocks.
///
/// # Errors
/// [`Error::There`] for a state that is not empty; [`Error::Broken`] before anything was written.
pub async fn restore(
    file: &Path,
    places: RestoreTargets,
    bar: &ProgressBar,
) -> Result<RestoreResult, Error> {
    let part = places.state.join(PART);
    if places.journal.dir.symlink_metadata().is_ok() {
        let next = "move the old state away, or choose another with HIVEKEEP_HOME";
        return Err(Error::There { path: places.journal.dir, next });
    }
    let begun = part.exists();
    if !begun && fs::read_dir(&places.vault).is_ok_and(|mut entries| entries.next().is_some()) {
        let next = "a vault that holds something is not mixed with another: move it away";
        return Err(Error::There { path: places.vault, next });
    }
    let manifest = verify(file, bar)?;
    disks::undo(&part, &places.state)?;
    if manifest.disks.is_some() {
        disks::free(&places.state)?;
    }
    remove(&part)?;
    private(&part)?;
    each(file, bar, |path, entry| {
        let to = part.join(path);
        if let Some(folder) = to.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        match entry.header().entry_type() {
            EntryType::Directory => fs::DirBuilder::new().recursive(true).mode(0o700).create(to),
            _ => entry.unpack(to).map(drop),
        }
    })?;
    let journal = part.join(JOURNAL);
    let options = Options { dir: journal.clone(), ..places.journal.clone() };
    let opened = tokio::task::spawn_blocking(move || Journal::open(options)).await;
    let opened = opened.map_err(|error| Error::io(&journal)(io::Error::other(error)))?;
    let (open, recovered) = opened?;
    let _stopped = open.close().await;
    if let Some(kept) = &manifest.disks {
        sync(&part)?;
        disks::place(&part, &places.state, &places.images, kept)?;
    }
    let vault = part.join(VAULT);
    let vault_files = manifest.files.keys().filter(|name| name.starts_with("vault/")).count();
    if vault.exists() {
        place_vault(&vault, &places.vault)?;
    }
    sync(&part)?;
    let target = &places.journal.dir;
    fs::rename(&journal, target).map_err(Error::io(target))?;
    sync_dir(&places.state)?;
    remove(&part)?;
    sync_dir(&places.state)?;
    let Manifest { hivekeep, at, disks, .. } = manifest;
    Ok(RestoreResult { made_by: hivekeep, made_at: at, vault_files, journal: recovered, disks })
}

/// Reads all of it and compares it with its manifest.
fn verify(file: &Path, bar: &ProgressBar) -> Result<Manifest, Error> {
    let broken = |what: String| Error::Broken { path: file.to_owned(), what };
    let (mut found, mut manifest) = (BTreeMap::new(), None);
    each(file, bar, |path, entry| {
        let name = path.to_str().unwrap_or_default().to_owned();
        if name == MANIFEST {
            let mut text = Vec::new();
            entry.take(MANIFEST_BYTES).read_to_end(&mut text)?;
            manifest = Some(serde_json::from_slice::<Manifest>(&text)?);
        } else if entry.header().entry_type() == EntryType::Regular {
            let mut hashed = Hashed::new(entry);
            io::copy(&mut hashed, &mut io::sink())?;
            let blake3 = hashed.hasher.finalize().to_hex().to_string();
            found.insert(name, Content { bytes: hashed.bytes, blake3 });
        }
        Ok(())
    })
    // Nothing is written yet: what fails is a reading of the archive.
    .map_err(|error| match error {
        Error::Io { path: entry, source } if entry != file => {
            broken(format!("{}: {source}", entry.display()))
        }
        other => other,
    })?;
    let manifest = manifest.ok_or_else(|| broken("it ends before its manifest".to_owned()))?;
    if !(FORMAT..=FORMAT_WITH_DISKS).contains(&manifest.format) {
        let what = format!("format {} is not known here, {FORMAT_WITH_DISKS} is", manifest.format);
        return Err(broken(what));
    }
    disks::check(&manifest).map_err(broken)?;
    let differs = |name: &&String| found.get(*name) != manifest.files.get(*name);
    match manifest.files.keys().chain(found.keys()).find(differs) {
        Some(name) => Err(broken(format!("{name} is not what was packed"))),
        None => Ok(manifest),
    }
}

type Entry<'a> = tar::Entry<'a, zstd::Decoder<'static, io::BufReader<ProgressBarIter<File>>>>;

/// Hands over each entry with its path, which leads nowhere but down.
fn each(
    file: &Path,
    bar: &ProgressBar,
    mut act: impl FnMut(&Path, &mut Entry<'_>) -> io::Result<()>,
) -> Result<(), Error> {
    let broken =
        |error: io::Error| Error::Broken { path: file.to_owned(), what: error.to_string() };
    let opened = File::open(file).map_err(Error::io(file))?;
    let mut archive = Archive::new(zstd::Decoder::new(bar.wrap_read(opened)).map_err(broken)?);
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let path = entry.path().map_err(broken)?.into_owned();
        let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        let known =
            [JOURNAL, VAULT, LAYERS, BASES, MANIFEST].iter().any(|first| path.starts_with(first));
        let kind = entry.header().entry_type();
        if !plain || !known || !matches!(kind, EntryType::Regular | EntryType::Directory) {
            return Err(broken(io::Error::other(format!(
                "{} does not belong in a backup",
                path.display()
            ))));
        }
        act(&path, &mut entry).map_err(Error::io(path))?;
    }
    // Behind the last entry is the checksum of everything.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(broken)?;
    Ok(())
}

/// The notes to their folder, which may be on a file system of its own.
fn place_vault(from: &Path, to: &Path) -> Result<(), Error> {
    fs::create_dir_all(to).map_err(Error::io(to))?;
    let mut todo = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = todo.pop() {
        for entry in fs::read_dir(&from).map_err(Error::io(&from))? {
            let entry = entry.map_err(Error::io(&from))?;
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            if entry.file_type().map_err(Error::io(&from))?.is_dir() {
                fs::create_dir_all(&to).map_err(Error::io(&to))?;
                todo.push((from, to));
            } else if let Err(error) = fs::rename(&from, &to) {
                if error.kind() != io::ErrorKind::CrossesDevices {
                    return Err(Error::io(&to)(error));
                }
                fs::copy(&from, &to).map_err(Error::io(&to))?;
            }
        }
    }
    sync(to)
}

/// Syncs every file and folder.
pub(super) fn sync(root: &Path) -> Result<(), Error> {
    hivekeep_fs::sync_tree(root).map_err(Error::io(root))
}

pub(super) fn sync_dir(path: &Path) -> Result<(), Error> {
    hivekeep_fs::sync_folder(path).map_err(Error::io(path))
}

fn private(path: &Path) -> Result<(), Error> {
    fs::DirBuilder::new().mode(0o700).create(path).map_err(Error::io(path))
}

pub(super) fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(Error::io(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Archive of one entry whose name and target are written as they are, and a manifest.
    fn archive(folder: &Path, kind: EntryType, name: &str, link: &str) -> PathBuf {
        let manifest = br#"{"format": 1, "hivekeep": "0", "at": 0, "files": {}}"#;
        let mut archive = tar::Builder::new(Vec::new());
        let rows: [(_, _, _, &[u8]); 2] =
            [(kind, name, link, b""), (EntryType::Regular, MANIFEST, "", manifest)];
        for (kind, name, link, content) in rows {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(content.len() as u64);
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
            header.set_cksum();
            archive.append(&header, content).expect("appended");
        }
        let packed = zstd::encode_all(archive.into_inner().expect("whole").as_slice(), 0);
        let path = folder.join("kept.tar.zst");
        fs::write(&path, packed.expect("packed")).expect("written");
        path
    }

    #[test]
    fn what_leads_out_of_a_restore_is_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let outside = folder.path().join("outside").display().to_string();
        let refused = |kind, name: &str, link: &str| {
            let path = archive(folder.path(), kind, name, link);
            let verified = verify(&path, &ProgressBar::hidden());
            let left = fs::read_dir(folder.path()).expect("listed").count();
            assert_eq!(left, 1, "{name} made something");
            matches!(verified, Err(Error::Broken { .. }))
        };
        assert!(!refused(EntryType::Directory, "vault/a", ""), "of a sound archive");
        for name in [
            "../outside",
            "vault/../../outside",
            "vault/..",
            "..",
            ".",
            &outside,
            "/vault/a",
            "outside",
            "vaulted/a",
        ] {
            for kind in [EntryType::Regular, EntryType::Directory] {
                assert!(refused(kind, name, ""), "{kind:?} {name}");
            }
        }
        for kind in [EntryType::Symlink, EntryType::Link, EntryType::Fifo, EntryType::Char] {
            assert!(refused(kind, "vault/a", &outside), "{kind:?}");
        }
    }
}
