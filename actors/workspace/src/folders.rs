//! Places of workspaces on the host.

use std::path::PathBuf;

/// Where workspaces keep things.
#[derive(Debug, Clone)]
pub struct WorkspaceFolders {
    /// Disks; one folder per workspace.
    pub disks: PathBuf,
    /// Layers of disks that snapshots froze, or that stand on one.
    pub layers: PathBuf,
    /// Memory of snapshots; one folder per snapshot.
    pub memories: PathBuf,
    /// Sockets of running machines; one folder per workspace.
    pub run: PathBuf,
    /// Consoles; one folder per workspace.
    pub logs: PathBuf,
    /// The host's side of file_transfer.
    pub transfers: PathBuf,
}
