//! Answers of people to what runs ask them.

use hivekeep_kernel::{CallCx, Door, Layer, ToolError};

use crate::codes;

/// Refuses an agent's call that answers a question of a run's owner: it works as that owner, and sees the run.
///
/// # Errors
/// `answer_denied` to agents of the daemon, and to steps of runs.
pub(crate) fn refuse_agents(cx: &CallCx) -> Result<(), ToolError> {
    if cx.door != Door::Agent {
        return Ok(());
    }
    let message = "an agent cannot answer what a person is asked";
    Err(ToolError::new(Layer::Policy, codes::ANSWER_DENIED, message)
        .next("have the run's owner answer: `hivekeep dag approve` or `hivekeep approvals`"))
}
