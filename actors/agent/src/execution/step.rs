//! Steps that an execution is made of.

use super::{after::AfterKey, records::CallKey, verdicts::VerdictKey};

/// A step of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExecutionStep {
    /// Opens the execution's session.
    Open,
    /// Makes the machine that the manifest asks for.
    Place,
    /// Has the machine stand still.
    Halt,
    /// Lets the machine go on.
    GoOn,
    /// Reads an item that the manifest names.
    Read,
    /// Begins an iteration.
    Prompt,
    /// Runs a program to its end, in place of turns.
    Program,
    /// Asks the model for a summary of older turns.
    Compact,
    /// Keeps the machine as it is behind the last turn.
    Checkpoint,
    /// Goes back to an earlier turn.
    Rewind,
    /// Asks the model.
    Turn,
    /// Sets the calls of a turn aside in the budget.
    Admit,
    /// Makes a call that the model asks for.
    Call(CallKey),
    /// Asks a judge, by its place among those of a verdict.
    Ask(VerdictKey, usize),
    /// Records the verdict of a validator.
    Weigh(VerdictKey),
    /// Records what the last turn comes to.
    Conclude,
    /// Does a job behind the output.
    Hand(AfterKey),
    /// Tells the parent and the children of the end.
    Inform,
    /// Ends the execution's session.
    Close,
}
