//! What callers are told when something is refused or fails.

use crate::codes;
use hivekeep_kernel::{Layer, SwarmId, ToolError};

pub(crate) fn store(error: &hivekeep_store::Error) -> ToolError {
    ToolError::new(Layer::Store, codes::JOURNAL_FAILED, error.to_string())
        .next("`hivekeep logs` says more; whether it took effect is not known")
        .retryable()
}

pub(crate) fn no_swarm(id: SwarmId) -> ToolError {
    ToolError::new(Layer::Resolve, codes::SWARM_NOT_FOUND, format!("there is no swarm `{id}`"))
        .next("swarm_status without swarm_id lists those there are")
}
