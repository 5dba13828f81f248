//! Tool catalogue of this crate.

pub mod vault;

use hivekeep_kernel::{ToolGroup, ToolInfo};

use crate::actor::VaultActor;

pub(crate) const FAMILIES: &[&ToolGroup<VaultActor>] = &[&vault::FAMILY];

/// All tools of this crate.
pub fn catalogue() -> Vec<&'static ToolInfo> {
    FAMILIES.iter().flat_map(|family| family.rows).map(|row| &row.0).collect()
}
