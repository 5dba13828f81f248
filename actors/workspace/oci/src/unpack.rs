//! Unpacking of layers into one tree, as the OCI specification of layers has it.
//!
//! Layers are hostile. Every folder is resolved by the kernel with the tree as its root
//! (`openat2`, `RESOLVE_IN_ROOT`), so a link of a layer leads to where it would lead inside and
//! nowhere else; names are made in the folder's handle and follow nothing. An entry that is not a
//! file, a folder or a link is refused, but for what is below `dev/`, where each machine mounts
//! its own.

mod apply;
mod beneath;
mod entry;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use hivekeep_image::FileOwner;
use hivekeep_kernel::fault_point;
use rustix::fs::FileType;
use tokio_util::sync::CancellationToken;

use crate::digest::DigestReader;
use crate::layer::{Budget, Unpadded};
use crate::{Error, LayerFile, OciResult, PullLimits};
use apply::Applier;
use beneath::{Beneath, TreeFolder};
use entry::{Extensions, LayerEntry};

/// Tree of an image.
#[derive(Debug)]
pub struct UnpackedTree {
    /// Owners and capabilities of what is not plainly root's, by path.
    pub owners: HashMap<String, FileOwner>,
    /// Number of devices and pipes below `dev/` that were left out.
    pub devices_left_out: u64,
    /// Number of extended attributes that were left out: all but capabilities and the user's.
    pub xattrs_left_out: u64,
    /// Bytes of the layers as archives.
    pub bytes: u64,
    /// Entries of the layers.
    pub entries: u64,
}

/// Unpacks layers, lowest first, into an empty folder, and adds the folders that machines and
/// commands need. Blocks. Nothing of an incomplete tree may be
/// used.
///
/// # Errors
/// `Entry` and `BadLayer` for what is refused, `TooLarge`, `Digest` for a layer that is not what
/// the configuration says, `Cancelled`.
pub fn unpack(
    layers: Vec<LayerFile>,
    tree: &Path,
    working_dir: Option<&str>,
    limits: PullLimits,
    cancel: &CancellationToken,
    tell: &(dyn Fn(u64) + Send + Sync),
) -> OciResult<UnpackedTree> {
    let budget = Budget::new(limits, cancel, tell);
    let mut applier = Applier::open(tree)?;
    for (number, layer) in (1..).zip(layers) {
        applier.begin_layer(number);
        unpack_layer(layer, number, &mut applier, &budget)?;
        fault_point!("pull.after_layer");
    }
    applier.add_mount_points()?;
    if let Some(path) = working_dir {
        applier.add_folder(path)?;
    }
    applier.finish(&budget)
}

fn unpack_layer(
    layer: LayerFile,
    number: usize,
    applier: &mut Applier,
    budget: &Budget<'_>,
) -> OciResult<()> {
    let expected = layer.diff_id;
    let bad = |error: std::io::Error| budget.error_of(number, &error);
    let mut reader = DigestReader::new(layer.open(budget)?);
    {
        let filled = Cell::new(false);
        let mut archive = tar::Archive::new(Unpadded::new(&mut reader, &filled));
        let mut extensions = Extensions::default();
        // Raw: the library reads records of extension into memory whatever their size.
        for entry in archive.entries().map_err(bad)?.raw(true) {
            let mut entry = entry.map_err(bad)?;
            if extensions.take_in(&mut entry, number, budget)? {
                continue;
            }
            budget.entry()?;
            let read = LayerEntry::new(&entry, std::mem::take(&mut extensions), number)?;
            applier.apply(read, &mut entry, budget)?;
            if filled.get() {
                let reason = "it ends within an entry".to_owned();
                return Err(Error::BadLayer { layer: number, reason });
            }
        }
    }
    // The digest is of all bytes, also of those behind the archive's end.
    std::io::copy(&mut reader, &mut std::io::sink()).map_err(bad)?;
    reader.finish().expect(expected, format!("layer {number}"))
}

/// Refusal of an entry.
fn refused(layer: usize, entry: &str, reason: impl Into<String>) -> Error {
    let entry = entry.chars().take(300).collect();
    Error::Entry { layer, entry, reason: reason.into() }
}

const PREFIX: &str = ".wh.";
/// Prefix of the names that aufs keeps for itself.
const AUFS: &str = ".wh..wh.";
const OPAQUE: &str = ".wh..wh..opq";

/// Meaning of a name in a layer.
#[derive(Debug, PartialEq, Eq)]
enum LayerName<'a> {
    Plain,
    /// All that lower layers have in the folder is gone.
    Opaque,
    /// Entries that lower layers have under this name are gone.
    Removed(&'a str),
    /// Name of aufs, without a meaning.
    Ignored,
    /// Name that cannot be.
    Bad,
}

impl<'a> LayerName<'a> {
    fn of(name: &'a str) -> Self {
        match name.strip_prefix(PREFIX) {
            None => Self::Plain,
            Some(_) if name == OPAQUE => Self::Opaque,
            Some(_) if name.starts_with(AUFS) => Self::Ignored,
            Some("" | "." | "..") => Self::Bad,
            Some(removed) => Self::Removed(removed),
        }
    }
}

/// Removes what lower layers have under a name; what this layer placed stays.
fn remove_lower(
    tree: &Beneath,
    folder: &TreeFolder,
    name: &str,
    placed: &HashSet<String>,
) -> io::Result<()> {
    let path = folder.below(name);
    match folder.kind(name)? {
        None => Ok(()),
        Some(FileType::Directory) if placed.contains(&path) => {
            clear_lower(tree, &tree.folder(&path)?, placed)
        }
        Some(_) if placed.contains(&path) => Ok(()),
        Some(_) => folder.remove(name),
    }
}

/// Removes what lower layers have in a folder. Folders are bounded in depth.
fn clear_lower(tree: &Beneath, folder: &TreeFolder, placed: &HashSet<String>) -> io::Result<()> {
    folder.names()?.iter().try_for_each(|(name, _)| remove_lower(tree, folder, name, placed))
}

#[cfg(test)]
mod tests;
