//! Application of entries to the tree.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;

use hivekeep_image::FileOwner;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, linkat, mkdirat, openat, symlinkat};
use rustix::io::Errno;

use super::beneath::{Beneath, EntryMeta, TreeFolder, split};
use super::entry::{EntryKind, LayerEntry, plain};
use super::{LayerName, UnpackedTree, clear_lower, refused, remove_lower};
use crate::layer::Budget;
use crate::{Error, OciResult};

/// Folders that machines mount on or work in, with their modes.
const MOUNT_POINTS: [(&str, u32); 8] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("workspace", 0o755),
];

/// Tree in the making.
pub(super) struct Applier {
    tree: Beneath,
    is_root: bool,
    layer: usize,
    owners: HashMap<String, FileOwner>,
    /// Attributes of folders, put on at the end: making names in them changes their times.
    folders: BTreeMap<String, EntryMeta>,
    /// Paths that the present layer placed.
    placed: HashSet<String>,
    /// Folder of the last entry; forgotten when anything is removed.
    last: Option<(String, Rc<TreeFolder>)>,
    devices_left_out: u64,
    xattrs_left_out: u64,
}

impl Applier {
    pub(super) fn open(tree: &Path) -> OciResult<Self> {
        let root = EntryMeta { mode: 0o755, ..EntryMeta::default() };
        Ok(Self {
            tree: Beneath::open(tree).map_err(Error::io("open the tree"))?,
            is_root: rustix::process::geteuid().is_root(),
            layer: 0,
            owners: HashMap::new(),
            folders: BTreeMap::from([(String::new(), root)]),
            placed: HashSet::new(),
            last: None,
            devices_left_out: 0,
            xattrs_left_out: 0,
        })
    }

    pub(super) fn begin_layer(&mut self, number: usize) {
        self.layer = number;
        self.placed.clear();
        self.last = None;
    }

    /// Applies one entry, whose content is read from `content`.
    pub(super) fn apply(
        &mut self,
        entry: LayerEntry,
        content: &mut impl Read,
        budget: &Budget<'_>,
    ) -> OciResult<()> {
        let layer = self.layer;
        let no = |reason: &str| refused(layer, &entry.path, reason);
        if entry.path.is_empty() {
            return match entry.kind {
                EntryKind::Folder => {
                    self.folders.insert(String::new(), entry.meta);
                    Ok(())
                }
                _ => Err(no("the root is not a folder")),
            };
        }
        let (above, name) = split(&entry.path);
        match LayerName::of(name) {
            LayerName::Plain => {}
            LayerName::Ignored => return Ok(()),
            LayerName::Bad => return Err(no("it is not a valid whiteout")),
            whiteout => return self.white_out(above, &whiteout).map_err(|error| no(&why(&error))),
        }
        if entry.kind == EntryKind::Special {
            if !entry.path.starts_with("dev/") {
                return Err(no("it is a device or a pipe"));
            }
            self.devices_left_out += 1;
            return Ok(());
        }
        let folder = self.folder(above).map_err(|error| no(&why(&error)))?;
        let path = folder.below(name);
        self.make(&folder, name, &entry, content, budget)?;
        match entry.meta.owner() {
            // A hard link has the owner of what it is another name of.
            _ if matches!(entry.kind, EntryKind::HardLink(_)) => {}
            Some(owner) => drop(self.owners.insert(path.clone(), owner)),
            None => drop(self.owners.remove(&path)),
        }
        self.placed.insert(path);
        Ok(())
    }

    fn make(
        &mut self,
        folder: &TreeFolder,
        name: &str,
        entry: &LayerEntry,
        content: &mut impl Read,
        budget: &Budget<'_>,
    ) -> OciResult<()> {
        let layer = self.layer;
        let no = |error: io::Error| match error.kind() {
            io::ErrorKind::StorageFull => Error::io(format!("unpack layer {layer}"))(error),
            _ => refused(layer, &entry.path, why(&error)),
        };
        let path = folder.below(name);
        let there = folder.kind(name).map_err(no)?;
        match &entry.kind {
            EntryKind::Folder => {
                if there != Some(FileType::Directory) {
                    self.clear(folder, name, there).map_err(no)?;
                    mkdirat(&folder.handle, name, Mode::RWXU).map_err(|e| no(e.into()))?;
                }
                self.folders.insert(path, entry.meta.clone());
            }
            EntryKind::File => {
                self.clear(folder, name, there).map_err(no)?;
                let how = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                let mode = Mode::RUSR | Mode::WUSR;
                let file = openat(&folder.handle, name, how | OFlags::CLOEXEC, mode);
                let mut file = File::from(file.map_err(|e| no(e.into()))?);
                let copied = io::copy(content, &mut file).map_err(|error| match error.kind() {
                    io::ErrorKind::StorageFull => no(error),
                    _ => budget.error_of(layer, &error),
                })?;
                if copied != entry.bytes {
                    return Err(refused(layer, &entry.path, "the archive ends in it"));
                }
                self.xattrs_left_out += entry.meta.put_on(&file, self.is_root).map_err(no)?;
            }
            EntryKind::Symlink(target) => {
                self.clear(folder, name, there).map_err(no)?;
                symlinkat(target.as_str(), &folder.handle, name).map_err(|e| no(e.into()))?;
                entry.meta.put_on_link(&folder.handle, name, self.is_root).map_err(no)?;
                self.xattrs_left_out += entry.meta.xattrs.len() as u64;
            }
            EntryKind::HardLink(target) => {
                self.link(folder, name, there, target).map_err(no)?;
            }
            EntryKind::Special => {}
        }
        Ok(())
    }

    fn link(
        &mut self,
        folder: &TreeFolder,
        name: &str,
        there: Option<FileType>,
        target: &str,
    ) -> io::Result<()> {
        let (above, target) = split(target);
        let source = self.tree.folder(above)?;
        let (from, to) = (source.below(target), folder.below(name));
        match source.kind(target)? {
            Some(FileType::RegularFile | FileType::Symlink) if from != to => {}
            Some(_) => return Err(io::Error::other("its target is not another file")),
            None => return Err(io::Error::other("its target does not exist")),
        }
        if to.is_empty() || from.starts_with(&format!("{to}/")) {
            return Err(io::Error::other("its target is in what it would replace"));
        }
        self.clear(folder, name, there)?;
        linkat(&source.handle, target, &folder.handle, name, AtFlags::empty())?;
        match self.owners.get(&from).cloned() {
            Some(owner) => drop(self.owners.insert(to, owner)),
            None => drop(self.owners.remove(&to)),
        }
        Ok(())
    }

    /// Removes what a new entry takes the place of.
    fn clear(
        &mut self,
        folder: &TreeFolder,
        name: &str,
        there: Option<FileType>,
    ) -> io::Result<()> {
        if there.is_none() {
            return Ok(());
        }
        self.last = None;
        folder.remove(name)
    }

    fn white_out(&mut self, above: &str, whiteout: &LayerName<'_>) -> io::Result<()> {
        let folder = match self.tree.folder(above) {
            // Nothing is there to be removed.
            Err(error) if missing(&error) => return Ok(()),
            folder => folder?,
        };
        self.last = None;
        match whiteout {
            LayerName::Removed(name) => remove_lower(&self.tree, &folder, name, &self.placed),
            _ => clear_lower(&self.tree, &folder, &self.placed),
        }
    }

    /// Folder of an entry, made where it is missing. It and those above count as placed: a whiteout
    /// does not take away what its own layer brings.
    fn folder(&mut self, path: &str) -> io::Result<Rc<TreeFolder>> {
        if let Some((last, folder)) = &self.last
            && last == path
        {
            return Ok(folder.clone());
        }
        let (folders, owners) = (&mut self.folders, &mut self.owners);
        let plain = EntryMeta { mode: 0o755, ..EntryMeta::default() };
        let folder = self.tree.make_folder(path, &mut |made| {
            owners.remove(&made);
            folders.insert(made, plain.clone());
        })?;
        let folder = Rc::new(folder);
        let mut above = folder.path.as_str();
        while !above.is_empty() && self.placed.insert(above.to_owned()) {
            above = split(above).0;
        }
        self.last = Some((path.to_owned(), folder.clone()));
        Ok(folder)
    }

    /// Makes the folders that machines need where the image has none.
    pub(super) fn add_mount_points(&mut self) -> OciResult<()> {
        let root = self.tree.folder("").map_err(Error::io("open the tree"))?;
        for (name, mode) in MOUNT_POINTS {
            if root.kind(name).map_err(Error::io("look at the tree"))?.is_none() {
                mkdirat(&root.handle, name, Mode::RWXU).map_err(Error::io("make a folder"))?;
                self.owners.remove(name);
                self.folders.insert(name.to_owned(), EntryMeta { mode, ..EntryMeta::default() });
            }
        }
        Ok(())
    }

    /// Makes a folder where the image has none, as containers' working directories are made.
    pub(super) fn add_folder(&mut self, path: &str) -> OciResult<()> {
        let bad =
            |why: &str| Error::unsupported(format!("its working directory {path:.200?}: {why}"));
        let plain = plain(path.as_bytes()).map_err(bad)?;
        self.folder(&plain).map(drop).map_err(|error| bad(&why(&error)))
    }

    /// Puts the attributes on folders, the deepest first.
    pub(super) fn finish(mut self, budget: &Budget<'_>) -> OciResult<UnpackedTree> {
        for (path, meta) in self.folders.iter().rev() {
            let put =
                self.tree.exact_folder(path).and_then(|folder| meta.put_on(&folder, self.is_root));
            match put {
                Ok(left_out) => self.xattrs_left_out += left_out,
                // A later layer took it away.
                Err(error) if missing(&error) => {}
                Err(error) => return Err(Error::io(format!("set attributes of {path:?}"))(error)),
            }
        }
        if let Some(root) = self.folders.get("").and_then(EntryMeta::owner) {
            self.owners.insert(String::new(), root);
        }
        Ok(UnpackedTree {
            owners: self.owners,
            devices_left_out: self.devices_left_out,
            xattrs_left_out: self.xattrs_left_out,
            bytes: budget.bytes(),
            entries: budget.entries(),
        })
    }
}

fn missing(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP].map(|errno| errno.raw_os_error());
    error.raw_os_error().is_some_and(|code| gone.contains(&code))
        || error.kind() == io::ErrorKind::NotFound
}

/// Reason of an I/O error, in terms of the layer.
fn why(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::EXIST) => "it is below a link that leads nowhere".to_owned(),
        Some(Errno::NOTDIR) => "it is below something that is not a folder".to_owned(),
        Some(Errno::LOOP) => "it is below links that lead to each other".to_owned(),
        None if error.kind() == io::ErrorKind::InvalidFilename => {
            "links lead it deeper than paths may be".to_owned()
        }
        _ => error.to_string(),
    }
}
