//! Registry of manifests: each name of a scope has one id and any number of versions, whose texts are given
//! back as they came.
//!
//! ```text
//! scope (user, tenant, global) ─▶ name = id ─▶ versions, each immutable ─▶ text
//! ```
//! A caller's credential decides which scope it writes to and which it sees; no argument does. An operator
//! writes to the tenant, which is this daemon, and anybody else to a scope of its own; the global scope is for
//! what comes with the daemon, and for what operators promote to it. The latest version is the one with the highest number, whenever it came. An id is an
//! event-sourced log, so what was answered is on the disk.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod entry;
mod registry;
mod search;

use std::{
    collections::BTreeMap,
    fmt::{Debug, Display},
    str::FromStr,
};

use hivekeep_kernel::ErrorCode;

pub use entry::{KeptManifest, ManifestEntry, ManifestScope, ManifestVersion};
pub use registry::{
    DeployRequest, ManifestRegistry, RegistryCaller, RegistryLimits, ScopeMove, manifest_invalid,
};
pub use search::{ManifestQuery, check_tenant};

/// Texts by name.
pub type ManifestLabels = BTreeMap<String, String>;

/// Manifest of a kind that a registry keeps, as its checker reads it.
pub trait RegisteredManifest: Clone + Debug + Send + Sync + 'static {
    /// Id of a name in its scope, the same for all its versions.
    type Id: Copy + Ord + Debug + Display + FromStr + Send + Sync + 'static;

    /// Word of the kind: first part of its streams' names and of its events, and in messages. Never changes.
    const KIND: &'static str;
    /// Kind of thing that tiers bound.
    const HELD: &'static str;
    /// Code for a manifest that is not there, or not for the caller to know of.
    const NOT_FOUND: &'static ErrorCode;
    /// Tool that lists what a caller sees.
    const LISTED_BY: &'static str;

    /// Id later than every id before.
    fn new_id() -> Self::Id;

    /// Name, unique in its scope.
    fn name(&self) -> &str;

    /// Version as three numbers.
    fn version(&self) -> &str;

    /// Purpose, for people.
    fn description(&self) -> Option<&str>;

    /// Labels to filter by.
    fn labels(&self) -> ManifestLabels;

    /// Words to find it by, beside its name, description and labels.
    fn words(&self) -> String;

    /// Facts for lists, by name: what a row shows that only the text says.
    fn facts(&self) -> ManifestLabels {
        ManifestLabels::new()
    }
}

#[cfg(test)]
mod tests;
