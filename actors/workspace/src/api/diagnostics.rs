//! Logs of a machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Read the console and the hypervisor's messages of a workspace, also after it
/// stopped, crashed or could not be made.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceLogs {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// Which log.
    #[serde(default)]
    pub log_type: LogType,
    /// Most lines of each, from the end; 1 to 10000.
    #[serde(default = "default_lines")]
    pub max_lines: usize,
}

fn default_lines() -> usize {
    100
}

/// Which log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogType {
    /// What the guest printed.
    Console,
    /// What the hypervisor or sandbox printed.
    Stderr,
    /// Both.
    #[default]
    All,
}

/// Ends of the logs.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct LogTexts {
    /// The guest's console; null when not asked for.
    pub console: Option<String>,
    /// The hypervisor's messages; null when not asked for.
    pub stderr: Option<String>,
}
