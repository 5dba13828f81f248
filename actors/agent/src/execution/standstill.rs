//! Standstill of an execution's machine: at a budget's bound at once, while a chat waits for its next message after
//! `agent.idle_secs`, and then saved where it can be. The machine goes on before the execution does, or when somebody
//! uses it.
//!
//! ```text
//! bound reached, or idle ─▶ wanted ─▶ stands ─┬─▶ the wait is over ─▶ went on
//!                                └─▶ runs on ─┘
//! ```
//! The wish is a record before the effect, and both effects may be repeated. A wait that is over before the machine
//! stands still is followed by the same record: a daemon may have died between the effect and its record.

use hivekeep_kernel::{ToolError, WorkspaceId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Change of a standstill, as it is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "standstill", rename_all = "snake_case")]
pub(crate) enum StandstillChange {
    /// A chat has waited for so long that its machine is not needed for now.
    Idle,
    /// The machine stands still; or there is none of its own, or it runs on for the error.
    Halted { workspace: Option<WorkspaceId>, error: Option<Box<ToolError>> },
    /// The machine goes on; after an error by its next use.
    WentOn { error: Option<Box<ToolError>> },
}

/// Standstill of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum StandstillState {
    /// Nobody wants it.
    #[default]
    None,
    /// Asked for, and perhaps in force; with the memory on the disk where that can be.
    Wanted { saved: bool },
    /// In force, unless somebody uses the machine.
    Stands,
    /// Not to be had.
    Runs,
}

impl StandstillChange {
    /// Change as clients are shown it.
    pub(super) fn event(&self) -> (&'static str, Value) {
        match self {
            Self::Idle => ("machine_idle", json!({})),
            Self::Halted { workspace: Some(workspace), error: None } => {
                ("machine_paused", json!({ "workspace_id": workspace }))
            }
            Self::Halted { workspace: None, .. } => ("machine_absent", json!({})),
            Self::Halted { workspace, error } => {
                ("machine_not_paused", json!({ "workspace_id": workspace, "error": error }))
            }
            Self::WentOn { error } => ("standstill_ended", json!({ "error": error })),
        }
    }

    pub(super) fn next(&self) -> StandstillState {
        match self {
            Self::Idle => StandstillState::Wanted { saved: true },
            Self::Halted { workspace: Some(_), error: None } => StandstillState::Stands,
            Self::Halted { .. } => StandstillState::Runs,
            Self::WentOn { .. } => StandstillState::None,
        }
    }
}
