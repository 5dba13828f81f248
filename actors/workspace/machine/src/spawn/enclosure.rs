//! Namespaces that a child makes or enters before it stops being root.

use std::ffi::OsStr;
use std::io;

use crate::sandbox::Layout;
use crate::vm::Export;

/// Namespaces of a child's own.
pub(crate) enum Enclosure {
    /// Mounts of a sandbox.
    Sandbox(Layout),
    /// Single folder, for a server of files.
    Export(Export),
}

impl Enclosure {
    /// Makes and enters the namespaces. Runs between fork and exec: takes no lock and allocates nothing.
    pub(super) fn enter(&self) -> io::Result<()> {
        match self {
            Self::Sandbox(layout) => layout.enter(),
            Self::Export(export) => export.enter(),
        }
    }

    /// Id of the machine's user in the namespace that is entered, for user and group alike.
    pub(super) fn id_within(&self) -> Option<u32> {
        match self {
            Self::Sandbox(layout) => layout.id_within(),
            Self::Export(_) => Some(Export::ID_WITHIN),
        }
    }

    /// True if the program is root of the user namespace that is entered, and needs what that
    /// may. Outside of it, it may nothing.
    pub(super) fn is_root_within(&self) -> bool {
        match self {
            Self::Sandbox(layout) => layout.is_root_within(),
            Self::Export(_) => true,
        }
    }

    /// Variable of the environment by which the program is known later.
    pub(super) fn mark(&self) -> Option<&OsStr> {
        match self {
            Self::Sandbox(_) => None,
            Self::Export(export) => Some(export.mark()),
        }
    }
}
