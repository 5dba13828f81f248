//! Failure of a step.

use hivekeep_kernel::{Layer, ToolError};

use crate::codes;

pub(crate) fn failed(what: String) -> ToolError {
    ToolError::new(Layer::Actor, codes::STEP_FAILED, what)
        .next("read the step's logs, and retry the run from the step")
}
