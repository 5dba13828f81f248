//! State of an execution: what its records add up to, in its stream `execution/ID`.
//!
//! ```text
//! begun ─▶ opened ─▶ [placed] ─▶ context read* ─▶ ( prompted ─▶ ( answered ─▶ called* )* ─▶ iteration failed )* ─▶ ended ─▶ closed
//!                                             └▶ ( model asked ─▶ model answered, program calls ─▶ called )* ─▶ program ended
//!                                          cancelled, at any time before the end ─────▶ closed
//! answered ─▶ ( ( judge asked ─▶ judge ended )* ─▶ validated )* ─▶ called, ended or failed
//! ```
//! A turn is kept whole or not at all, and the result of a call by its iteration, its turn and its place in the
//! turn. No record repeats the conversation: [`ExecutionState`] has it in pieces.

mod after;
mod compaction;
mod context;
mod forks;
mod steps;

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{ErrorCode, ExecutionId, SessionId, ToolError, User, WorkspaceId};
use hivekeep_manifest::common::JsonObject;
use hivekeep_runtime::{
    log::Sourced,
    runs::{RunEvent, RunState, RunStatus},
    saga::SagaState,
};

use after::AfterState;
use compaction::CompactionState;
use context::ContextProgress;
use forks::ForkState;
pub(crate) use forks::KeptCheckpoint;

pub(crate) use super::records::{
    AskedCall, CallEnd, CallKey, CalledTool, ExecutionBegun, ExecutionEnd, Record, TurnAnswer,
    TurnStop,
};
pub(crate) use super::records::{Conclusion, KeptAnswer, RelayedTurn};
pub(crate) use super::relayed::RelayedRequests;
use super::{
    account::{AccountChange, BudgetAmounts, BudgetKind, ExecutionAccount},
    acp::AcpState,
    events,
    judging::JudgingState,
    plan::after::AfterPlan,
    program_end::ProgramEnd,
    standstill::StandstillState,
    validation::{OrderedScore, ValidationPlan},
};
use crate::codes;

/// Kind of thing that tiers bound.
pub(crate) const HELD: &str = "executions";
/// Below the least size of a record that the journal takes.
const PIECE_BYTES: usize = 256 * 1024;
/// Bytes of an intent that are kept of an execution that is over.
const SUMMARY_BYTES: usize = 1024;

/// A turn: the model's answer, and what came of its calls so far.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Turn {
    pub(crate) answer: Arc<TurnAnswer>,
    pub(crate) results: Vec<Option<Arc<CallEnd>>>,
}

impl Iteration {
    /// Output that is judged: the program's, once it has ended, or that of the last turn.
    pub(crate) fn output(&self) -> Option<&str> {
        let said = self.turns.last().map(|turn| turn.answer.text.as_str());
        self.program.as_ref().map_or(said, |end| Some(&end.output))
    }
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
    /// End of its program, where one runs in place of turns.
    pub(crate) program: Option<Arc<ProgramEnd>>,
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
    pub(crate) judging: Arc<JudgingState>,
    /// Judgement that whoever ordered it is told of.
    pub(crate) ordered_score: Option<Arc<OrderedScore>>,
    pub(crate) after: Arc<AfterState>,
    /// Tokens of all turns.
    pub(crate) tokens: u64,
    pub(crate) context: ContextProgress,
    pub(crate) compaction: CompactionState,
    /// Requests of its programs to their model.
    pub(crate) relayed: RelayedRequests,
    /// Its program that speaks the Agent Client Protocol, in the current iteration.
    pub(crate) acp: Arc<AcpState>,
    /// Text of the last answer.
    pub(crate) said: Option<Arc<str>>,
    pub(crate) end: Option<Arc<ExecutionEnd>>,
    pub(crate) ended_at: Option<DateTime<Utc>>,
    pub(crate) closed: bool,
    /// Standstill of its machine.
    pub(crate) still: StandstillState,
    pub(crate) account: Arc<ExecutionAccount>,
    pub(crate) forks: Arc<ForkState>,
    /// Time of the last record of its own.
    pub(crate) last_at: DateTime<Utc>,
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

    /// Whether there is a parent, or a child that is not over, that does not know of the end.
    pub(crate) fn has_to_inform(&self) -> bool {
        let account = &self.account;
        let related = self.begun.parent.is_some() || account.children.values().any(|over| !over);
        related && !account.informed
    }

    /// Prompt of the next iteration.
    ///
    /// # Errors
    /// `agent_prompt_invalid`.
    pub(super) fn next_prompt(&self) -> Result<String, ToolError> {
        let (iteration, plan) = (self.iterations.len(), &self.begun.plan);
        let failed = self.last_error().map(ToolError::to_text);
        match &plan.chat {
            // Words of people are in its messages.
            Some(_) if iteration > 0 => Ok(String::new()),
            _ => plan.prompt(iteration + 1, failed.as_deref()),
        }
    }

    /// True for a chat in which all is said: before its first message, and after each answer and each failure.
    pub(super) fn is_between_messages(&self) -> bool {
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

    /// True if its calls are bounded, by its own budget or by one above it.
    pub(crate) fn counts_calls(&self) -> bool {
        self.begun.counts_calls || self.account.budget.get(BudgetKind::ToolCalls).is_some()
    }

    /// Iteration that goes on, to be changed.
    pub(super) fn current(&mut self) -> Option<(usize, &mut Iteration)> {
        let at = self.iterations.len().checked_sub(1)?;
        let iteration = Arc::make_mut(&mut self.iterations[at]);
        iteration.error.is_none().then_some((at, iteration))
    }

    /// Begins an iteration; `None` where one goes on.
    pub(super) fn begin_iteration(
        &mut self,
        iteration: usize,
        prompt: &str,
        at: DateTime<Utc>,
    ) -> Option<()> {
        let next = self.iteration().is_none() || self.is_between_messages();
        let messages = self.account.messages.len();
        let (prompt, turns, program, error) = (prompt.into(), Vec::new(), None, None);
        let begun = Iteration { prompt, at, messages, turns, program, error };
        (next && iteration == self.iterations.len())
            .then(|| self.iterations.push(Arc::new(begun)))?;
        if self.begun.plan.chat.is_some() {
            Arc::make_mut(&mut self.account).rested(self.last_at, at);
        }
        self.relayed.begin_iteration();
        self.acp = Arc::default();
        Some(())
    }

    /// Counts what an answer used.
    fn count(&mut self, answer: &TurnAnswer) {
        let tokens = answer.input_tokens.saturating_add(answer.output_tokens);
        let used = BudgetAmounts::turn(tokens, answer.cost_micro_usd);
        Arc::make_mut(&mut self.account).answered(&used, answer.messages_read);
        self.tokens = self.tokens.saturating_add(tokens);
    }

    /// Adds a turn; `None` where it is not the next one.
    fn turn(&mut self, iteration: usize, turn: usize, answer: TurnAnswer) -> Option<()> {
        let (current, now) = self.current()?;
        let results = vec![None; answer.calls.len()];
        let next = current == iteration && now.turns.len() == turn;
        next.then(|| now.turns.push(Turn { answer: Arc::new(answer), results }))
    }

    /// Follows a record; `None` for one that cannot be, which changes nothing.
    fn follow(&mut self, record: &Record) -> Option<()> {
        let over = self.end.is_some();
        match record {
            Record::Opened { session, .. } if self.child.is_none() => self.child = Some(*session),
            Record::Placed { workspace, .. } => self.workspace = Some(*workspace),
            Record::ContextRead { item, read, .. } => self.took_context(*item, read)?,
            Record::Prompted { iteration, text, at } if !over => {
                self.begin_iteration(*iteration, text, *at)?;
            }
            Record::Answered { iteration, turn, answer, .. } => {
                self.turn(*iteration, *turn, (**answer).clone())?;
                self.count(answer);
                self.said = Some(answer.text.as_str().into());
            }
            Record::Compacted { before, from, answer, .. } => {
                self.compacted(*before, *from, answer)?;
            }
            Record::Called { key: (iteration, turn, call), result, .. } => {
                let iteration = Arc::make_mut(self.iterations.get_mut(*iteration)?);
                let place = iteration.turns.get_mut(*turn)?.results.get_mut(*call)?;
                place.is_none().then(|| *place = Some(Arc::new(result.clone())))?;
            }
            Record::ProgramCalls { iteration, turn, call, .. } => {
                self.turn(*iteration, *turn, TurnAnswer::of_program((**call).clone()))?;
            }
            Record::ModelAsked { .. }
            | Record::ModelAnswered { .. }
            | Record::ModelFailed { .. }
            | Record::ModelReplayed { .. } => {
                let used = self.relayed.follow(record, Arc::make_mut(&mut self.account));
                self.tokens = self.tokens.saturating_add(used);
            }
            Record::Acp { change, .. } => Arc::make_mut(&mut self.acp).follow(change),
            Record::ProgramEnded { iteration, end, .. } if !over => {
                let (current, now) = self.current()?;
                let end = Arc::new((**end).clone());
                (current == *iteration).then(|| now.program = Some(end.clone()))?;
                self.said = Some(end.output.as_str().into());
            }
            Record::IterationFailed { iteration, error, .. } if !over => {
                let chats = self.begun.plan.chat.is_some();
                let (current, now) = self.current()?;
                (current == *iteration).then(|| now.error = Some(Arc::new((**error).clone())))?;
                if chats {
                    // A failure is not tried again before somebody says more.
                    let messages = now.messages;
                    Arc::make_mut(&mut self.account).took(messages);
                }
            }
            Record::Stopped { at, .. } if !over => self.stop(*at),
            Record::Judging { about, at } => {
                Arc::make_mut(&mut self.judging).follow(about, *at)?;
                self.note_score(about);
            }
            Record::Fork { about, at } => self.follow_fork(about, *at)?,
            Record::Standstill { change, .. } => self.still = change.next(),
            Record::After { about, .. } => Arc::make_mut(&mut self.after).follow(about),
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
            | Record::ProgramEnded { .. }
            | Record::IterationFailed { .. }
            | Record::Stopped { .. }
            | Record::Ended { .. }
            | Record::Cancelled { .. } => {}
            Record::Begun(_) | Record::Opened { .. } | Record::Closed { .. } => return None,
            Record::Account { change, at } => self.follow_account(change, *at)?,
        }
        Some(())
    }

    fn follow_account(&mut self, change: &AccountChange, at: DateTime<Utc>) -> Option<()> {
        if matches!(change, AccountChange::BudgetReached(_)) && self.may_have_machine() {
            self.still = StandstillState::Wanted { saved: false };
        }
        let over = self.end.is_some();
        Arc::make_mut(&mut self.account).follow(change, at, over)
    }
}

impl Sourced for ExecutionState {
    const KIND: &'static str = "execution";
    const PIECE_BYTES: Option<usize> = Some(PIECE_BYTES);
    const SHARED: bool = true;
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
                judging: Arc::default(),
                ordered_score: None,
                after: Arc::default(),
                tokens: 0,
                context: ContextProgress::default(),
                compaction: CompactionState::default(),
                relayed: RelayedRequests::default(),
                acp: Arc::default(),
                said: None,
                end: None,
                ended_at: None,
                closed: false,
                still: StandstillState::default(),
                forks: Arc::default(),
            }),
            other => Err(other),
        }
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        self.follow(&record).ok_or_else(|| record.clone())?;
        if matches!(record, Record::ProgramEnded { .. } | Record::IterationFailed { .. }) {
            // Whatever asked for more has ended.
            Arc::make_mut(&mut self.account).unblocked(record.at());
        }
        let outside = match &record {
            Record::Account { change, .. } => change.is_from_outside(),
            Record::Standstill { .. } => true,
            _ => false,
        };
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

    /// End of the time in which somebody may add to the budget, or in which a chat's machine waits with it.
    fn wakes_at(&self) -> Option<DateTime<Utc>> {
        let waiting = self.account.waiting().filter(|_| self.end.is_none());
        waiting.map_or_else(|| self.idle_at(), |wait| Some(wait.until))
    }

    fn woken(&self, now: DateTime<Utc>) -> Option<Record> {
        let waiting = self.account.waiting().filter(|_| self.end.is_none());
        let Some(wait) = waiting else { return self.became_idle(now) };
        let error = || Box::new(wait.unanswered());
        let ended = |at| Record::Ended { end: ExecutionEnd::Failed { error: error() }, at };
        (wait.until <= now).then(|| ended(now))
    }

    fn takes_place(&self) -> bool {
        !self.begun.judges
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
            let Iteration { prompt, turns, program, .. } = Arc::make_mut(iteration);
            (*prompt, *turns, *program) = (Arc::from(""), Vec::new(), None);
        }
        self.relayed.rest();
        self.compaction = CompactionState::default();
        self.acp = Arc::default();
        Arc::make_mut(&mut self.account).messages = Vec::new();
        let plan = &mut Arc::make_mut(&mut self.begun).plan;
        (plan.validation, plan.judges) = (ValidationPlan::default(), BTreeMap::new());
        plan.after = AfterPlan::default();
        (self.judging, self.after) = (Arc::default(), Arc::default());
        (plan.template, plan.context, plan.program) = (None, Vec::new(), None);
        plan.sources = Vec::new();
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
