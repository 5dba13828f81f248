//! Errors that callers are told.

use hivekeep_kernel::{Layer, SwarmId, ToolError};

use crate::codes;

pub(crate) fn no_swarm(id: SwarmId) -> ToolError {
    ToolError::new(Layer::Resolve, codes::SWARM_NOT_FOUND, format!("there is no swarm `{id}`"))
        .next("swarm_status without swarm_id lists those there are")
}
