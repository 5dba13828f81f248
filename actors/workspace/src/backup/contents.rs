//! Files of the disks that a copy of the journal names.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use hivekeep_kernel::{Layer, LayerId, ToolError, WorkspaceId};
use hivekeep_machine::Isolation;
use hivekeep_store::Journal;
use serde::{Deserialize, Serialize};

use crate::{
    backup::{BackedUp, LeftOut, layer_of, raced},
    codes,
    ledger::Ledger,
    logs,
};

/// Disks that a backup holds, and those that it does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// The folder of the layers.
    pub folder: PathBuf,
    /// The layer files in the folder.
    pub layers: Vec<String>,
    /// The files of images that disks stand on.
    pub bases: Vec<PathBuf>,
    /// The workspaces whose disks are in the backup.
    pub kept: Vec<BackedUp>,
    /// The workspaces whose disks are not in the backup.
    pub left_out: Vec<LeftOut>,
    /// Snapshots whose memory is not in the backup.
    pub memories_left_out: usize,
}

/// Reads the workspaces of a journal that nobody writes. Blocks.
pub(super) fn of(
    journal: &Journal,
    frozen: &BTreeSet<WorkspaceId>,
    left_out: Vec<LeftOut>,
    folder: PathBuf,
) -> Result<Contents, ToolError> {
    let ledgers = logs::ledgers(journal)?;
    let found = layers_in(&folder)?;
    let mut named = Named::of(&ledgers, frozen, left_out, &found)?;
    for layer in found.difference(&named.layers) {
        let path = folder.join(file(*layer));
        fs::remove_file(&path).map_err(|error| unreadable(&path, &error))?;
    }
    named.left_out.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Contents {
        folder,
        layers: named.layers.into_iter().map(file).collect(),
        bases: named.bases.into_iter().collect(),
        kept: named.kept,
        left_out: named.left_out,
        memories_left_out: named.memories,
    })
}

fn file(layer: LayerId) -> String {
    format!("{layer}.qcow2")
}

fn unreadable(path: &Path, error: &std::io::Error) -> ToolError {
    let message = format!("{}: {error}", path.display());
    ToolError::new(Layer::Store, codes::BACKUP_FAILED, message)
        .next("`hivekeep check` looks at the folders")
}

fn layers_in(folder: &Path) -> Result<BTreeSet<LayerId>, ToolError> {
    let failed = |error: std::io::Error| unreadable(folder, &error);
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        found.extend(layer_of(&entry.map_err(failed)?.file_name()));
    }
    Ok(found)
}

/// Files that ledgers name and that are there.
#[derive(Debug, Default)]
struct Named {
    layers: BTreeSet<LayerId>,
    bases: BTreeSet<PathBuf>,
    kept: Vec<BackedUp>,
    left_out: Vec<LeftOut>,
    memories: usize,
}

impl Named {
    fn of(
        ledgers: &[Ledger],
        frozen: &BTreeSet<WorkspaceId>,
        left_out: Vec<LeftOut>,
        found: &BTreeSet<LayerId>,
    ) -> Result<Self, ToolError> {
        let mut not_frozen: BTreeMap<_, _> =
            left_out.into_iter().map(|left| (left.workspace_id, left)).collect();
        let mut named = Self::default();
        // The pool's machines are made again; failed workspaces and those being removed have no disk.
        let with_disk = |ledger: &&Ledger| {
            ledger.plan.pool.is_none() && ledger.failed.is_none() && !ledger.destroying
        };
        for ledger in ledgers.iter().filter(with_disk) {
            let missing = named.take(ledger, found);
            let (id, name) = (ledger.plan.id, ledger.plan.name.to_string());
            if frozen.contains(&id) {
                if let Some(layer) = missing.first() {
                    let message = format!("layer {layer} of workspace `{name}` is gone");
                    return Err(raced(message));
                }
                named.kept.push(BackedUp { workspace_id: id, name });
                continue;
            }
            let left = not_frozen.remove(&id).unwrap_or_else(|| made_meanwhile(ledger));
            let missing_layers = missing.iter().map(LayerId::to_string).collect();
            named.left_out.push(LeftOut { name, missing_layers, ..left });
        }
        // Workspaces removed meanwhile are not in the journal's copy and miss nothing.
        Ok(named)
    }

    /// Adds the files that one workspace needs; returns the layers that are missing.
    fn take(&mut self, ledger: &Ledger, found: &BTreeSet<LayerId>) -> Vec<LayerId> {
        let nodes = || ledger.snapshots.nodes();
        self.memories += nodes().filter(|node| node.memory.is_some()).count();
        let of_snapshots = nodes().flat_map(|node| &node.layers);
        let frozen: BTreeSet<_> = ledger.disk.layers.iter().chain(of_snapshots).copied().collect();
        let base = ledger.base.iter().filter(|_| !frozen.is_empty());
        if ledger.plan.spec.isolation == Isolation::Vm {
            self.bases.extend(base.cloned());
        }
        self.layers.extend(frozen.intersection(found));
        frozen.difference(found).copied().collect()
    }
}

fn made_meanwhile(ledger: &Ledger) -> LeftOut {
    let message = "it was made while the backup was";
    let error = ToolError::new(Layer::Actor, codes::MADE_MEANWHILE, message);
    LeftOut::new(ledger.plan.id, &ledger.plan.name, &error)
}

#[cfg(test)]
mod tests;
