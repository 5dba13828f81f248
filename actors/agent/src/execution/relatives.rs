//! Parents and children of executions: a child's end is a record of its parent, and a parent's end cancels its
//! children.

use hivekeep_kernel::{ExecutionId, ToolError, User, codes};
use hivekeep_runtime::{
    log::{Decision, LogError},
    runs::{RunCaller, Runs},
};
use tokio_util::sync::CancellationToken;

use super::{
    ExecutionSaga, ExecutionShared,
    account::{AccountChange, BudgetAmounts, BudgetWait},
    repeated,
    state::{ExecutionEnd, ExecutionState, Record},
};

/// The daemon itself: it sees all executions.
pub(crate) const DAEMON: RunCaller = RunCaller { user: User::Nobody, operator: true };

impl ExecutionSaga {
    /// Tells the parent and the children of the end.
    pub(super) async fn inform(&self) -> Result<(), LogError> {
        let state = self.handle.state();
        if let Some(runs) = self.shared.runs() {
            let never = CancellationToken::new();
            let used = self.shared.tree.total(state.begun.id);
            let used = used.unwrap_or_else(|| state.account.total());
            if let Err(error) = repeated(&never, || inform(&runs, &state, used.clone())).await {
                self.unless_closing().await;
                // The step leaves no record, and is taken again.
                tracing::warn!(execution = %state.begun.id, %error, "its end is not told");
                return Ok(());
            }
        }
        self.handle.record(Record::account(AccountChange::Informed)).await
    }
}

/// Cancels the children of an execution that ends, and records the end with its parent, with what the execution and
/// all below it used.
///
/// # Errors
/// `journal_failed`, `busy`.
pub(crate) async fn inform(
    runs: &Runs<ExecutionSaga>,
    state: &ExecutionState,
    used: BudgetAmounts,
) -> Result<(), ToolError> {
    let open = state.account.children.iter().filter(|(_, over)| !**over);
    for child in open.map(|(child, _)| child.to_string()) {
        gone(runs.cancel(DAEMON, &child).await.map(drop))?;
    }
    let Some(parent) = state.begun.parent else { return Ok(()) };
    let (status, error) = match state.end.as_deref() {
        Some(ExecutionEnd::Completed { .. }) => ("completed", None),
        Some(ExecutionEnd::Cancelled) => ("cancelled", None),
        Some(ExecutionEnd::Failed { error }) => ("failed", Some(error.clone())),
        None => ("removed", None),
    };
    let (child, agent) = (state.begun.id, state.begun.plan.agent.clone());
    let ended = Record::account(AccountChange::ChildEnded {
        child,
        agent: agent.clone(),
        status: status.to_owned(),
        error,
        used,
    });
    let decide = move |parent: &ExecutionState| {
        Ok(match parent.account.children.get(&child) {
            Some(true) => Decision::nothing(),
            Some(false) => Decision::record(ended),
            // The daemon ended before the parent knew of its beginning.
            None => Decision::record(begun(child, agent)).and(ended),
        })
    };
    gone(runs.tell(DAEMON, &parent.to_string(), decide).await)
}

/// Notes a child with its parent.
///
/// # Errors
/// `run_over`, `execution_not_found`, `journal_failed`, `busy`.
pub(crate) async fn note_child(
    runs: &Runs<ExecutionSaga>,
    parent: ExecutionId,
    child: ExecutionId,
    agent: String,
) -> Result<(), ToolError> {
    let decide = move |state: &ExecutionState| {
        Ok(match state.account.children.contains_key(&child) {
            true => Decision::nothing(),
            false => Decision::record(begun(child, agent)),
        })
    };
    runs.tell(DAEMON, &parent.to_string(), decide).await
}

fn begun(child: ExecutionId, agent: String) -> Record {
    Record::account(AccountChange::ChildBegun { child, agent })
}

/// An execution that is over or gone need not be told.
fn gone(told: Result<(), ToolError>) -> Result<(), ToolError> {
    match told {
        Err(error) if error.is(codes::RUN_OVER) || error.is(crate::codes::EXECUTION_NOT_FOUND) => {
            Ok(())
        }
        told => told,
    }
}

/// Has those that wait for the budget of one above them try again, where it has enough left.
///
/// # Errors
/// `journal_failed`, `busy`.
pub(crate) async fn wake_waiting(
    runs: &Runs<ExecutionSaga>,
    has_left: impl Fn(&BudgetWait) -> bool,
) -> Result<(), ToolError> {
    let (all, _) = runs.list(DAEMON, None, usize::MAX);
    for (id, view) in all {
        let state = &view.state;
        let waits = state.account.waiting().filter(|_| state.end.is_none());
        let Some(wait) = waits.filter(|wait| wait.of != id && has_left(wait)).cloned() else {
            continue;
        };
        let by = state.begun.user;
        let decide = move |state: &ExecutionState| {
            Ok(match state.account.waiting() == Some(&wait) {
                true => Decision::record(Record::account(AccountChange::Continued {
                    added: BudgetAmounts::default(),
                    by,
                })),
                false => Decision::nothing(),
            })
        };
        gone(runs.tell(DAEMON, &id.to_string(), decide).await)?;
    }
    Ok(())
}

/// Makes the tree anew, and mends what the end of the daemon before cut: children that their parents do not know, those
/// of parents that are over, and waits for a budget that has enough by now.
///
/// # Errors
/// `journal_failed`, `busy`.
pub(crate) async fn restore(
    runs: &Runs<ExecutionSaga>,
    shared: &ExecutionShared,
) -> Result<(), ToolError> {
    let (mut all, _) = runs.list(DAEMON, None, usize::MAX);
    // Ids sort by age: parents first.
    all.sort_unstable_by_key(|(id, _)| *id);
    let parent = |state: &ExecutionState| {
        let parent = state.begun.parent?;
        runs.get(DAEMON, &parent.to_string()).ok().filter(|view| view.state.end.is_none())
    };
    for (id, state) in all.iter().map(|(id, view)| (id, &view.state)) {
        if is_left(state) {
            let above = parent(state);
            let told = above.is_some_and(|it| it.state.account.children.get(id) == Some(&true));
            if !told {
                shared.tree.insert(
                    (state.begun.id, state.begun.parent),
                    state.child,
                    &state.account,
                );
            }
        }
    }
    for (id, state) in all.iter().map(|(id, view)| (*id, &view.state)) {
        let Some(above) = state.begun.parent.filter(|_| state.end.is_none()) else { continue };
        match parent(state) {
            Some(_) => note_child(runs, above, id, state.begun.plan.agent.clone()).await?,
            None => gone(runs.cancel(DAEMON, &id.to_string()).await.map(drop))?,
        }
    }
    wake_waiting(runs, |wait| shared.has_left(wait)).await
}

/// True while an execution is not over, or its relatives are not told.
pub(crate) fn is_left(state: &ExecutionState) -> bool {
    state.end.is_none() || state.has_to_inform()
}
