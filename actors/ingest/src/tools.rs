//! Tools of the family `rag`.

mod collections;
mod ingest;
mod query;

use hivekeep_kernel::{ToolGroup, ToolInfo};

use crate::collections::Collections;

/// Collection of calls that name none.
const DEFAULT_COLLECTION: &str = "hostuk-docs";
/// Tools of the family.
pub(crate) const FAMILIES: &[&ToolGroup<Collections>] =
    &[&ingest::FAMILY, &query::FAMILY, &collections::FAMILY];

/// Declarations of the tools.
pub(crate) fn catalogue() -> Vec<&'static ToolInfo> {
    FAMILIES.iter().flat_map(|family| family.rows).map(|row| &row.0).collect()
}

fn default_collection() -> String {
    DEFAULT_COLLECTION.to_owned()
}
