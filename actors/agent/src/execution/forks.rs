//! Forks and rewinds as records: a log that begins with another's, and one that goes on from an earlier turn.
//!
//! ```text
//! fork     begun ─▶ copies of the source's records up to a turn ─▶ inherited ─▶ opened ─▶ …
//! rewind   … ─▶ rewind asked ─▶ what runs comes to its end ─▶ [machine restored] ─▶ rewound ─▶ …
//! ```
//! The copies are real records: a source may be removed, and events of a fork are complete. What they cost was paid
//! by the source, so [`ForkRecord::Inherited`] sets the account back. A rewind drops turns from the state; the stream
//! keeps them. The turns of a program are its requests, and its fork is begun from a checkpoint alone.

use hivekeep_kernel::{ExecutionId, ToolError, User};
use hivekeep_ports::OwnedSnapshot;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::gateway::{ConversationPlace, ConversationWords};

/// Iteration and turn, each from 0.
pub(crate) type TurnKey = (usize, usize);

/// Place behind so many turns of an iteration, which counts from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct TurnPlace {
    pub(crate) iteration: usize,
    pub(crate) turns: usize,
}

impl TurnPlace {
    /// Place as clients are shown it.
    pub(crate) fn shown(self) -> Value {
        json!({ "iteration": self.iteration + 1, "turn": self.turns })
    }

    /// Whether a turn, from 0, stands before the place.
    pub(super) fn has(self, turn: TurnKey) -> bool {
        turn < (self.iteration, self.turns)
    }

    /// Whether the place is behind fewer turns than stand before this one.
    pub(super) fn is_before(self, turn: TurnKey) -> bool {
        (self.iteration, self.turns) < turn
    }
}

/// Origin of a fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ForkOrigin {
    pub(crate) source: ExecutionId,
    pub(crate) place: TurnPlace,
    /// Snapshot that its machine begins as.
    pub(crate) machine: Option<OwnedSnapshot>,
    /// Program that runs in that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) program: Option<ForkedProgram>,
}

/// Program in the machine of a fork, as its source began it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ForkedProgram {
    /// Its task, by the message and the id that the machine knows.
    pub(crate) message_id: String,
    pub(crate) task_id: String,
    /// Model that it asks for.
    pub(crate) model: String,
    /// Words that its requests are passed on with, the latest last.
    pub(crate) words: Vec<ConversationWords>,
}

/// Fate of a machine whose execution goes on from an earlier turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RewoundMachine {
    /// The machine is as it was behind that turn.
    Restored,
    /// No checkpoint of that turn is kept: the effects of later turns are still there.
    Unchanged,
    /// There is no machine.
    None,
}

/// Record of a fork, a rewind or a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fork", rename_all = "snake_case")]
pub(crate) enum ForkRecord {
    /// All records before it, except for the first, are copies of another execution's.
    Inherited(ForkOrigin),
    /// Somebody wants it to go on behind these turns, with so many of the messages.
    RewindAsked { to: TurnPlace, messages: usize, by: User },
    /// The later turns are dropped.
    Rewound { machine: RewoundMachine },
    /// The machine could not be restored; the execution goes on where it was.
    RewindFailed { error: Box<ToolError> },
    /// The machine's snapshot behind some turns is kept, in place of those whose names are removed. None where there
    /// is no machine, or where it failed.
    Checkpointed {
        place: TurnPlace,
        kept: Option<OwnedSnapshot>,
        removed: Vec<String>,
        error: Option<Box<ToolError>>,
        /// Conversation of the program that waits for an answer in it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        conversation: Option<ConversationPlace>,
    },
}

impl ForkRecord {
    /// Record as clients are shown it.
    pub(super) fn event(&self) -> (&'static str, Value) {
        match self {
            Self::Inherited(ForkOrigin { source, place, machine, program }) => {
                let mut shown =
                    json!({ "forked_from": source, "at": place.shown(), "machine": machine });
                if let Some(program) = program {
                    let words = program.words.iter().map(|words| json!(words.text));
                    shown["words"] = words.collect();
                }
                ("execution_forked", shown)
            }
            Self::RewindAsked { to, by, .. } => {
                ("rewind_asked", json!({ "to": to.shown(), "by": by }))
            }
            Self::Rewound { machine } => ("execution_rewound", json!({ "machine": machine })),
            Self::RewindFailed { error } => ("rewind_failed", json!({ "error": error })),
            Self::Checkpointed { place, error: Some(error), .. } => {
                ("checkpoint_failed", json!({ "at": place.shown(), "error": error }))
            }
            Self::Checkpointed { place, kept, removed, error: None, .. } => (
                "checkpoint_made",
                json!({ "at": place.shown(), "machine": kept, "removed": removed }),
            ),
        }
    }
}
