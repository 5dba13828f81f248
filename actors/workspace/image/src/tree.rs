//! Directory objects: entry lists, their hash, and verification against a tree.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::remedy;
use super::{ContentHash, Error, FileOwner, ImageName, Result, TreeRef};

/// Type of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Dir,
    File { bytes: u64, blake3: ContentHash },
    Link { target: String },
}

/// Line of `entries.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Path relative to the tree's root; the root itself is the empty path.
    pub(super) path: String,
    /// Permission bits, with set-user-id and the like.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Attribute `security.capability` of a pulled image's file, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) capability: Option<String>,
    #[serde(flatten)]
    pub(super) kind: Kind,
}

/// Source of the owners of a tree's files.
#[derive(Debug, Clone)]
pub(super) enum Owners {
    /// Owners of the files on disk: the builder is root.
    OnDisk,
    /// Owners listed by path; root owns the rest. For a builder that cannot give files away.
    Listed(HashMap<String, FileOwner>),
}

impl Owners {
    /// Uses `OnDisk` for root; otherwise everything is root's except what `listed` names.
    pub(super) fn for_builder(listed: HashMap<String, FileOwner>) -> Self {
        if rustix::process::geteuid().is_root() { Self::OnDisk } else { Self::Listed(listed) }
    }

    fn of(&self, path: &str, meta: &fs::Metadata) -> FileOwner {
        match self {
            Self::OnDisk => FileOwner { uid: meta.uid(), gid: meta.gid(), capability: None },
            Self::Listed(listed) => listed.get(path).cloned().unwrap_or_default(),
        }
    }
}

/// Entries of a tree, sorted by path.
#[derive(Debug)]
pub(super) struct List(pub(super) Vec<Entry>);

impl List {
    pub(super) fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for entry in &self.0 {
            serde_json::to_writer(&mut text, entry).expect("an entry is plain data");
            text.push(b'\n');
        }
        text
    }

    pub(super) fn reference(&self) -> TreeRef {
        TreeRef {
            hash: ContentHash::of(&self.text()),
            entries: self.0.len() as u64,
            bytes: self.bytes(),
        }
    }

    /// Sum of the file sizes.
    pub(super) fn bytes(&self) -> u64 {
        let size = |entry: &Entry| match entry.kind {
            Kind::File { bytes, .. } => bytes,
            Kind::Dir | Kind::Link { .. } => 0,
        };
        self.0.iter().map(size).sum()
    }
}

/// Lists a tree, hashing every file. Blocks.
pub(super) fn scan(root: &Path, owners: &Owners) -> Result<List> {
    let mut list = Vec::new();
    visit(root, "", owners, &mut list)?;
    list.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(List(list))
}

fn visit(path: &Path, name: &str, owners: &Owners, list: &mut Vec<Entry>) -> Result<()> {
    let meta = fs::symlink_metadata(path).map_err(Error::io("stat", path))?;
    let FileOwner { uid, gid, capability } = owners.of(name, &meta);
    let odd = |what: &str| Error::Rootfs { reason: format!("{} {what}", path.display()) };
    let kind = if meta.is_dir() {
        for child in fs::read_dir(path).map_err(Error::io("list", path))? {
            let child = child.map_err(Error::io("list", path))?;
            let file = child.file_name();
            let file = file.to_str().ok_or_else(|| odd("contains a name that is not UTF-8"))?;
            let below = if name.is_empty() { file.to_owned() } else { format!("{name}/{file}") };
            visit(&child.path(), &below, owners, list)?;
        }
        Kind::Dir
    } else if meta.is_symlink() {
        let target = fs::read_link(path).map_err(Error::io("read link", path))?;
        let target = target.to_str().ok_or_else(|| odd("points to a name that is not UTF-8"))?;
        Kind::Link { target: target.to_owned() }
    } else if meta.is_file() {
        Kind::File { bytes: meta.len(), blake3: ContentHash::of_file(path)? }
    } else {
        return Err(odd("is neither file, directory nor link"));
    };
    // A link's own mode bits mean nothing and differ between filesystems.
    let mode = if meta.is_symlink() { 0o777 } else { meta.mode() & 0o7777 };
    list.push(Entry { path: name.to_owned(), mode, uid, gid, capability, kind });
    Ok(())
}

/// Compares a tree on disk with its list, and the list with its hash. Blocks, and reads everything.
pub(super) fn verify(tree: &Path, entries: &Path, reference: &TreeRef) -> Result<()> {
    let text = fs::read(entries).map_err(Error::io("read", entries))?;
    let corrupt = |path: &Path, found| Error::Corrupt {
        path: path.to_path_buf(),
        expected: reference.hash,
        found,
        remedy: remedy(&ImageName::Base),
    };
    if ContentHash::of(&text) != reference.hash {
        return Err(corrupt(entries, ContentHash::of(&text)));
    }
    let mut owners = HashMap::new();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let entry: Entry = serde_json::from_slice(line).map_err(|error| Error::Manifest {
            path: entries.to_path_buf(),
            reason: error.to_string(),
        })?;
        let Entry { path, uid, gid, capability, .. } = entry;
        owners.insert(path, FileOwner { uid, gid, capability });
    }
    let found = scan(tree, &Owners::Listed(owners))?.reference();
    if found.hash == reference.hash { Ok(()) } else { Err(corrupt(tree, found.hash)) }
}

/// Longest line of a script: debugfs(8) reads 8 KiB at a time and would take the rest of a longer
/// one for a command.
const SCRIPT_LINE_BYTES: usize = 6000;

/// Script for `debugfs -w` that gives every inode the owner and the capability of its entry.
/// `mke2fs -d` takes them from the files it reads, which are the builder's when the builder is not
/// root.
///
/// # Errors
/// `Rootfs` for a name that a script cannot hold: it would be read as commands.
pub(super) fn chown_script(list: &List) -> Result<Vec<u8>> {
    let mut script = Vec::new();
    for entry in &list.0 {
        if entry.path.is_empty() && (entry.uid, entry.gid) == (0, 0) {
            continue;
        }
        // The parser of debugfs takes two quotation marks for one that is part of the name.
        let path = entry.path.replace('"', "\"\"");
        if path.len() > SCRIPT_LINE_BYTES || path.contains(|c: char| c.is_control()) {
            let path = &entry.path;
            let reason = format!("only root can give an owner to a file of the name {path:.200?}");
            return Err(Error::Rootfs { reason });
        }
        let mut line = |line: String| {
            writeln!(script, "{line}").expect("writing to memory does not fail");
        };
        for (field, id) in [("uid", entry.uid), ("gid", entry.gid)] {
            line(format!("sif \"/{path}\" {field} {id}"));
        }
        if let Some(value) = &entry.capability {
            let octal = value.as_bytes().chunks(2).map(|pair| {
                let byte = std::str::from_utf8(pair).ok();
                byte.and_then(|pair| u8::from_str_radix(pair, 16).ok()).unwrap_or_default()
            });
            let octal: String = octal.map(|byte| format!("\\{byte:03o}")).collect();
            line(format!("ea_set \"/{path}\" security.capability \"{octal}\""));
        }
    }
    Ok(script)
}
