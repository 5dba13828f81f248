//! Container image importer: OCI and Docker images, made into images that workspaces boot from.
//!
//! ```text
//! reference ─▶ policy ─▶ source: registry │ oci: layout │ docker-archive: file
//!                          manifest ─ configuration ─ layers, each checked by its digest
//!                                         │
//!                                         ▼
//!                        one tree, written beneath a handle ─▶ hivekeep_image: disk and tree
//! ```
//!
//! Registries and layers are hostile: all that is read is bounded ([`PullLimits`]), no name and no
//! link of a layer leads out of its tree, and what is refused is refused with a code. An image needs no part
//! of hivekeep inside: the guest daemon comes from outside.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod codes;
mod credentials;
mod digest;
mod error;
mod layer;
mod manifest;
mod options;
mod pull;
mod reference;
mod signature;
mod source;
mod unpack;

pub use digest::Sha256Digest;
pub use error::Error;
pub use layer::{LayerFile, LayerPacking};
pub use options::{Asker, ImageOptions, ImagePolicy, PullLimits, SignatureRule};
pub use pull::{ImagePuller, PullProgress, PullRequest};
pub use reference::{ImageSource, RegistryRef};
pub use unpack::{UnpackedTree, unpack};

/// Result type of this crate.
pub type OciResult<T> = std::result::Result<T, Error>;
