//! Tool declarations of language models.

pub(crate) mod backends;
pub(crate) mod generate;
pub(crate) mod probe;
pub(crate) mod score;
pub(crate) mod status;

use hivekeep_kernel::ToolInfo;

use crate::models::ModelsActor;

/// All groups.
pub(crate) const GROUPS: [&hivekeep_kernel::ToolGroup<ModelsActor>; 5] =
    [&generate::FAMILY, &score::FAMILY, &probe::FAMILY, &status::FAMILY, &backends::FAMILY];

/// All declarations, in listing order.
pub(crate) fn catalogue() -> Vec<&'static ToolInfo> {
    GROUPS.iter().flat_map(|group| group.rows).map(|row| &row.0).collect()
}
