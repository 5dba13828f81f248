//! Content-addressed object store. All functions block.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hivekeep_fs::remove_tree;
use hivekeep_kernel::fault_point;
use uuid::Uuid;

use super::files::sync_dir;
use super::tree::{self, List};
use super::{ContentHash, Error, ObjectRef, Result, TreeRef};

/// Name of the folder of objects in a store.
pub(super) const OBJECTS: &str = "objects";
/// Name of the folder of marks: objects that came or whose image went since the lock was taken.
pub(super) const PENDING: &str = "pending";

/// Name of an object, independent of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    /// Hash of the content.
    pub hash: ContentHash,
    /// Name of the file.
    pub file: String,
}

impl ObjectName {
    /// Parses the last two parts of an object's path.
    pub fn of(path: &Path) -> Option<Self> {
        let hash = path.parent()?.file_name()?.to_str()?.to_owned().try_into().ok()?;
        Some(Self { hash, file: path.file_name()?.to_str()?.to_owned() })
    }
}

/// Folders of stored and of unfinished objects; both on one filesystem.
#[derive(Debug, Clone)]
pub(super) struct Objects {
    root: PathBuf,
    temp: PathBuf,
    pending: PathBuf,
}

impl Objects {
    pub(super) fn new(store_root: &Path) -> Self {
        Self {
            root: store_root.join(OBJECTS),
            temp: store_root.join("tmp"),
            pending: store_root.join(PENDING),
        }
    }

    /// Path of an object's file, whether or not it exists.
    pub(super) fn path(&self, object: &ObjectRef) -> PathBuf {
        self.root.join(object.hash.to_string()).join(&object.file)
    }

    /// Path of a tree object's files.
    pub(super) fn tree_path(&self, tree: &TreeRef) -> PathBuf {
        self.root.join(tree.hash.to_string()).join("tree")
    }

    /// Path of a tree object's list of entries.
    pub(super) fn entries_path(&self, tree: &TreeRef) -> PathBuf {
        self.root.join(tree.hash.to_string()).join("entries.jsonl")
    }

    /// Moves a finished file into the store under its hash.
    pub(super) fn put_file(
        &self,
        source: &Path,
        name: &str,
        version: Option<String>,
    ) -> Result<ObjectRef> {
        fs::set_permissions(source, Permissions::from_mode(0o444))
            .map_err(Error::io("chmod", source))?;
        let file = File::open(source).map_err(Error::io("open", source))?;
        file.sync_all().map_err(Error::io("sync", source))?;
        let bytes = file.metadata().map_err(Error::io("stat", source))?.len();
        let object = ObjectRef {
            hash: ContentHash::of_file(source)?,
            file: name.to_owned(),
            bytes,
            version,
        };
        let target = self.path(&object);
        if target.exists() && ContentHash::of_file(&target)? == object.hash {
            fs::remove_file(source).map_err(Error::io("remove", source))?;
            return Ok(object);
        }
        let folder = self.stage()?;
        hivekeep_fs::rename(source, &folder.join(name)).map_err(Error::io("move", source))?;
        self.install(&folder, object.hash)?;
        Ok(object)
    }

    /// Writes bytes into the store.
    pub(super) fn put_bytes(
        &self,
        bytes: &[u8],
        name: &str,
        version: Option<String>,
    ) -> Result<ObjectRef> {
        let file = self.temp.join(Uuid::new_v4().simple().to_string());
        fs::write(&file, bytes).map_err(Error::io("write", &file))?;
        self.put_file(&file, name, version)
    }

    /// Moves a directory into the store. `list` describes it as it is.
    pub(super) fn put_tree(&self, source: &Path, list: &List) -> Result<TreeRef> {
        let reference = list.reference();
        if self.entries_path(&reference).exists()
            && tree::verify(&self.tree_path(&reference), &self.entries_path(&reference), &reference)
                .is_ok()
        {
            remove_tree(source).map_err(Error::io("remove", source))?;
            return Ok(reference);
        }
        let folder = self.stage()?;
        let entries = folder.join("entries.jsonl");
        fs::write(&entries, list.text()).map_err(Error::io("write", &entries))?;
        // The tree may contain set-user-id programs, and they would work on the host.
        fs::set_permissions(&folder, Permissions::from_mode(0o700))
            .map_err(Error::io("chmod", &folder))?;
        fs::rename(source, folder.join("tree")).map_err(Error::io("move", source))?;
        // A single call syncs thousands of files; a sync of each would take minutes on a slow disk.
        let handle = File::open(&folder).map_err(Error::io("open", &folder))?;
        rustix::fs::syncfs(&handle).map_err(Error::io("sync", &folder))?;
        self.install(&folder, reference.hash)?;
        Ok(reference)
    }

    /// Marks an object as one that an image may not name. Durable on return.
    pub(super) fn mark(&self, hash: &str) -> Result<()> {
        let mark = self.pending.join(hash);
        File::create(&mark).map_err(Error::io("create", &mark))?;
        sync_dir(&self.pending)
    }

    fn stage(&self) -> Result<PathBuf> {
        let folder = self.temp.join(Uuid::new_v4().simple().to_string());
        fs::create_dir(&folder).map_err(Error::io("create", &folder))?;
        Ok(folder)
    }

    /// Renames a staged folder, whose content is durable, to its final name. A present folder of
    /// that name has damaged content (the caller checked); it moves to `tmp`, where whoever
    /// takes the lock next removes it.
    fn install(&self, folder: &Path, hash: ContentHash) -> Result<()> {
        let target = self.root.join(hash.to_string());
        if target.exists() {
            let aside = self.temp.join(format!("damaged-{}", Uuid::new_v4().simple()));
            fs::rename(&target, &aside).map_err(Error::io("move", &target))?;
        } else {
            self.mark(&hash.to_string())?;
        }
        fault_point!("image.before_object");
        hivekeep_fs::rename_new(folder, &target).map_err(Error::io("move", &target))?;
        fault_point!("image.after_object");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_by_the_last_two_parts_of_its_path() {
        let hash = ContentHash::of(b"one");
        let path = format!("/a/objects/{hash}/rootfs.ext4");
        let name = ObjectName { hash, file: "rootfs.ext4".to_owned() };
        assert_eq!(ObjectName::of(Path::new(&path)), Some(name));
        for path in ["/a/objects/rootfs.ext4", "rootfs.ext4", "/", ""] {
            assert_eq!(ObjectName::of(Path::new(path)), None, "{path}");
        }
    }
}
