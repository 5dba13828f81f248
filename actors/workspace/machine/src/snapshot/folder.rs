//! Memory image on disk: a folder that one last file completes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{MachineShape, SavedMemory};
use crate::Error;

/// Version of the format; raised when a daemon could not read the files of another one.
const FORMAT: u32 = 1;
/// Limit of a read: a damaged file is not loaded into memory.
const DESCRIPTION_BYTES: u64 = 64 << 10;

/// Folder with `ram`, or `packed` of a parked machine, with `device` and `shape.json`. `shape.json` makes it complete, and is written
/// when the others are on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SnapshotFolder(PathBuf);

/// Content of `shape.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotDescription {
    format: u32,
    /// Id that distinguishes a memory image from a later one in a folder of the same name.
    pub(crate) id: Uuid,
    pub(crate) shape: MachineShape,
    pub(crate) memory: SavedMemory,
    /// The memory is in `packed`, not in `ram`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) packed: Option<Packed>,
}

/// Packed memory of a parked machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Packed {
    /// Size of the file.
    pub(crate) bytes: u64,
    /// Id of the memory image that it is a difference to.
    pub(crate) base: Option<Uuid>,
}

impl SnapshotDescription {
    pub(crate) fn new(shape: MachineShape, memory: SavedMemory) -> Self {
        Self { format: FORMAT, id: Uuid::new_v4(), shape, memory, packed: None }
    }

    pub(crate) fn packed(self, packed: Packed) -> Self {
        Self { packed: Some(packed), ..self }
    }
}

impl SnapshotFolder {
    /// Names the folder at this path, which should be absolute.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// True if every file exists with its size. Blocks.
    pub fn is_complete(&self) -> bool {
        self.describe().is_ok()
    }

    /// Bytes that the folder takes on the disk. Blocks.
    pub fn bytes(&self) -> Result<u64, Error> {
        let mut sum = 0;
        for entry in fs::read_dir(&self.0).map_err(Error::io("list", &self.0))? {
            let meta = entry.and_then(|entry| entry.metadata());
            sum += meta.map_err(Error::io("look at", &self.0))?.blocks() * 512;
        }
        Ok(sum)
    }

    /// Path of the guest's memory, page for page; zero pages are holes.
    pub(crate) fn ram(&self) -> PathBuf {
        self.0.join("ram")
    }

    /// Path of the memory of a parked machine.
    pub(crate) fn packed(&self) -> PathBuf {
        self.0.join("packed")
    }

    /// Path of the state of processor and devices, in QEMU's format.
    pub(crate) fn device(&self) -> PathBuf {
        self.0.join("device")
    }

    fn description(&self) -> PathBuf {
        self.0.join("shape.json")
    }

    /// Makes the folder with access for the daemon alone.
    pub(crate) fn begin(&self) -> Result<(), Error> {
        let made = fs::DirBuilder::new().mode(0o700).create(&self.0);
        made.map_err(Error::io("make the snapshot", &self.0))
    }

    /// Makes the devices' state durable; its size in bytes.
    pub(crate) fn sync_device(&self) -> Result<u64, Error> {
        let device = self.device();
        let synced = hivekeep_fs::sync_file(&device).and_then(|()| fs::metadata(&device));
        Ok(synced.map_err(Error::io("sync", &device))?.len())
    }

    /// Completes the folder. The caller has synced the other files.
    pub(crate) fn complete(&self, description: &SnapshotDescription) -> Result<(), Error> {
        let write = || -> io::Result<()> {
            let text = serde_json::to_vec_pretty(description)?;
            hivekeep_fs::replace(&self.description(), 0o666, &text)?;
            hivekeep_fs::sync_parent(&self.0)
        };
        write().map_err(Error::io("complete the snapshot", &self.0))
    }

    pub(crate) fn describe(&self) -> Result<SnapshotDescription, Error> {
        use std::io::Read;
        let damaged = |why: String| Error::SnapshotDamaged { folder: self.0.clone(), why };
        let path = self.description();
        let mut text = Vec::new();
        File::open(&path)
            .and_then(|file| file.take(DESCRIPTION_BYTES).read_to_end(&mut text))
            .map_err(|error| damaged(format!("shape.json: {error}")))?;
        let description: SnapshotDescription =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if description.format != FORMAT {
            return Err(damaged(format!("format {} is not {FORMAT}", description.format)));
        }
        let size = |path: PathBuf| fs::metadata(&path).map(|meta| meta.len()).unwrap_or(0);
        let (ram, is) = match &description.packed {
            Some(packed) => (packed.bytes, size(self.packed())),
            None => (description.shape.memory_mb << 20, size(self.ram())),
        };
        if is != ram || size(self.device()) != description.memory.device_bytes {
            return Err(damaged("a file does not have the size that was written".into()));
        }
        Ok(description)
    }

    /// Removes the folder. The description is removed first, so that an interrupted removal leaves
    /// a folder that is seen to be incomplete. Files that the daemon did not write are not removed.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        let gone_is_fine = |result: io::Result<()>| match result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        let shape = self.description();
        // The second was the name of a part in versions before this one.
        let parts = [hivekeep_fs::part_of(&shape), self.0.join("shape.new")];
        let files = [self.device(), self.ram(), self.packed()];
        for path in [shape].into_iter().chain(parts).chain(files) {
            gone_is_fine(fs::remove_file(&path)).map_err(Error::io("remove", &path))?;
        }
        gone_is_fine(fs::remove_dir(&self.0)).map_err(Error::io("remove", &self.0))?;
        let there = self.0.parent().is_some_and(Path::exists);
        let synced = if there { hivekeep_fs::sync_parent(&self.0) } else { Ok(()) };
        synced.map_err(Error::io("sync", &self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_complete_only_with_everything_in_it_and_removed_without_rest() {
        let dir = tempfile::tempdir().unwrap();
        let snapshot = SnapshotFolder::new(dir.path().join("one"));
        snapshot.remove().unwrap();
        snapshot.begin().unwrap();
        assert!(matches!(snapshot.begin(), Err(Error::Io { .. })), "never into an older one");
        File::create(snapshot.ram()).unwrap().set_len(256 << 20).unwrap();
        fs::write(snapshot.device(), "state").unwrap();
        assert!(!snapshot.is_complete());
        let memory = SavedMemory { ram_bytes: 0, device_bytes: 5, copied_in_pause_bytes: 0 };
        let description = SnapshotDescription::new(super::super::tests::shape(), memory);
        snapshot.complete(&description).unwrap();
        assert_eq!(snapshot.describe().unwrap(), description);
        fs::write(snapshot.device(), "stat").unwrap();
        assert!(matches!(snapshot.describe(), Err(Error::SnapshotDamaged { .. })));
        fs::write(snapshot.path().join("foreign"), "").unwrap();
        assert!(snapshot.remove().is_err() && !snapshot.is_complete());
        fs::remove_file(snapshot.path().join("foreign")).unwrap();
        snapshot.remove().unwrap();
        assert!(!snapshot.path().exists());
    }
}
