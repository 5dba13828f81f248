//! Options of the doors that other systems' clients know.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::E2bOptions;

/// Doors that other systems' clients know.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DoorsOptions {
    /// What E2B's SDKs speak.
    pub e2b: E2bOptions,
}
