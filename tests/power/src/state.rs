//! An inode table: the file system as programs see it, and what a power cut leaves of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use fastrand::Rng;
use fuser::{Errno, FileType};

use crate::contents::Contents;
use crate::image::{Image, Meta, Node};
use crate::names::{Ino, Names, Order, Set, Tree};

pub(crate) const ROOT: Ino = 1;
/// After so many changed names, inodes that nobody can reach are dropped.
const CHANGES_KEPT: usize = 256;

/// A file, a folder or a link.
pub(crate) struct Inode {
    pub(crate) kind: Kind,
    pub(crate) meta: Meta,
    pub(crate) modified: SystemTime,
    pub(crate) links: u32,
    /// How often the kernel was told of it.
    pub(crate) lookups: u64,
}

pub(crate) enum Kind {
    Folder,
    File(Contents),
    Link(OsString),
}

/// Everything.
pub(crate) struct State {
    names: Names,
    inodes: HashMap<Ino, Inode>,
    next: Ino,
    changes: usize,
}

impl Inode {
    fn new(kind: Kind, meta: Meta) -> Self {
        Self { kind, meta, modified: SystemTime::now(), links: 1, lookups: 0 }
    }

    pub(crate) fn file_type(&self) -> FileType {
        match self.kind {
            Kind::Folder => FileType::Directory,
            Kind::File(_) => FileType::RegularFile,
            Kind::Link(_) => FileType::Symlink,
        }
    }
}

impl State {
    /// The file system of an image, all of it on the disk.
    pub(crate) fn load(image: &Image) -> Self {
        let mut state =
            Self { names: Names::default(), inodes: HashMap::new(), next: ROOT, changes: 0 };
        let mut sets = Vec::new();
        state.load_node(&image.root, &mut sets);
        state.names = Names::on_disk(sets);
        state
    }

    fn load_node(&mut self, node: &Node, sets: &mut Vec<Set>) -> Ino {
        let (kind, meta) = match node {
            Node::Folder(meta, _) => (Kind::Folder, *meta),
            Node::File(meta, bytes) => (Kind::File(Contents::on_disk(bytes)), *meta),
            Node::Link(to) => (Kind::Link(to.clone()), Meta::default()),
        };
        let dir = self.add(Inode::new(kind, meta));
        if let Node::Folder(_, entries) = node {
            for (name, below) in entries {
                let ino = Some(self.load_node(below, sets));
                sets.push(Set { dir, name: name.clone(), ino });
            }
        }
        dir
    }

    fn add(&mut self, inode: Inode) -> Ino {
        let ino = self.next;
        self.next += 1;
        self.inodes.insert(ino, inode);
        ino
    }

    pub(crate) fn inode(&mut self, ino: Ino) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&ino).ok_or(Errno::ENOENT)
    }

    pub(crate) fn contents(&mut self, ino: Ino) -> Result<&mut Contents, Errno> {
        match &mut self.inode(ino)?.kind {
            Kind::File(contents) => Ok(contents),
            Kind::Folder => Err(Errno::EISDIR),
            Kind::Link(_) => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn find(&self, dir: Ino, name: &OsStr) -> Result<Ino, Errno> {
        self.names.now.get(dir, name).ok_or(Errno::ENOENT)
    }

    pub(crate) fn entries(&self, dir: Ino) -> Vec<(OsString, Ino, FileType)> {
        let entries = self.names.now.entries(dir);
        entries.map(|(name, ino)| (name.clone(), ino, self.inodes[&ino].file_type())).collect()
    }

    /// Makes something new.
    pub(crate) fn make(
        &mut self,
        dir: Ino,
        name: &OsStr,
        kind: Kind,
        meta: Meta,
    ) -> Result<Ino, Errno> {
        if self.find(dir, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        let ino = self.add(Inode::new(kind, meta));
        self.set(vec![Set { dir, name: name.into(), ino: Some(ino) }]);
        Ok(ino)
    }

    /// Gives a file one more name.
    pub(crate) fn link(&mut self, ino: Ino, dir: Ino, name: &OsStr) -> Result<(), Errno> {
        if self.find(dir, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        self.inode(ino)?.links += 1;
        self.set(vec![Set { dir, name: name.into(), ino: Some(ino) }]);
        Ok(())
    }

    pub(crate) fn remove(&mut self, dir: Ino, name: &OsStr) -> Result<(), Errno> {
        let ino = self.find(dir, name)?;
        self.unlinked(ino)?;
        self.set(vec![Set { dir, name: name.into(), ino: None }]);
        Ok(())
    }

    /// Refuses to lose what is in a folder.
    fn unlinked(&mut self, ino: Ino) -> Result<(), Errno> {
        if self.names.now.entries(ino).next().is_some() {
            return Err(Errno::ENOTEMPTY);
        }
        let inode = self.inode(ino)?;
        inode.links = inode.links.saturating_sub(1);
        Ok(())
    }

    pub(crate) fn rename(
        &mut self,
        (dir, name): (Ino, &OsStr),
        (new_dir, new_name): (Ino, &OsStr),
        exchange: bool,
    ) -> Result<(), Errno> {
        let moved = self.find(dir, name)?;
        let there = self.find(new_dir, new_name).ok();
        match there {
            Some(there) if there == moved => return Ok(()),
            Some(_) if exchange => {}
            None if exchange => return Err(Errno::ENOENT),
            Some(there) => self.unlinked(there)?,
            None => {}
        }
        let old = Set { dir, name: name.into(), ino: there.filter(|_| exchange) };
        self.set(vec![old, Set { dir: new_dir, name: new_name.into(), ino: Some(moved) }]);
        Ok(())
    }

    fn set(&mut self, sets: Vec<Set>) {
        self.names.change(sets);
        self.changes += 1;
        if self.changes.is_multiple_of(CHANGES_KEPT) {
            let reachable = self.names.reachable();
            let there = |ino: Ino| ino == ROOT || reachable.contains(&ino);
            self.inodes.retain(|ino, inode| there(*ino) || inode.lookups > 0);
            self.names.retain(|dir| self.inodes.contains_key(&dir));
        }
    }

    /// Makes the names in a folder durable.
    pub(crate) fn sync_names(&mut self, dir: Ino) {
        self.names.sync(dir);
    }

    /// What is found after a power cut now.
    pub(crate) fn survivor(&self, order: Order, rng: &mut Rng) -> Image {
        let (tree, lost) = self.names.survivor(order, rng);
        let mut cut = Cutting { state: self, tree: &tree, rng, lost, seen: BTreeSet::new() };
        let root = cut.node(ROOT);
        Image { root, lost: cut.lost }
    }
}

/// A walk through what survives.
struct Cutting<'s> {
    state: &'s State,
    tree: &'s Tree,
    rng: &'s mut Rng,
    lost: bool,
    seen: BTreeSet<Ino>,
}

impl Cutting<'_> {
    fn node(&mut self, ino: Ino) -> Node {
        let inode = &self.state.inodes[&ino];
        match &inode.kind {
            Kind::File(contents) => {
                let (bytes, lost) = contents.survivor(self.rng);
                self.lost |= lost;
                Node::File(inode.meta, bytes)
            }
            Kind::Link(to) => Node::Link(to.clone()),
            Kind::Folder => {
                assert!(self.seen.insert(ino), "a folder has two names");
                let entries = self.tree.entries(ino);
                let entries: BTreeMap<_, _> =
                    entries.map(|(name, ino)| (name.clone(), self.node(ino))).collect();
                Node::Folder(inode.meta, entries)
            }
        }
    }
}
