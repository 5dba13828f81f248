//! Runs of workflows: a state machine on the engine of all runs, with one node of the plan for each state.
//!
//! ```text
//! entered ─▶ agents, commands, containers ──────────┬─▶ output ─▶ left: next state, or the end
//!    │  ▲                                            │
//!    │  └── its child is over ◀── another workflow ◀─┤
//!    └────── a person is asked ──▶ an answer, early ones among them, or the time is over
//! ```
//! [`hivekeep_plan::machine`] says what texts, outputs and transitions mean. Here a state does its work, and every step
//! of it is a record: [`MachineState`] is what these add up to.

mod agent;
mod begin;
mod child;
mod container;
mod leave;
mod obeyed;
mod person;
mod records;
mod state;
mod status;
mod system;
mod text;
mod visit;
mod work;

use hivekeep_kernel::{User, WorkflowId};
use hivekeep_manifest::workflow::WorkflowManifest;

pub use begin::MachineRequest;
pub use status::MachineStatus;

pub(crate) use records::MachineRecord;
pub(crate) use state::MachineState;
pub(crate) use text::RunWorkflow;

/// Workflows as states find them that run another one.
pub trait Workflows: Send + Sync {
    /// Workflow that a user sees, by its id or name, with its manifest; the latest version unless one is named.
    fn find(
        &self,
        user: User,
        id_or_name: &str,
        version: Option<&str>,
    ) -> Option<(WorkflowId, WorkflowManifest)>;
}
