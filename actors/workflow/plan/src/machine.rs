//! State machine of a workflow: what the output of a state means, and which state is next.
//!
//! ```text
//! start ─▶ Blackboard ─▶ MachineView ─ scope() ─▶ texts of the state, rendered
//!              ▲             │                          │ (run by others)
//!              │             └── next(output) ◀── StateOutput
//!              └──────────── put_output ◀───────────────┘
//! ```
//! Everything here is a function of the manifest and of what was recorded of the run: the same records give the same
//! next state.

mod blackboard;
mod condition;
mod flow;
mod output;
mod result;

pub use blackboard::{Blackboard, MAX_BLACKBOARD_BYTES, MAX_BLACKBOARD_KEYS, MachineStart};
pub use flow::{MachineFailure, MachineNext, MachineScope, MachineView, next, takes_response};
pub use output::{
    CommandOutcome, PanelAnswer, PanelConsensus, StateOutput, StateResult, StateStatus,
};
pub use result::final_output;

#[cfg(test)]
mod tests;
