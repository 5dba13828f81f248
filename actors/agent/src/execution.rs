//! An execution of an agent: a durable run of turns of a model, and of the calls that it asks for.
//!
//! ```text
//! open a session ─▶ [machine, material] ─▶ prompt ─▶ turn ─▶ calls ─▶ turn … ─▶ the model is done ─▶ validators ─▶ end
//!                                            ▲                         │                                 │
//!                                            └──── iteration failed ◀──┴── a bound, an answer of no use ◀┘
//! ```
//! An agent may be a program of others instead: it runs to its end in place of the turns ([`program`]).
//!
//! [`ExecutionState`] is moved by records alone, and says what is due. A turn whose answer is not recorded is asked
//! again, for nothing of it was kept. A call is made once: where the daemon ended during one whose tool is not
//! repeatable, that is its result. Calls go through the dispatcher in a session of the execution's own, which can do
//! nothing that the session could not which asked for it.

pub(crate) mod account;
pub(crate) mod acp;
pub(crate) mod after;
pub(crate) mod budget;
pub(crate) mod call;
pub(crate) mod checkpoints;
mod compaction;
pub(crate) mod context;
mod digest;
mod events;
pub(crate) mod forks;
mod handing;
pub(crate) mod history;
pub(crate) mod judge;
pub(crate) mod judging;
pub(crate) mod place;
pub(crate) mod plan;
pub(crate) mod program;
pub(crate) mod program_end;
mod records;
pub(crate) mod relatives;
mod relayed;
pub(crate) mod replay;
pub(crate) mod standstill;
pub(crate) mod state;
mod step;
mod stop;
pub(crate) mod tree;
pub(crate) mod turn;
pub(crate) mod validation;
mod verdicts;

use std::{
    future::pending,
    sync::{Arc, OnceLock},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::{Layer, SessionId, ToolError, codes};
use hivekeep_ports::{ChildSession, ChildSessions, Models};
use hivekeep_runtime::{
    Daemon,
    log::{Decision, LogError},
    runs::{Runs, WeakRuns},
    saga::{Saga, SagaHandle},
};
use tokio_util::sync::CancellationToken;

use account::BudgetWait;
use place::ExecutionMachines;
use records::KeptWorkspaces;
use state::{CallKey, Conclusion, ExecutionEnd, ExecutionState, Record};
pub(crate) use step::ExecutionStep;
use tree::ExecutionTree;

use crate::mail::Mailer;

/// Most calls of one turn that run at a time.
const CALLS_AT_ONCE: usize = 8;
/// Number of attempts at what is refused for the moment, with longer and longer pauses: half a minute.
const ATTEMPTS: u32 = 7;
/// First of these pauses.
const PAUSE: Duration = Duration::from_millis(500);
/// Time limit of the end of a session.
const CLOSING: Duration = Duration::from_secs(60);

/// Ports that all executions share.
pub(crate) struct ExecutionShared {
    pub(crate) models: Arc<dyn Models>,
    pub(crate) children: Arc<dyn ChildSessions>,
    /// Ports of families and doors behind this one, and the journal.
    pub(crate) daemon: Daemon,
    pub(crate) tree: ExecutionTree,
    /// Longest wait for more budget.
    pub(crate) patience: TimeDelta,
    /// Server for mails.
    pub(crate) mailer: Option<Arc<Mailer>>,
    /// All executions, once they are read.
    pub(crate) runs: OnceLock<WeakRuns<ExecutionSaga>>,
    pub(crate) machines: Arc<ExecutionMachines>,
    /// Fires when an ordered stop of the daemon begins.
    pub(crate) closing: CancellationToken,
}

impl ExecutionShared {
    /// All executions; none while they are read, and when the daemon has gone.
    fn runs(&self) -> Option<Runs<ExecutionSaga>> {
        self.runs.get()?.upgrade()
    }

    /// Never returns once the daemon stops: failures from then on say nothing of the execution, and the next start
    /// goes on from the records.
    pub(crate) async fn unless_closing(&self) {
        if self.closing.is_cancelled() {
            pending().await
        }
    }

    /// Whether somebody who waits would have enough now.
    pub(crate) fn has_left(&self, wait: &BudgetWait) -> bool {
        self.tree.has_left(wait.of, wait.kind, wait.wanted)
    }
}

/// Incarnation of an execution.
pub(crate) struct ExecutionSaga {
    shared: Arc<ExecutionShared>,
    handle: SagaHandle<Self>,
    clock: ActiveClock,
    /// Calls that an incarnation before this one may have begun, with the number of rewinds by then.
    doubtful: (usize, Vec<CallKey>),
}

/// Clock that stands still while the daemon does not run.
#[derive(Debug, Clone, Copy)]
struct ActiveClock {
    paused_at: DateTime<Utc>,
    resumed_at: DateTime<Utc>,
}

impl ActiveClock {
    /// Time since a record, without that between the last record of the incarnation before and this one.
    fn since(self, at: DateTime<Utc>, now: DateTime<Utc>) -> Duration {
        let before = self.paused_at.max(at) - at;
        let after = now - self.resumed_at.max(at);
        (before.max(Default::default()) + after.max(Default::default()))
            .to_std()
            .unwrap_or_default()
    }
}

impl Saga for ExecutionSaga {
    type State = ExecutionState;
    type Step = ExecutionStep;
    type Live = ();
    type Args = Arc<ExecutionShared>;

    fn resume(shared: Arc<ExecutionShared>, handle: SagaHandle<Self>) -> Self {
        let state = handle.state();
        let clock = ActiveClock { paused_at: state.last_at, resumed_at: Utc::now() };
        let doubtful = state.begun_calls().into_iter().filter_map(|step| match step {
            ExecutionStep::Call(key) => Some(key),
            _ => None,
        });
        let doubtful = (state.forks.rewinds, doubtful.collect());
        if let Some(session) = state.child.filter(|_| !state.closed) {
            shared.machines.decide(session, &state.begun.plan);
        }
        Self { shared, handle, clock, doubtful }
    }

    fn due(state: &ExecutionState, running: &[ExecutionStep]) -> Vec<ExecutionStep> {
        let due = state.due();
        // Steps that run come to their ends first.
        let alone = [ExecutionStep::Close, ExecutionStep::Prompt, ExecutionStep::Rewind];
        let last = matches!(due[..], [only] if alone.contains(&only))
            && running.iter().any(|step| !due.contains(step));
        if last { Vec::new() } else { due }
    }

    fn parallel(_: &ExecutionState) -> usize {
        CALLS_AT_ONCE
    }

    /// A turn may be dropped: nothing of an answer is kept that is not whole. So may the making of a machine, which
    /// is found by its name, and a wait for a judge or a receiver. A program goes on in its machine.
    fn interruptible(step: ExecutionStep) -> bool {
        matches!(
            step,
            ExecutionStep::Turn
                | ExecutionStep::Compact
                | ExecutionStep::Read
                | ExecutionStep::Program
                | ExecutionStep::Place
                | ExecutionStep::Ask(..)
                | ExecutionStep::Hand(_)
        )
    }

    async fn step(&self, step: ExecutionStep) -> Result<(), LogError> {
        match step {
            ExecutionStep::Open => self.open().await,
            ExecutionStep::Place => self.place().await,
            ExecutionStep::Read => self.read().await,
            ExecutionStep::Halt => self.halt().await,
            ExecutionStep::GoOn => self.go_on().await,
            ExecutionStep::Prompt => self.prompt().await,
            ExecutionStep::Program => self.program().await,
            ExecutionStep::Checkpoint => self.checkpoint().await,
            ExecutionStep::Rewind => self.rewind().await,
            ExecutionStep::Compact => self.unless_rewound(self.compact()).await,
            ExecutionStep::Turn => self.unless_rewound(self.turn()).await,
            ExecutionStep::Admit => self.admit().await,
            ExecutionStep::Call(key) => self.call(key).await,
            ExecutionStep::Ask(key, judge) => self.ask(key, judge).await,
            ExecutionStep::Weigh(key) => self.weigh(key).await,
            ExecutionStep::Conclude => self.conclude().await,
            ExecutionStep::Hand(key) => self.unless_rewound(self.hand(key)).await,
            ExecutionStep::Inform => self.inform().await,
            ExecutionStep::Close => self.close().await,
        }
    }
}

impl ExecutionSaga {
    async fn open(&self) -> Result<(), LogError> {
        let state = self.handle.state();
        self.shared.tree.insert((state.begun.id, state.begun.parent), state.child, &state.account);
        let plan = &state.begun.plan;
        let child = || ChildSession {
            parent: state.begun.session,
            name: state.begun.id.to_string(),
            agent: Some(plan.agent.clone()),
            context: plan.security_context.clone(),
            tools: {
                let more = plan.reading_tools().map(str::to_owned);
                more.chain(plan.after.tools().cloned()).chain(plan.tools.clone()).collect()
            },
        };
        let cancelled = self.handle.cancelled();
        match repeated(cancelled, || self.shared.children.open(child())).await {
            Ok(session) => {
                self.shared.tree.opened(state.begun.id, session);
                self.shared.machines.decide(session, plan);
                self.handle.record(Record::Opened { session, at: Utc::now() }).await
            }
            Err(error) => self.fail(error).await,
        }
    }

    async fn prompt(&self) -> Result<(), LogError> {
        let state = self.handle.state();
        let iteration = state.iterations.len();
        match state.next_prompt() {
            Ok(text) => {
                let prompted = Record::Prompted { iteration, text, at: Utc::now() };
                // A message that was stopped meanwhile begins nothing.
                let decide = |state: &ExecutionState| {
                    Ok(match state.awaits_message() {
                        true => Decision::nothing(),
                        false => Decision::record(prompted),
                    })
                };
                self.handle.decide::<LogError>(decide).await
            }
            Err(error) => self.fail(error).await,
        }
    }

    async fn conclude(&self) -> Result<(), LogError> {
        match self.handle.state().conclusion() {
            Some(Conclusion::Ends(end)) => {
                let end = self.handle.state().handled(end);
                // A message that came meanwhile is read before the end.
                let decide = |state: &ExecutionState| {
                    Ok(match state.conclusion() {
                        Some(Conclusion::Ends(_)) => {
                            Decision::record(Record::Ended { end, at: Utc::now() })
                        }
                        _ => Decision::nothing(),
                    })
                };
                self.handle.decide::<LogError>(decide).await
            }
            Some(Conclusion::Fails(error)) => self.fail_iteration(error).await,
            None => Ok(()),
        }
    }

    async fn close(&self) -> Result<(), LogError> {
        let (state, mut left_open) = (self.handle.state(), None);
        let mut workspaces = KeptWorkspaces::default();
        if let Some(session) = state.child {
            workspaces = self.retire(&state, session).await;
            let never = CancellationToken::new();
            let children = &self.shared.children;
            let asking = state.begun.plan.scheduled_for.map(|_| state.begun.session);
            let end = async || {
                children.end(session).await?;
                // Nobody else has the session of a schedule.
                match asking {
                    Some(asking) => children.end(asking).await,
                    None => Ok(()),
                }
            };
            let ended = tokio::time::timeout(CLOSING, repeated(&never, end)).await;
            let error = match ended {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error),
                Err(_) => Some(ToolError::deadline(Layer::Session, CLOSING.as_secs())),
            };
            if let Some(error) = error {
                self.unless_closing().await;
                tracing::warn!(execution = %state.begun.id, %error, "its session did not end");
                left_open = Some(Box::new(error));
            }
        }
        let at = Utc::now();
        self.handle.record(Record::Closed { at, error: left_open, workspaces }).await
    }

    /// Records that the execution failed; of a chat only what it was about to answer.
    async fn fail(&self, error: ToolError) -> Result<(), LogError> {
        self.unless_closing().await;
        let state = self.handle.state();
        if state.begun.plan.chat.is_some() && state.iteration().is_some() {
            return self.fail_iteration(error).await;
        }
        let end = ExecutionEnd::Failed { error: Box::new(error) };
        self.handle.record(Record::Ended { end, at: Utc::now() }).await
    }

    /// Records that an iteration failed, and the execution with it unless another iteration is left.
    async fn fail_iteration(&self, error: ToolError) -> Result<(), LogError> {
        let decide = |state: &ExecutionState| {
            let (number, at) = (state.iterations.len(), Utc::now());
            let going_on = number.checked_sub(1).filter(|_| state.iteration().is_some());
            let Some(iteration) = going_on else { return Ok(Decision::nothing()) };
            let error = Box::new(error);
            let failed = Record::IterationFailed { iteration, error: error.clone(), at };
            let failed = Decision::record(failed);
            if number < state.begun.plan.limits.iterations {
                return Ok(failed);
            }
            Ok(failed.and(Record::Ended { end: ExecutionEnd::Failed { error }, at }))
        };
        self.handle.decide::<LogError>(decide).await
    }

    /// Time that is left of the execution and of its iteration.
    ///
    /// # Errors
    /// `time_exhausted`: true if the execution has none, false if only the iteration has none.
    fn left(&self, state: &ExecutionState) -> Result<Duration, (bool, ToolError)> {
        let limits = &state.begun.plan.limits;
        let left = |most_ms: u64, at| {
            Duration::from_millis(most_ms).saturating_sub(self.worked(state, at))
        };
        let whole = left(limits.whole_ms, state.begun.at);
        let begun = state.iteration().map_or(state.begun.at, |iteration| iteration.at);
        let iteration = left(limits.iteration_ms, begun);
        let over = |whole: bool, most_ms: u64, what: &str, field: &str| {
            let message = format!("the {what} took longer than {} s", most_ms.div_ceil(1_000));
            let error = ToolError::new(Layer::Actor, crate::codes::TIME_EXHAUSTED, message);
            (whole, error.next(format!("ask for less, or raise `{field}` of the manifest")))
        };
        if whole.is_zero() {
            let field = "spec.security.resources.timeout";
            return Err(over(true, limits.whole_ms, "execution", field));
        }
        if iteration.is_zero() {
            let field = "spec.execution.iteration_timeout";
            return Err(over(false, limits.iteration_ms, "iteration", field));
        }
        Ok(whole.min(iteration))
    }

    /// Time of work since a record: without waits, and without that in which no daemon ran.
    fn worked(&self, state: &ExecutionState, at: DateTime<Utc>) -> Duration {
        let waited = state.account.waited_since(at).to_std().unwrap_or_default();
        self.clock.since(at, Utc::now()).saturating_sub(waited)
    }

    /// Records that the time is over.
    async fn out_of_time(&self, (whole, error): (bool, ToolError)) -> Result<(), LogError> {
        if whole { self.fail(error).await } else { self.fail_iteration(error).await }
    }

    /// Own session of the execution. Legal once it is opened.
    fn child(state: &ExecutionState) -> SessionId {
        state.child.expect("steps behind the first have a session")
    }

    async fn unless_closing(&self) {
        self.shared.unless_closing().await;
    }
}

/// Repeats what is refused for the moment and has done nothing, some times; no longer when it is cancelled.
async fn repeated<T, F: Future<Output = Result<T, ToolError>>>(
    cancel: &CancellationToken,
    work: impl Fn() -> F,
) -> Result<T, ToolError> {
    repeated_while(is_passing, cancel, work).await
}

/// Repeats what fails by such an error, some times; no longer when it is cancelled.
async fn repeated_while<T, F: Future<Output = Result<T, ToolError>>>(
    passes: impl Fn(&ToolError) -> bool,
    cancel: &CancellationToken,
    work: impl Fn() -> F,
) -> Result<T, ToolError> {
    let mut pause = PAUSE;
    for _ in 1..ATTEMPTS {
        match work().await {
            Err(error) if passes(&error) => {
                let asked = error.retry_after_ms.map(Duration::from_millis).unwrap_or_default();
                let pausing = tokio::time::sleep(pause.max(asked));
                if cancel.run_until_cancelled(pausing).await.is_none() {
                    return Err(error);
                }
                pause *= 2;
            }
            outcome => return outcome,
        }
    }
    work().await
}

/// True for a refusal that passes, of work that has not begun.
fn is_passing(error: &ToolError) -> bool {
    let before = matches!(error.layer, Layer::Rate | Layer::Admission);
    let unknown = error.details.get("outcome").is_some_and(|it| it == "unknown");
    error.retryable && (before || error.is(codes::ACTOR_UNAVAILABLE) && !unknown)
}
