//! Folder of artifacts: a file each, named by its id once it is whole and on the disk.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, BufWriter, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use hivekeep_kernel::{ArtifactId, fault_point};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::info::ArtifactInfo;

/// End of the name of a file that is being written.
const PART: &str = ".part";
/// Buffer of a file that is being written.
const BUFFER_BYTES: usize = 64 * 1024;

/// The folder. Belongs to one process. Everything blocks.
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
