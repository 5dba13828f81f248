//! State of an execution: what its records add up to, in its stream `execution/ID`.
//!
//! ```text
//! begun ─▶ opened ─▶ [placed] ─▶ ( prompted ─▶ ( answered ─▶ called* )* ─▶ iteration failed )* ─▶ ended ─▶ closed
//!                                          cancelled, at any time before the end ─────▶ closed
//! ```
//! A turn is kept whole or not at all, and the result of a call by its iteration, its turn and its place in the
//! turn. No record repeats the conversation: [`ExecutionState`] has it in pieces.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{ErrorCode, ExecutionId, Layer, SessionId, ToolError, User, WorkspaceId};
use hivekeep_manifest::common::JsonObject;
use hivekeep_runtime::{
    log::Sourced,
    runs::{RunEvent, RunState, RunStatus},
    saga::SagaState,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    ExecutionStep,
    account::{AccountChange, BudgetAmounts, BudgetKind, ExecutionAccount},
    events,
    place::KeptWorkspaces,
    plan::ExecutionPlan,
};
use crate::codes;

/// Kind of thing that tiers bound.
pub(crate) const HELD: &str = "executions";
/// Below the least size of a record that the journal takes.
const PIECE_BYTES: usize = 256 * 1024;
/// Bytes of an intent that are kept of an execution that is over.
const SUMMARY_BYTES: usize = 1024;
/// Turns in a row of nothing but calls that cannot be made, after which an iteration fails.
const MOST_UNUSABLE_TURNS: usize = 3;

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
}

/// Outcome of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum CallEnd {
    /// The result as the model is shown it.
    Returned { text: String, bytes: usize },
    /// The call failed, or could not be made.
    Failed { error: Box<ToolError> },
    /// The daemon ended during the call: whether it took effect is not known, and it is not made again.
    Interrupted,
}

impl CallEnd {
    /// True for a call that was refused before its tool was asked: the name, the arguments or the right is missing.
    fn is_unusable(&self) -> bool {
        let before = [Layer::Resolve, Layer::Policy, Layer::Schema];
        matches!(self, Self::Failed { error } if before.contains(&error.layer))
    }
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
    /// A call has ended.
    Called {
        key: CallKey,
        /// Name, as the model says it.
        name: String,
        result: CallEnd,
        at: DateTime<Utc>,
    },
    /// An iteration has failed; another may follow.
    IterationFailed {
        iteration: usize,
        error: Box<ToolError>,
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
    pub(crate) fn at(&self) -> DateTime<Utc> {
        match self {
            Self::Begun(begun) => begun.at,
            Self::Opened { at, .. }
            | Self::Placed { at, .. }
            | Self::Prompted { at, .. }
            | Self::Answered { at, .. }
            | Self::Called { at, .. }
            | Self::IterationFailed { at, .. }
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

/// A turn: the model's answer, and what came of its calls so far.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Turn {
    pub(crate) answer: Arc<TurnAnswer>,
    pub(crate) results: Vec<Option<Arc<CallEnd>>>,
}

impl Turn {
    fn is_unusable(&self) -> bool {
        let unusable = |result: &Option<Arc<CallEnd>>| {
            result.as_ref().is_some_and(|result| result.is_unusable())
        };
        !self.results.is_empty() && self.results.iter().all(unusable)
    }

    /// Calls without a result that may run now: all up to one that runs alone, or that one.
    pub(crate) fn due(&self) -> Vec<usize> {
        let waits = |at: &usize| self.results[*at].is_none();
        let beside =
            |at: &usize| self.answer.calls[*at].tool.as_ref().is_none_or(|tool| tool.beside_others);
        let waiting: Vec<_> = (0..self.results.len()).filter(waits).collect();
        let together = waiting.iter().take_while(|at| beside(at)).count();
        waiting[..together.max(1).min(waiting.len())].to_vec()
    }
}

/// An iteration: a prompt and the turns that follow.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Iteration {
    pub(crate) prompt: Arc<str>,
    pub(crate) at: DateTime<Utc>,
    /// Number of messages that had come before it.
    pub(crate) messages: usize,
    pub(crate) turns: Vec<Turn>,
    pub(crate) error: Option<Arc<ToolError>>,
}

/// An execution. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExecutionState {
    pub(crate) begun: Arc<ExecutionBegun>,
    pub(crate) child: Option<SessionId>,
    /// Machine that the manifest asked for.
    pub(crate) workspace: Option<WorkspaceId>,
    /// Time until which its files are kept, once it is over.
    pub(crate) files_until: Option<DateTime<Utc>>,
    pub(crate) iterations: Vec<Arc<Iteration>>,
    /// Tokens of all turns.
    pub(crate) tokens: u64,
    /// Text of the last answer.
    pub(crate) said: Option<Arc<str>>,
    pub(crate) end: Option<Arc<ExecutionEnd>>,
    pub(crate) ended_at: Option<DateTime<Utc>>,
    pub(crate) closed: bool,
    pub(crate) account: Arc<ExecutionAccount>,
    /// Time of the last record of its own.
    pub(crate) last_at: DateTime<Utc>,
}

/// Consequence of a state that nobody has to be asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Conclusion {
    /// The execution is over.
    Ends(ExecutionEnd),
    /// The iteration failed.
    Fails(ToolError),
}

impl ExecutionState {
    /// Iteration that goes on.
    pub(crate) fn iteration(&self) -> Option<&Arc<Iteration>> {
        self.iterations.last().filter(|iteration| iteration.error.is_none())
    }

    /// Error of the end, or else of the last iteration that failed.
    pub(crate) fn last_error(&self) -> Option<&ToolError> {
        match self.end.as_deref() {
            Some(ExecutionEnd::Failed { error }) => Some(error),
            _ => self.iterations.iter().rev().find_map(|iteration| iteration.error.as_deref()),
        }
    }

    /// Call of a key, and its result.
    pub(crate) fn call(&self, key: CallKey) -> Option<(&AskedCall, Option<&Arc<CallEnd>>)> {
        let (iteration, turn, call) = key;
        let turn = self.iterations.get(iteration)?.turns.get(turn)?;
        Some((turn.answer.calls.get(call)?, turn.results.get(call)?.as_ref()))
    }

    /// Steps that can be taken now.
    pub(crate) fn due(&self) -> Vec<ExecutionStep> {
        if self.end.is_some() {
            let open = self.child.is_some() && !self.closed;
            return match open {
                _ if self.has_to_inform() => vec![ExecutionStep::Inform],
                true => vec![ExecutionStep::Close],
                false => Vec::new(),
            };
        }
        if self.child.is_none() {
            return vec![ExecutionStep::Open];
        }
        if self.begun.plan.machine.is_some() && self.workspace.is_none() {
            return vec![ExecutionStep::Place];
        }
        if self.account.waiting().is_some() {
            return Vec::new();
        }
        if self.awaits_message() {
            return Vec::new();
        }
        if self.calls_to_admit().is_some() {
            return vec![ExecutionStep::Admit];
        }
        if self.is_between_messages() {
            return vec![ExecutionStep::Prompt];
        }
        let Some(iteration) = self.iteration() else { return vec![ExecutionStep::Prompt] };
        let at = (self.iterations.len() - 1, iteration.turns.len().saturating_sub(1));
        let calls = iteration.turns.last().map(Turn::due).unwrap_or_default();
        match self.conclusion() {
            _ if !calls.is_empty() => {
                calls.into_iter().map(|call| ExecutionStep::Call((at.0, at.1, call))).collect()
            }
            Some(_) => vec![ExecutionStep::Conclude],
            None => vec![ExecutionStep::Turn],
        }
    }

    /// Whether there is a parent, or a child that is not over, that does not know of the end.
    pub(crate) fn has_to_inform(&self) -> bool {
        let account = &self.account;
        let related = self.begun.parent.is_some() || account.children.values().any(|over| !over);
        related && !account.informed
    }

    /// True for a chat in which all is said: before its first message, and after each answer and each failure.
    fn is_between_messages(&self) -> bool {
        let done = |turn: &Turn| turn.answer.calls.is_empty() && turn.answer.stop == TurnStop::Done;
        let answered = self.iteration().map(|it| it.turns.last().is_some_and(done));
        self.begun.plan.chat.is_some() && self.end.is_none() && answered != Some(false)
    }

    /// True for a chat that goes on when somebody says something.
    pub(crate) fn awaits_message(&self) -> bool {
        let asked = self.iterations.is_empty() && self.begun.plan.intent.is_some();
        self.is_between_messages() && !asked && !self.account.has_unread()
    }

    /// Iteration and turn that are asked next, each from 0.
    pub(crate) fn next_turn(&self) -> (usize, usize) {
        let turns = self.iteration().map_or(0, |iteration| iteration.turns.len());
        (self.iterations.len().saturating_sub(1), turns)
    }

    /// Last turn with the number of its calls, if they are bounded and not set aside yet.
    pub(crate) fn calls_to_admit(&self) -> Option<(usize, usize, u64)> {
        let bounded = self.account.budget.get(BudgetKind::ToolCalls).is_some();
        let turn = self.iteration()?.turns.last().filter(|_| bounded || self.begun.counts_calls)?;
        let (iteration, next) = self.next_turn();
        let calls = turn.answer.calls.len() as u64;
        let place = (iteration, next - 1);
        (calls > 0 && !self.account.admits(place)).then_some((place.0, place.1, calls))
    }

    /// Consequence of the last turn when all of its calls have ended; `None` for another turn.
    pub(crate) fn conclusion(&self) -> Option<Conclusion> {
        let (iteration, limits) = (self.iteration()?, &self.begun.plan.limits);
        let last = iteration.turns.last()?;
        let fails = |code, message: String, next: &str| {
            Some(Conclusion::Fails(ToolError::new(Layer::Actor, code, message).next(next)))
        };
        if last.answer.stop == TurnStop::Refused {
            let message = format!("{} withheld its answer", last.answer.model);
            return fails(codes::MODEL_REFUSED, message, "read what it said, and ask otherwise");
        }
        // A message that came meanwhile is read before the end.
        let goes_on = last.answer.stop == TurnStop::Done && self.account.has_unread();
        if last.answer.calls.is_empty() && !goes_on {
            return match last.answer.stop {
                TurnStop::CutShort => {
                    let message = format!("the answer of {} was cut short", last.answer.model);
                    let next = "raise `max_output_tokens` of the model, or ask for less";
                    fails(codes::ANSWER_CUT_SHORT, message, next)
                }
                _ => {
                    let output = last.answer.text.clone();
                    Some(Conclusion::Ends(ExecutionEnd::Completed { output }))
                }
            };
        }
        if self.tokens >= limits.tokens {
            let message =
                format!("{} tokens were used, {} are allowed", self.tokens, limits.tokens);
            let error = ToolError::new(Layer::Quota, codes::TOKENS_EXHAUSTED, message)
                .next("ask for less, or have the operator raise `agent.max_tokens`");
            return Some(Conclusion::Ends(ExecutionEnd::Failed { error: Box::new(error) }));
        }
        let unusable = iteration.turns.iter().rev().take_while(|turn| turn.is_unusable()).count();
        if unusable >= MOST_UNUSABLE_TURNS {
            let message = format!("the model asked {unusable} times for calls that cannot be made");
            let next =
                "aegis.task.logs shows them: give the agent the tools, or mend its instruction";
            return fails(codes::CALLS_UNUSABLE, message, next);
        }
        if iteration.turns.len() >= limits.turns {
            let message = format!("{} turns were not enough", limits.turns);
            let next = "ask for less, or have the operator raise `agent.max_turns`";
            return fails(codes::TURNS_EXHAUSTED, message, next);
        }
        None
    }

    /// Iteration that goes on, to be changed.
    fn current(&mut self) -> Option<(usize, &mut Iteration)> {
        let at = self.iterations.len().checked_sub(1)?;
        let iteration = Arc::make_mut(&mut self.iterations[at]);
        iteration.error.is_none().then_some((at, iteration))
    }

    /// Follows a record; `None` for one that cannot be, which changes nothing.
    fn follow(&mut self, record: &Record) -> Option<()> {
        let over = self.end.is_some();
        match record {
            Record::Opened { session, .. } if self.child.is_none() => self.child = Some(*session),
            Record::Placed { workspace, .. } => self.workspace = Some(*workspace),
            Record::Prompted { iteration, text, at } if !over => {
                let next = self.iteration().is_none() || self.is_between_messages();
                let next = next && *iteration == self.iterations.len();
                let (prompt, messages) = (text.as_str().into(), self.account.messages.len());
                let turns = Vec::new();
                let begun = Iteration { prompt, at: *at, messages, turns, error: None };
                next.then(|| self.iterations.push(Arc::new(begun)))?;
            }
            Record::Answered { iteration, turn, answer, .. } => {
                let (current, now) = self.current()?;
                let next = current == *iteration && now.turns.len() == *turn;
                let results = vec![None; answer.calls.len()];
                let kept = Arc::new((**answer).clone());
                next.then(|| now.turns.push(Turn { answer: kept, results }))?;
                let tokens = answer.input_tokens.saturating_add(answer.output_tokens);
                let used = BudgetAmounts::turn(tokens, answer.cost_micro_usd);
                Arc::make_mut(&mut self.account).answered(&used, answer.messages_read);
                self.tokens = self.tokens.saturating_add(tokens);
                self.said = Some(answer.text.as_str().into());
            }
            Record::Called { key: (iteration, turn, call), result, .. } => {
                let iteration = Arc::make_mut(self.iterations.get_mut(*iteration)?);
                let place = iteration.turns.get_mut(*turn)?.results.get_mut(*call)?;
                place.is_none().then(|| *place = Some(Arc::new(result.clone())))?;
            }
            Record::IterationFailed { iteration, error, .. } if !over => {
                let chats = self.begun.plan.chat.is_some();
                let (current, now) = self.current()?;
                (current == *iteration).then(|| now.error = Some(Arc::new((**error).clone())))?;
                if chats {
                    // What failed is not tried again before somebody says more.
                    let messages = now.messages;
                    Arc::make_mut(&mut self.account).took(messages);
                }
            }
            Record::Ended { end, at } if !over => {
                (self.end, self.ended_at) = (Some(Arc::new(end.clone())), Some(*at));
            }
            Record::Cancelled { at } if !over => {
                (self.end, self.ended_at) = (Some(Arc::new(ExecutionEnd::Cancelled)), Some(*at));
            }
            Record::Closed { workspaces, .. } if over => {
                self.closed = true;
                self.files_until = workspaces.kept.iter().filter_map(|kept| kept.ends_at).max();
            }
            // Steps that an end overtook.
            Record::Prompted { .. }
            | Record::IterationFailed { .. }
            | Record::Ended { .. }
            | Record::Cancelled { .. } => {}
            Record::Begun(_) | Record::Opened { .. } | Record::Closed { .. } => return None,
            Record::Account { change, at } => {
                Arc::make_mut(&mut self.account).follow(change, *at, over)?;
            }
        }
        Some(())
    }
}

impl Sourced for ExecutionState {
    const KIND: &'static str = "execution";
    const PIECE_BYTES: Option<usize> = Some(PIECE_BYTES);
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        match record {
            Record::Begun(begun) => Ok(Self {
                last_at: begun.at,
                account: Arc::new(ExecutionAccount::new(begun.plan.budget.clone())),
                begun: Arc::from(begun),
                child: None,
                workspace: None,
                files_until: None,
                iterations: Vec::new(),
                tokens: 0,
                said: None,
                end: None,
                ended_at: None,
                closed: false,
            }),
            other => Err(other),
        }
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        self.follow(&record).ok_or_else(|| record.clone())?;
        let outside = matches!(&record, Record::Account { change, .. } if change.is_from_outside());
        if !outside {
            self.last_at = record.at();
        }
        Ok(())
    }
}

impl RunState for ExecutionState {
    type Id = ExecutionId;

    const LABEL: &'static str = Self::KIND;
    const NOT_FOUND: &'static ErrorCode = codes::EXECUTION_NOT_FOUND;
    const LISTED_BY: &'static str = "aegis.task.list";
    const ALLOWANCE: Option<&'static str> = Some(HELD);

    fn status(&self) -> RunStatus {
        match self.end.as_deref() {
            Some(ExecutionEnd::Completed { .. }) => RunStatus::Completed,
            Some(ExecutionEnd::Failed { .. }) => RunStatus::Failed,
            Some(ExecutionEnd::Cancelled) => RunStatus::Cancelled,
            None if self.child.is_none() => RunStatus::Pending,
            None => RunStatus::Running,
        }
    }

    fn user(&self) -> User {
        self.begun.user
    }

    fn group(&self) -> String {
        self.begun.plan.agent_id.to_string()
    }

    fn began_at(&self) -> DateTime<Utc> {
        self.begun.at
    }

    fn ended_at(&self) -> Option<DateTime<Utc>> {
        self.ended_at
    }

    /// End of the time in which somebody may add to the budget.
    fn wakes_at(&self) -> Option<DateTime<Utc>> {
        self.account.waiting().filter(|_| self.end.is_none()).map(|wait| wait.until)
    }

    fn woken(&self, now: DateTime<Utc>) -> Option<Record> {
        let wait = self.account.waiting().filter(|_| self.end.is_none())?;
        let error = || Box::new(wait.unanswered());
        let ended = |at| Record::Ended { end: ExecutionEnd::Failed { error: error() }, at };
        (wait.until <= now).then(|| ended(now))
    }

    fn doing(&self) -> String {
        if self.account.waiting().is_some() {
            return format!("{}: waits for more budget", self.begun.plan.agent);
        }
        if self.awaits_message() {
            return format!("{}: waits for a message", self.begun.plan.agent);
        }
        let turns = self.iteration().map_or(0, |iteration| iteration.turns.len());
        format!("{}: iteration {}, turn {turns}", self.begun.plan.agent, self.iterations.len())
    }

    fn event(record: &Record) -> RunEvent {
        events::event(record)
    }

    fn recorded_at(record: &Record) -> Option<DateTime<Utc>> {
        Some(record.at())
    }

    fn rest(&mut self) {
        for iteration in &mut self.iterations {
            let Iteration { prompt, turns, .. } = Arc::make_mut(iteration);
            (*prompt, *turns) = (Arc::from(""), Vec::new());
        }
        Arc::make_mut(&mut self.account).messages = Vec::new();
        let plan = &mut Arc::make_mut(&mut self.begun).plan;
        (plan.template, plan.context) = (None, Vec::new());
        (plan.input, plan.instruction) = (JsonObject::new(), String::new());
        if let Some(intent) = &mut plan.intent {
            intent.truncate(intent.floor_char_boundary(SUMMARY_BYTES));
        }
    }
}

impl SagaState for ExecutionState {
    /// The session that asked is free to end: an execution outlives it.
    fn holds(&self) -> Option<SessionId> {
        self.child.filter(|_| self.end.is_none())
    }

    fn is_cancelled(&self) -> bool {
        self.end.as_deref() == Some(&ExecutionEnd::Cancelled)
    }

    fn cancellation(&self) -> Option<Record> {
        self.end.is_none().then(|| Record::Cancelled { at: Utc::now() })
    }
}
