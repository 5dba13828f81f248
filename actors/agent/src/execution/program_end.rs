//! End of a program that runs in place of turns, and what it comes to.

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_ports::TaskOutcome;
use serde::{Deserialize, Serialize};

use super::{
    records::{Conclusion, ExecutionEnd},
    validation::RanCommand,
};
use crate::codes;

/// End of a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProgramEnd {
    #[serde(flatten)]
    pub(crate) outcome: TaskOutcome,
    /// Its result.
    pub(crate) output: String,
    /// End of what it wrote to stderr.
    pub(crate) stderr: String,
}

impl ProgramEnd {
    /// The same as the command that an iteration ran last.
    pub(super) fn command(&self) -> RanCommand {
        let exit_code = match self.outcome {
            TaskOutcome::Exited { exit_code } => exit_code.into(),
            _ => -1,
        };
        RanCommand { exit_code, stderr: Some(self.stderr.clone()) }
    }

    /// Consequence for its execution. With `any_status` a validator looks at how it exited.
    pub(super) fn conclusion(&self, name: &str, any_status: bool) -> Conclusion {
        let how = match &self.outcome {
            TaskOutcome::Exited { exit_code } if *exit_code == 0 || any_status => {
                let output = self.output.clone();
                return Conclusion::Ends(ExecutionEnd::Completed { output });
            }
            TaskOutcome::Exited { exit_code } => format!("exited with {exit_code}"),
            TaskOutcome::Signalled { signal } => ended_by(*signal),
            TaskOutcome::Invalid { reason, .. } => format!("could not be started: {reason:.300}"),
            other => format!("did not come to its end: {}", other.word()),
        };
        let said = if self.stderr.trim().is_empty() { &self.output } else { &self.stderr };
        let from = said.ceil_char_boundary(said.len().saturating_sub(500));
        let message = format!("`{name}` {how}: {}", said[from..].trim());
        let error = ToolError::new(Layer::Actor, codes::PROGRAM_FAILED, message)
            .next("`program_ended` of aegis.task.logs has its output");
        Conclusion::Fails(error)
    }
}

/// Words for the end by a signal. The kernel's end of whoever takes too much memory leaves nothing else to see.
pub(super) fn ended_by(signal: i32) -> String {
    let why = match signal {
        9 => ", as is one that takes more memory than `spec.security.resources.memory` gives it",
        _ => "",
    };
    format!("was ended by signal {signal}{why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_the_kernel_ended_is_told_of_its_memory() {
        let ended = |signal| ProgramEnd {
            outcome: TaskOutcome::Signalled { signal },
            output: String::new(),
            stderr: String::new(),
        };
        for (signal, is_told) in [(9, true), (15, false)] {
            let Conclusion::Fails(error) = ended(signal).conclusion("a", false) else {
                panic!("it failed")
            };
            assert_eq!(error.message.contains("resources.memory"), is_told, "{}", error.message);
        }
    }
}
