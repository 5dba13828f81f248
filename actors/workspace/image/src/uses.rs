//! References to objects: which workspaces have a disk over which object, and removal of images
//! and objects that nothing refers to.
//!
//! A use is an empty file `uses/<hash>/<daemon>.<user>`, made before the disk is. A daemon compares
//! its own with its records when it starts and leaves the mark `uses/complete`; without the mark
//! nothing is removed. Daemons that share a store leave each other's uses alone.
//!
//! Each holder of the store's lock first removes what the last one left unfinished, after a build that failed, was
//! cancelled or was killed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hivekeep_fs::remove_tree;
use hivekeep_kernel::fault_point;

use crate::files::{has_mounts, sync_dir};
use crate::objects::{OBJECTS, PENDING};
use crate::store::Inner;
use crate::{ContentHash, Error, ImageName, ImageState, ObjectName, Result};

const USES: &str = "uses";
const COMPLETE: &str = "complete";

/// Images and objects that a removal took away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemovedImages {
    /// Names of images.
    pub images: Vec<ImageName>,
    /// Number of objects.
    pub objects: u64,
    /// Bytes on the disk that are free again.
    pub bytes: u64,
}

/// Terms of a prune: which unused images and objects are removed.
#[derive(Debug, Clone, Copy)]
pub struct PruneTerms {
    /// Minimum time since the last use, or since the pull.
    pub age: Duration,
    /// Free bytes of the file system below which ten minutes are enough.
    pub min_free_bytes: u64,
}

impl PruneTerms {
    /// Age below which nothing is removed by itself: what was pulled for a workspace is not held
    /// before its disk is made.
    pub const SETTLING: Duration = Duration::from_secs(600);
}

impl Inner {
    fn uses(&self) -> PathBuf {
        self.root.join(USES)
    }

    /// Records that a user has a disk over an object. Durable on return. Blocks.
    pub(super) fn hold(&self, base: &Path, user: &str) -> Result<()> {
        let Some(ObjectName { hash, .. }) = ObjectName::of(base) else { return Ok(()) };
        let folder = self.uses().join(hash.to_string());
        let file = folder.join(user);
        if file.exists() {
            return Ok(());
        }
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        File::create(&file).map_err(Error::io("create", &file))?;
        sync_dir(&folder)?;
        sync_dir(&self.uses())?;
        // A removal looks at the uses after it took the object away from its name.
        if base.exists() {
            self.touch(&folder);
            return Ok(());
        }
        let _unheld = fs::remove_file(&file);
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        Err(Error::Io { doing: "use", path: base.to_owned(), source })
    }

    /// Makes this the time of an object's last use, which a disk's age is counted from. Without it
    /// the object seems older than it is and is pulled again.
    fn touch(&self, uses: &Path) {
        let object = uses.file_name().map(|hash| self.root.join(OBJECTS).join(hash));
        let touched = object.map(|object| {
            File::open(object).and_then(|object| object.set_modified(SystemTime::now()))
        });
        if let Some(Err(error)) = touched {
            tracing::debug!(%error, "the time of an image's use is not kept");
        }
    }

    /// Forgets all uses of a user. Blocks.
    pub(super) fn release(&self, user: &str) -> Result<()> {
        for folder in list(&self.uses())?.into_iter().filter(|path| path.is_dir()) {
            let file = folder.join(user);
            match fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", &file)(error));
                }
                Err(_) => {}
                Ok(()) => self.touch(&folder),
            }
            let _still_used = fs::remove_dir(&folder);
        }
        Ok(())
    }

    /// Makes the uses of a daemon exactly these: bases by user. Blocks.
    pub(super) fn replace_uses(&self, daemon: &str, uses: &[(String, PathBuf)]) -> Result<()> {
        let users: HashSet<_> = uses.iter().map(|(user, _)| user.as_str()).collect();
        let is_ours = |user: &str| user.split_once('.').is_some_and(|(of, _)| of == daemon);
        for folder in list(&self.uses())?.into_iter().filter(|path| path.is_dir()) {
            for file in list(&folder)? {
                let user = file.file_name().and_then(|name| name.to_str());
                if user.is_some_and(|user| is_ours(user) && !users.contains(user)) {
                    fs::remove_file(&file).map_err(Error::io("remove", &file))?;
                }
            }
            let _still_used = fs::remove_dir(&folder);
        }
        for (user, base) in uses {
            // A base that is gone is reported when the workspace starts.
            if base.exists() {
                self.hold(base, user)?;
            }
        }
        let mark = self.uses().join(COMPLETE);
        fs::write(&mark, "").map_err(Error::io("write", &mark))
    }

    /// Users of objects. Blocks.
    pub(super) fn users(&self) -> Result<BTreeMap<String, BTreeSet<String>>> {
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let mut users = BTreeMap::new();
        for folder in list(&self.uses())?.into_iter().filter(|path| path.is_dir()) {
            let of: BTreeSet<_> = list(&folder)?.iter().filter_map(|file| name(file)).collect();
            users.extend(name(&folder).filter(|_| !of.is_empty()).map(|hash| (hash, of)));
        }
        Ok(users)
    }

    /// Removes a pulled image and those of its objects that no other image has. Legal under the
    /// lock. Blocks.
    ///
    /// # Errors
    /// `InUse`; `Missing` when there is no such image.
    pub(super) fn remove_image(&self, name: &ImageName) -> Result<RemovedImages> {
        self.may_remove()?;
        let state = self.state(name);
        if let ImageState::NotBuilt = state {
            return Err(Error::missing(name, "nothing of this name is pulled"));
        }
        let hashes = hashes(&state);
        let users = self.users()?;
        let used: BTreeSet<_> =
            hashes.iter().filter_map(|hash| users.get(hash)).flatten().collect();
        if !used.is_empty() {
            let users = used.into_iter().cloned().collect();
            return Err(Error::InUse { image: name.clone(), users });
        }
        // After a crash here the next holder of the lock finishes the removal.
        hashes.iter().try_for_each(|hash| self.objects.mark(hash))?;
        let path = self.manifest_path(name);
        fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        hivekeep_fs::sync_parent(&path).map_err(Error::io("sync", &path))?;
        fault_point!("image.after_unnamed");
        let mut removed = RemovedImages { images: vec![name.clone()], ..Default::default() };
        let wanted = self.wanted()?;
        for hash in hashes.iter().filter(|hash| !wanted.contains(*hash)) {
            self.remove_object(hash, &mut removed)?;
        }
        Ok(removed)
    }

    /// Removes pulled images that nothing uses and objects that no image has, where they are old
    /// enough or room is short. Legal under the lock. Blocks.
    pub(super) fn prune(&self, terms: PruneTerms) -> Result<RemovedImages> {
        self.may_remove()?;
        let mut removed = RemovedImages::default();
        let wanted = self.wanted()?;
        for object in list(&self.root.join(OBJECTS))? {
            let Some(hash) = object.file_name().and_then(|name| name.to_str()) else { continue };
            if !wanted.contains(hash) && self.is_due(modified(&object)?, terms)? {
                self.remove_object(hash, &mut removed)?;
            }
        }
        let mut images = Vec::new();
        for name in self.pulled_names()? {
            let path = self.manifest_path(&name);
            let objects = hashes(&self.state(&name));
            let objects = objects.iter().map(|hash| self.root.join(OBJECTS).join(hash));
            // When it was pulled, or when its disk or tree was last in use.
            let used = std::iter::once(path).chain(objects).filter_map(|path| modified(&path).ok());
            images.push((used.max().unwrap_or(SystemTime::UNIX_EPOCH), name));
        }
        images.sort();
        for (used, name) in images {
            if !self.is_due(used, terms)? {
                continue;
            }
            match self.remove_image(&name) {
                Err(Error::InUse { .. }) => {}
                gone => {
                    let gone = gone?;
                    removed.images.extend(gone.images);
                    removed.objects += gone.objects;
                    removed.bytes += gone.bytes;
                }
            }
        }
        Ok(removed)
    }

    fn is_due(&self, used: SystemTime, terms: PruneTerms) -> Result<bool> {
        let age = SystemTime::now().duration_since(used).unwrap_or_default();
        Ok(age >= terms.age
            || (age >= PruneTerms::SETTLING && self.free_bytes()? < terms.min_free_bytes))
    }

    fn free_bytes(&self) -> Result<u64> {
        let stat = rustix::fs::statvfs(&self.root).map_err(Error::io("look at", &self.root))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn may_remove(&self) -> Result<()> {
        if self.uses().join(COMPLETE).exists() { Ok(()) } else { Err(Error::UsesUnknown) }
    }

    /// Objects that an image or a disk needs.
    pub(super) fn wanted(&self) -> Result<BTreeSet<String>> {
        let mut wanted: BTreeSet<_> = self.users()?.into_keys().collect();
        for name in ImageName::BUILT.into_iter().chain(self.pulled_names()?) {
            match self.state(&name) {
                // The objects of an unreadable manifest are not known.
                ImageState::Unreadable { .. } => return Err(Error::UsesUnknown),
                state => wanted.extend(hashes(&state)),
            }
        }
        Ok(wanted)
    }

    /// Moves an object out of its name, looks once more for users, and removes it.
    fn remove_object(&self, hash: &str, removed: &mut RemovedImages) -> Result<()> {
        let object = self.root.join(OBJECTS).join(hash);
        let aside = self.temp().join(format!("removed-{}", uuid::Uuid::new_v4().simple()));
        match fs::rename(&object, &aside) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            moved => moved.map_err(Error::io("move", &object))?,
        }
        fault_point!("image.after_aside");
        if self.users()?.contains_key(hash) {
            return fs::rename(&aside, &object).map_err(Error::io("move", &aside));
        }
        removed.bytes += bytes_on_disk(&aside);
        removed.objects += 1;
        remove_tree(&aside).map_err(Error::io("remove", &aside))
    }
}

fn modified(path: &Path) -> Result<SystemTime> {
    let modified = fs::metadata(path).and_then(|meta| meta.modified());
    modified.map_err(Error::io("stat", path))
}

/// Objects that an image is made of.
fn hashes(state: &ImageState) -> Vec<String> {
    let text = |hash: ContentHash| hash.to_string();
    match state {
        ImageState::Built(image) => {
            let files = [&image.kernel, &image.modules, &image.initrd, &image.rootfs_ext4];
            let tree = image.rootfs_tree.iter().map(|tree| tree.hash);
            files.into_iter().map(|file| file.hash).chain(tree).map(text).collect()
        }
        ImageState::Pulled(image) => {
            [image.rootfs_ext4.hash, image.rootfs_tree.hash].map(text).to_vec()
        }
        ImageState::NotBuilt | ImageState::Unreadable { .. } => Vec::new(),
    }
}

pub(super) fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::io("list", folder))?,
    };
    entries
        .map(|entry| entry.map(|entry| entry.path()).map_err(Error::io("list", folder)))
        .collect()
}

/// Room that a tree takes, as far as it can be looked at. Its depth is bounded: it was listed when
/// it was made.
pub(super) fn bytes_on_disk(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
    // A file with several names counts once for each of them, by its share.
    let own = meta.blocks() * 512 / if meta.is_dir() { 1 } else { meta.nlink().max(1) };
    if !meta.is_dir() {
        return own;
    }
    let below = fs::read_dir(path).into_iter().flatten().flatten();
    own + below.map(|entry| bytes_on_disk(&entry.path())).sum::<u64>()
}

impl Inner {
    /// Removes unfinished work, and objects that came and that no manifest names. Legal under the
    /// lock. What cannot be removed stays for the next holder. Blocks.
    pub(super) fn recover(&self) {
        if let Err(error) = self.clear().and_then(|()| self.settle()) {
            tracing::warn!(%error, "what an unfinished build left of an image stays");
        }
    }

    /// Empties the folder of unfinished builds.
    fn clear(&self) -> Result<()> {
        let temp = self.temp();
        if has_mounts(&temp)? {
            tracing::warn!(path = %temp.display(), "something is mounted below; left unchanged");
            return Ok(());
        }
        for path in list(&temp)? {
            remove_tree(&path).map_err(Error::io("remove", &path))?;
        }
        Ok(())
    }

    /// Settles each marked object: it stays where an image or a disk has it.
    fn settle(&self) -> Result<()> {
        let pending = list(&self.root.join(PENDING))?;
        if pending.is_empty() {
            return Ok(());
        }
        let wanted = match self.wanted() {
            // An unreadable manifest may name some of the objects.
            Err(Error::UsesUnknown) => return Ok(()),
            wanted => wanted?,
        };
        let mut removed = RemovedImages::default();
        for mark in pending {
            let Some(hash) = mark.file_name().and_then(|name| name.to_str()) else { continue };
            if !wanted.contains(hash) {
                self.remove_object(hash, &mut removed)?;
            }
            fs::remove_file(&mark).map_err(Error::io("remove", &mark))?;
        }
        Ok(())
    }
}
