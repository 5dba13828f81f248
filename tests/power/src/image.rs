//! A disk image: a tree of files as a power cut left it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

/// What is found after a power cut.
#[derive(Debug, Clone)]
pub struct Image {
    pub(crate) root: Node,
    /// Whether anything is missing that a program had written or named.
    pub lost: bool,
}

/// One of its files, or a folder with what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A folder.
    Folder(Meta, BTreeMap<OsString, Node>),
    /// A file with its bytes.
    File(Meta, Vec<u8>),
    /// A symbolic link.
    Link(OsString),
}

/// Mode and owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Default for Meta {
    fn default() -> Self {
        Self { mode: 0o700, uid: 0, gid: 0 }
    }
}

impl Default for Image {
    /// An empty disk.
    fn default() -> Self {
        Self { root: Node::Folder(Meta::default(), BTreeMap::new()), lost: false }
    }
}

impl Image {
    /// Writes it to a folder, which is there and empty.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn write_to(&self, folder: &Path) -> io::Result<()> {
        write(&self.root, folder)
    }

    /// The file or folder at a path.
    pub fn at(&self, path: &str) -> Option<&Node> {
        path.split('/').try_fold(&self.root, |node, name| match node {
            Node::Folder(_, entries) => entries.get(&OsString::from(name)),
            _ => None,
        })
    }
}

fn write(node: &Node, path: &Path) -> io::Result<()> {
    let meta = match node {
        Node::Link(to) => return symlink(to, path),
        Node::File(meta, bytes) => {
            fs::write(path, bytes)?;
            meta
        }
        Node::Folder(meta, entries) => {
            if !path.is_dir() {
                fs::create_dir(path)?;
            }
            for (name, below) in entries {
                write(below, &path.join(name))?;
            }
            meta
        }
    };
    chown(path, Some(meta.uid), Some(meta.gid))?;
    fs::set_permissions(path, Permissions::from_mode(meta.mode.into()))
}
