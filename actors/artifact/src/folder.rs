//! Folder of artifacts, a file each, named by its id once it is whole and on the disk, and the index of them, a
//! value with the bounds of what each user and all together may keep.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, BufWriter, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{ArtifactId, Layer, ToolError, User, fault_point};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{codes, info::ArtifactInfo, options::Options};

/// End of the name of a file that is being written.
const PART: &str = ".part";
/// Buffer of a file that is being written.
const BUFFER_BYTES: usize = 64 * 1024;

/// Folder of artifacts. Belongs to one process. Everything blocks.
#[derive(Debug)]
pub(crate) struct ArtifactFolder(PathBuf);

impl ArtifactFolder {
    /// Opens or makes it, removes what a crash left half written, and reads what there is.
    pub(crate) fn open(path: PathBuf) -> io::Result<(Self, Vec<ArtifactInfo>)> {
        if !path.is_dir() {
            DirBuilder::new().mode(0o700).create(&path)?;
            hivekeep_fs::sync_parent(&path)?;
        }
        let folder = Self(path);
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder.0)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            if name.ends_with(PART) {
                fs::remove_file(entry.path())?;
            } else if let Ok(id) = name.parse() {
                found.extend(folder.read(id)?);
            }
        }
        hivekeep_fs::sync_folder(&folder.0)?;
        Ok((folder, found))
    }

    /// An artifact as its file has it. A file that does not end as it should belongs to nobody.
    fn read(&self, id: ArtifactId) -> io::Result<Option<ArtifactInfo>> {
        let info = ArtifactInfo::read(&self.file(id)?, id)?;
        if info.is_none() {
            tracing::warn!(artifact = %id, "a damaged artifact is removed");
            fs::remove_file(self.at(id))?;
        }
        Ok(info)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    fn at(&self, id: ArtifactId) -> PathBuf {
        self.0.join(id.to_string())
    }

    /// Opens one for reading. It stays readable when it is removed meanwhile.
    pub(crate) fn file(&self, id: ArtifactId) -> io::Result<File> {
        File::open(self.at(id))
    }

    /// Writes a result, with its size and digest in `info`. Durable on return; after an error nothing is
    /// left.
    pub(crate) fn write(&self, info: &mut ArtifactInfo, result: &Value) -> io::Result<()> {
        let whole = self.at(info.id);
        let written = hivekeep_fs::replace_by(&whole, |part| {
            write_part(part, info, result)?;
            fault_point!("artifact.written");
            Ok(())
        });
        if written.is_err() {
            let _ = fs::remove_file(&whole);
            return written;
        }
        fault_point!("artifact.named");
        Ok(())
    }

    /// Removes one, durably. One that is gone is no error.
    pub(crate) fn remove(&self, id: ArtifactId) -> io::Result<()> {
        hivekeep_fs::remove_file(&self.at(id))?;
        fault_point!("artifact.removed");
        Ok(())
    }
}

fn write_part(part: &Path, info: &mut ArtifactInfo, result: &Value) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(part)?;
    let mut sink =
        Hashing { to: BufWriter::with_capacity(BUFFER_BYTES, file), hash: Sha256::new(), bytes: 0 };
    serde_json::to_writer(&mut sink, result)?;
    let Hashing { mut to, hash, bytes } = sink;
    info.bytes = bytes;
    info.sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    to.write_all(&info.last_line()?)?;
    to.flush()
}

/// Writer that hashes and counts what passes.
struct Hashing {
    to: BufWriter<File>,
    hash: Sha256,
    bytes: u64,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.to.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Size that an artifact counts for at least, so that many small ones are bounded too.
const LEAST_BYTES: u64 = 4 * 1024;

/// Artifacts that are kept, and those that are being written.
#[derive(Debug, Default)]
pub(crate) struct Index {
    kept: BTreeMap<ArtifactId, ArtifactInfo>,
    /// Owner and size of artifacts that are being written.
    reserved: BTreeMap<ArtifactId, (User, u64)>,
}

impl Index {
    pub(crate) fn of(found: Vec<ArtifactInfo>) -> Self {
        let kept = found.into_iter().map(|info| (info.id, info)).collect();
        Self { kept, reserved: BTreeMap::new() }
    }

    /// Takes room for an artifact before it is written.
    ///
    /// # Errors
    /// `artifacts_full`, with the figures.
    pub(crate) fn reserve(
        &mut self,
        id: ArtifactId,
        (user, bytes): (User, u64),
        options: &Options,
        most: usize,
    ) -> Result<(), ToolError> {
        let bytes = bytes.max(LEAST_BYTES);
        let kept = self.kept.values().map(|info| (info.user, info.bytes.max(LEAST_BYTES)));
        let all = kept.chain(self.reserved.values().copied());
        let (mut total, mut own, mut count) = (bytes, bytes, 1);
        for (owner, bytes) in all {
            total += bytes;
            if owner == user {
                own += bytes;
                count += 1;
            }
        }
        let mib = |mb: u64| mb.saturating_mul(1024 * 1024);
        if count > most {
            return Err(full(format!("you have {most} artifacts, as many as may be")));
        }
        if own > mib(options.max_user_mb) {
            let most = mib(options.max_user_mb);
            return Err(full(format!("your artifacts would hold {own} of {most} bytes")));
        }
        if total > mib(options.max_total_mb) {
            let most = mib(options.max_total_mb);
            return Err(full(format!("all artifacts together would hold {total} of {most} bytes")));
        }
        self.reserved.insert(id, (user, bytes));
        Ok(())
    }

    /// Gives a reservation back; what was written counts from now on.
    pub(crate) fn settle(&mut self, id: ArtifactId, written: Option<ArtifactInfo>) {
        self.reserved.remove(&id);
        if let Some(info) = written {
            self.kept.insert(id, info);
        }
    }

    pub(crate) fn get(&self, id: ArtifactId) -> Option<&ArtifactInfo> {
        self.kept.get(&id)
    }

    pub(crate) fn remove(&mut self, id: ArtifactId) -> Option<ArtifactInfo> {
        self.kept.remove(&id)
    }

    /// The newest first.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &ArtifactInfo> {
        self.kept.values().rev()
    }

    /// Artifacts that have expired.
    pub(crate) fn expired(&self, now: DateTime<Utc>) -> Vec<ArtifactId> {
        let over = self.kept.values().filter(|info| info.expires_at <= now);
        over.map(|info| info.id).collect()
    }
}

fn full(message: String) -> ToolError {
    ToolError::new(Layer::Quota, codes::ARTIFACTS_FULL, message)
        .next("delete some with artifact_delete, or wait until they expire")
}
