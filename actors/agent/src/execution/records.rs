//! Records of an execution, in the order of its life; [`ExecutionState`](super::state::ExecutionState) is what they add
//! up to.

use chrono::{DateTime, Utc};
use hivekeep_kernel::{ExecutionId, Layer, SessionId, ToolError, User, WorkspaceId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    account::{AccountChange, BudgetAmounts},
    acp::AcpChange,
    after::AfterRecord,
    digest::RequestDigest,
    forks::{ForkRecord, TurnKey},
    plan::ExecutionPlan,
    program_end::ProgramEnd,
    standstill::StandstillChange,
    validation::RanCommand,
    verdicts::JudgingRecord,
};

/// Most bytes of a result that the model is shown.
const RESULT_BYTES: usize = 16 * 1024;
const INTERRUPTED: &str = "interrupted: the daemon ended during this call, and whether it took effect is not \
    known. Look before you make it again.";

/// First record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExecutionBegun {
    pub(crate) id: ExecutionId,
    pub(crate) user: User,
    /// Session that asked for it.
    pub(crate) session: SessionId,
    /// Session whose budget of models pays.
    pub(crate) payer: SessionId,
    /// Execution that began it, in its session or in one below that.
    #[serde(default)]
    pub(crate) parent: Option<ExecutionId>,
    /// True if the calls of an execution above it are bounded, and its own with them.
    #[serde(default)]
    pub(crate) counts_calls: bool,
    /// True for a judge, which its parent waits for.
    #[serde(default)]
    pub(crate) judges: bool,
    pub(crate) plan: ExecutionPlan,
    pub(crate) at: DateTime<Utc>,
}

/// A whole answer of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TurnAnswer {
    pub(crate) text: String,
    pub(crate) calls: Vec<AskedCall>,
    /// Calls that were asked for beyond the bound, and are not kept.
    #[serde(default)]
    pub(crate) calls_dropped: usize,
    pub(crate) stop: TurnStop,
    /// Provider and model that answered.
    pub(crate) model: String,
    /// Kind of the provider; `scripted` for one that only repeats a file.
    pub(crate) provider_kind: String,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) cost_micro_usd: Option<u64>,
    /// Number of messages that the request had.
    #[serde(default)]
    pub(crate) messages_read: usize,
    /// Hashes of the request, for a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<RequestDigest>,
}

impl TurnAnswer {
    /// Call of a program in the place of a turn.
    pub(super) fn of_program(call: AskedCall) -> Self {
        Self {
            text: String::new(),
            calls: vec![call],
            calls_dropped: 0,
            stop: TurnStop::Done,
            model: String::new(),
            provider_kind: String::new(),
            input_tokens: 0,
            output_tokens: 0,
            cost_micro_usd: None,
            messages_read: 0,
            request: None,
        }
    }
}

/// Reason why an answer ended, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TurnStop {
    /// The answer is whole.
    Done,
    /// The bound of tokens cut it.
    CutShort,
    /// The provider withheld it.
    Refused,
}

/// Call that a model asks for, with what is known of its tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AskedCall {
    /// Id that the provider knows it by.
    pub(crate) id: String,
    /// Name, as the model says it.
    pub(crate) name: String,
    pub(crate) arguments: Value,
    pub(crate) signature: Option<String>,
    pub(crate) tool: Option<CalledTool>,
}

/// Tool of a call, as it was declared when the model asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CalledTool {
    /// Declared name.
    pub(crate) name: String,
    /// True if a second call does no more than the first.
    pub(crate) repeatable: bool,
    /// True if other calls may run beside it.
    pub(crate) beside_others: bool,
    /// True if it has no side effects.
    #[serde(default)]
    pub(crate) reads: bool,
}

/// Outcome of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum CallEnd {
    /// The result as the model is shown it.
    Returned {
        text: String,
        bytes: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<RanCommand>,
    },
    /// The call failed, or could not be made.
    Failed { error: Box<ToolError> },
    /// The daemon ended during the call: whether it took effect is not known, and it is not made again.
    Interrupted,
}

impl CallEnd {
    /// Result of a call as the model is shown it, and whether it is an error.
    pub(crate) fn shown(&self) -> (String, bool) {
        match self {
            Self::Returned { text, .. } => (text.clone(), false),
            Self::Failed { error } => (cut(error.to_text()), true),
            Self::Interrupted => (INTERRUPTED.to_owned(), true),
        }
    }

    /// True for a call that was refused before its tool was asked: the name, the arguments or the right is missing.
    pub(crate) fn is_unusable(&self) -> bool {
        let before = [Layer::Resolve, Layer::Policy, Layer::Schema];
        matches!(self, Self::Failed { error } if before.contains(&error.layer))
    }
}

/// A text as far as the model is shown it.
pub(super) fn cut(text: String) -> String {
    if text.len() <= RESULT_BYTES {
        return text;
    }
    let end = text.floor_char_boundary(RESULT_BYTES);
    format!("{}\n[cut: the first {end} of {} bytes are shown]", &text[..end], text.len())
}

/// Place of a call: iteration, turn and call, each from 0.
pub(crate) type CallKey = (usize, usize, usize);

/// End of an execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub(crate) enum ExecutionEnd {
    /// The model was done.
    Completed { output: String },
    /// A bound was reached, or something failed that is not the model's to mend.
    Failed { error: Box<ToolError> },
    /// Somebody cancelled it.
    Cancelled,
}

/// Consequence of a state that nobody has to be asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Conclusion {
    /// The execution is over.
    Ends(ExecutionEnd),
    /// The iteration failed.
    Fails(ToolError),
}

/// Text that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContextText {
    pub(crate) text: String,
    /// Size of what was read of, as far as it was looked at.
    pub(crate) size_bytes: u64,
    /// True if there is more than the bounds allow.
    pub(crate) cut: bool,
}

/// Answer that a model gave to a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RelayedTurn {
    /// Hash of the request.
    pub(crate) request: String,
    /// Provider and model that answered.
    pub(crate) model: String,
    pub(crate) provider_kind: String,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) cost_micro_usd: Option<u64>,
}

/// An answer as it was sent, to be sent again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptAnswer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: String,
}

/// Workspaces of an execution behind its end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptWorkspaces {
    /// Those that are kept for a while.
    #[serde(default, rename = "workspaces", skip_serializing_if = "Vec::is_empty")]
    pub(crate) kept: Vec<KeptWorkspace>,
    /// Why nothing was decided on one, which stays until somebody removes it.
    #[serde(default, rename = "workspace_error", skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Box<ToolError>>,
}

/// Workspace that is kept, and when it is destroyed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptWorkspace {
    pub(crate) workspace_id: WorkspaceId,
    pub(crate) ends_at: Option<DateTime<Utc>>,
    /// Why it was not stopped, and runs on until its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_stopped: Option<Box<ToolError>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    Begun(Box<ExecutionBegun>),
    /// The execution has its own session.
    Opened {
        session: SessionId,
        at: DateTime<Utc>,
    },
    /// The machine that the manifest asks for is there.
    Placed {
        workspace: WorkspaceId,
        at: DateTime<Utc>,
    },
    /// An item that the manifest has it read is read.
    ContextRead {
        item: usize,
        read: Box<ContextText>,
        at: DateTime<Utc>,
    },
    /// An iteration begins.
    Prompted {
        iteration: usize,
        text: String,
        at: DateTime<Utc>,
    },
    /// A model has answered.
    Answered {
        iteration: usize,
        turn: usize,
        answer: Box<TurnAnswer>,
        at: DateTime<Utc>,
    },
    /// A model has written a summary of the turns before `from`, asked for before a turn.
    Compacted {
        before: TurnKey,
        from: TurnKey,
        answer: Box<TurnAnswer>,
        at: DateTime<Utc>,
    },
    /// A call has ended.
    Called {
        key: CallKey,
        /// Name, as the model says it.
        name: String,
        result: CallEnd,
        at: DateTime<Utc>,
    },
    /// A program's request is about to be sent to a model.
    ModelAsked {
        /// Hash of its method, target and body.
        request: String,
        model: String,
        /// Size of the body.
        bytes: usize,
        /// Number of a fork's words in it.
        #[serde(default)]
        words: usize,
        /// Amounts that it may come to.
        #[serde(default)]
        wanted: BudgetAmounts,
        at: DateTime<Utc>,
    },
    /// A model has answered a program, whole.
    ModelAnswered {
        turn: RelayedTurn,
        answer: Box<KeptAnswer>,
        at: DateTime<Utc>,
    },
    /// A program's request has no whole answer: the provider refused it with a status, or it failed.
    ModelFailed {
        request: String,
        status: Option<u16>,
        error: Option<Box<ToolError>>,
        at: DateTime<Utc>,
    },
    /// A program has had a recorded answer again.
    ModelReplayed {
        request: String,
        at: DateTime<Utc>,
    },
    /// A program calls a tool of ours. It has the place of a turn, and its end is recorded as that of a model's call.
    ProgramCalls {
        iteration: usize,
        turn: usize,
        call: Box<AskedCall>,
        at: DateTime<Utc>,
    },
    /// Something between the daemon and a program that speaks the Agent Client Protocol.
    Acp {
        change: AcpChange,
        at: DateTime<Utc>,
    },
    /// The program of an iteration has ended.
    ProgramEnded {
        iteration: usize,
        end: Box<ProgramEnd>,
        at: DateTime<Utc>,
    },
    /// An iteration has failed; another may follow.
    IterationFailed {
        iteration: usize,
        error: Box<ToolError>,
        at: DateTime<Utc>,
    },
    /// Somebody stopped what a chat was at.
    Stopped {
        by: User,
        at: DateTime<Utc>,
    },
    /// A judge is asked, or a verdict is there.
    Judging {
        about: Box<JudgingRecord>,
        at: DateTime<Utc>,
    },
    /// A fork, a rewind or a checkpoint.
    Fork {
        about: Box<ForkRecord>,
        at: DateTime<Utc>,
    },
    /// The machine is to stand still, does, or goes on.
    Standstill {
        change: StandstillChange,
        at: DateTime<Utc>,
    },
    /// Something about a job behind the output.
    After {
        about: Box<AfterRecord>,
        at: DateTime<Utc>,
    },
    /// The execution is over.
    Ended {
        end: ExecutionEnd,
        at: DateTime<Utc>,
    },
    /// Somebody ended it.
    Cancelled {
        at: DateTime<Utc>,
    },
    /// Something about its budget, what is said to it, or its parent and children.
    Account {
        change: AccountChange,
        at: DateTime<Utc>,
    },
    /// Its session has ended, or could not be ended.
    Closed {
        at: DateTime<Utc>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Box<ToolError>>,
        #[serde(default)]
        workspaces: KeptWorkspaces,
    },
}

impl Record {
    /// Record of now about a fork, a rewind or a checkpoint.
    pub(crate) fn fork(about: ForkRecord) -> Self {
        Self::Fork { about: Box::new(about), at: Utc::now() }
    }

    pub(crate) fn at(&self) -> DateTime<Utc> {
        match self {
            Self::Begun(begun) => begun.at,
            Self::Opened { at, .. }
            | Self::Placed { at, .. }
            | Self::ContextRead { at, .. }
            | Self::Prompted { at, .. }
            | Self::Answered { at, .. }
            | Self::Compacted { at, .. }
            | Self::Called { at, .. }
            | Self::ModelAsked { at, .. }
            | Self::ModelAnswered { at, .. }
            | Self::ModelFailed { at, .. }
            | Self::ModelReplayed { at, .. }
            | Self::ProgramCalls { at, .. }
            | Self::Acp { at, .. }
            | Self::ProgramEnded { at, .. }
            | Self::IterationFailed { at, .. }
            | Self::Stopped { at, .. }
            | Self::Judging { at, .. }
            | Self::Fork { at, .. }
            | Self::Standstill { at, .. }
            | Self::After { at, .. }
            | Self::Ended { at, .. }
            | Self::Cancelled { at }
            | Self::Account { at, .. }
            | Self::Closed { at, .. } => *at,
        }
    }

    /// Record of the account, of now.
    pub(crate) fn account(change: AccountChange) -> Self {
        Self::Account { change, at: Utc::now() }
    }
}
