//! Content-addressed image store and image builder for the images that workspaces boot from.
//!
//! An image is a kernel (an ELF with a PVH entry, so that no guest time goes into unpacking), an
//! initrd with only the in-guest daemon and the kernel's modules, and a root filesystem (raw ext4,
//! never written again). A workspace's disk is a qcow2 overlay over that filesystem.
//!
//! ```text
//! root/
//!   objects/<blake3>/<file>        a file named by its content
//!   objects/<blake3>/tree/         a directory, named by the hash of entries.jsonl beside it
//!   images/<name>.json             the manifest: which objects make the image; `/` is written `+`
//!   overlays/<key>.qcow2           empty overlays, copied for each new disk
//!   uses/<blake3>/<user>           a workspace has its disk over this object
//!   pending/<blake3>               the object came or its image went; settled with the next lock
//!   tmp/                           builds under way; emptied by who takes the lock
//!   build.lock                     held (flock) by the one build that may run
//! ```
//!
//! A manifest is written last and by rename, so a crash leaves either the old image or the new one.
//! Objects are never changed or moved: an overlay records its base by absolute path. An object is
//! removed only when no manifest names it and no workspace has its disk over it (`uses/`).

#![cfg_attr(any(test, feature = "test-util"), allow(clippy::unwrap_used))]

mod adopt;
mod build;
pub mod codes;
mod error;
mod files;
#[cfg(any(test, feature = "test-util"))]
pub mod fixture;
mod manifest;
mod names;
mod objects;
mod overlay;
mod requirements;
mod store;
#[cfg(test)]
mod tests;
mod tree;
mod uses;
mod verify;

pub use adopt::TreeAdoption;
pub use build::{BuildRequest, BuildResult, BuildStep, RebuiltPart};
pub use error::Error;
pub use manifest::{FileOwner, ImageDefaults, Manifest, ObjectRef, Package, PulledImage, TreeRef};
pub use names::{ContentHash, ImageName, KernelChoice, PulledName, Suite};
pub use objects::ObjectName;
pub use overlay::MAX_DISK_GB;
pub use requirements::{Remedy, Requirement, RequirementPurpose, requirements};
pub use store::{BuildLock, ImageRow, ImageState, ImageStore};
pub use uses::{PruneTerms, RemovedImages};
pub use verify::VerifiedImage;

/// Result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;
