//! Tasks that are run in the guest of a member. Nothing runs them yet, so none is taken.

use hivekeep_kernel::{Layer, ToolError};

/// The type of message that is a task.
const TASK: &str = "task_assignment";

/// Refuses what would be taken for a message and never be run.
///
/// # Errors
/// `tasks_unavailable` for a task.
pub(crate) fn refuse(kind: &str) -> Result<(), ToolError> {
    if kind != TASK {
        return Ok(());
    }
    let message = "no guest runs tasks yet: the assignment was not taken";
    Err(ToolError::new(Layer::Actor, "tasks_unavailable", message)
        .next("run the command in the member's workspace with exec_background"))
}
