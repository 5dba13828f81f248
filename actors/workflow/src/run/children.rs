//! Children of a run: begun under ids that were recorded before, and told of to their parent by themselves.

use chrono::Utc;
use hivekeep_kernel::{RunId, ToolError, User, codes, fault_point};
use hivekeep_manifest::dag::{DagForeach, DagManifest, DagStepEntry, DagSteps, DagType};
use hivekeep_plan::{
    plan::NodeIndex,
    progress::{ChildPhase, NodeKey, NodePhase, ProgressRecord, RetryFrom, RunOutcome},
};
use hivekeep_runtime::{
    log::{Decision, LogError},
    runs::{RunCaller, RunQueue, Runs},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    NodeLeft, RunFold, RunRecord, RunSaga, RunTrigger,
    begin::invalid,
    expand::{item_scope, run_outputs},
    failure::failed,
    obeyed::steps,
    people::TASK,
    place::{PATIENCE, PAUSE},
    records::{LoopBody, RunBegun, RunChild, RunDag, RunText},
    scope::RunScopes,
    state::RunWork,
};
use crate::secrets::RunSecrets;

/// Most runs above a run.
pub(crate) const MAX_DEPTH: u32 = 10;
/// Daemon itself, which sees all runs.
pub(crate) const DAEMON: RunCaller = RunCaller { user: User::Nobody, operator: true };

impl RunSaga {
    pub(super) fn runs(&self) -> Result<Runs<Self>, ToolError> {
        let runs = self.shared.runs.get().and_then(hivekeep_runtime::runs::WeakRuns::upgrade);
        runs.ok_or_else(ToolError::daemon_stopping)
    }

    /// Begins a child, unless an earlier incarnation did, and records that: with its end, where it is not waited for.
    pub(super) async fn child(&self, key: NodeKey, child: u32) -> Result<(), LogError> {
        let state = self.handle.state();
        let Some(planned) = planned(&state, key.node, child) else { return Ok(()) };
        let left = match state.results.get(&(key.node, child)) {
            // A child that succeeded in an earlier try.
            Some(left) => (**left).clone(),
            None => match self.goes_on(&state, key, child, planned).await {
                Ok(()) if planned.queue.is_some() => {
                    NodeLeft { succeeded: true, ..NodeLeft::default() }
                }
                Ok(()) => {
                    let begun = ProgressRecord::ChildBegun { key, child, at: Utc::now() };
                    return self.moved(begun, None).await;
                }
                Err(error) => NodeLeft { error: Some(Box::new(error)), ..NodeLeft::default() },
            },
        };
        let decide = |state: &RunFold| Ok(ended(state, (key.node, child), planned.id, left));
        self.handle.decide::<LogError>(decide).await
    }

    /// Has the run of a child begun, or going on.
    async fn goes_on(
        &self,
        state: &RunFold,
        key: NodeKey,
        child: u32,
        planned: &RunChild,
    ) -> Result<(), ToolError> {
        let (work, cancel) = (state.work(), self.cancel_of(state, key));
        let work = work.ok_or_else(ToolError::cancelled)?;
        match planned.attempt {
            Some(before) => self.retry_child(planned.id, before, cancel).await?,
            None => {
                let first = self.first_record(state, work, key, child, planned)?;
                self.begin_child(planned.id, &first, cancel).await?;
            }
        }
        fault_point!("run.child_begun");
        if cancel.is_cancelled() && planned.queue.is_none() {
            // The stop of the run may have looked before the child was there.
            self.runs()?.cancel(DAEMON, &planned.id.to_string()).await?;
        }
        Ok(())
    }

    /// Begins a run under an id that was recorded before, unless an earlier incarnation did.
    ///
    /// # Errors
    /// Those of [`Runs::begin`] but for want of a place, which is waited for; `cancelled`.
    pub(crate) async fn begin_child(
        &self,
        id: RunId,
        first: &RunRecord,
        cancel: &CancellationToken,
    ) -> Result<(), ToolError> {
        let (runs, until) = (self.runs()?, Instant::now() + PATIENCE);
        while runs.get(DAEMON, &id.to_string()).is_err() {
            match runs.begin(id, first.clone()).await {
                Ok(()) => break,
                // A place is waited for until there is one.
                Err(error) if error.is(codes::TOO_MANY_RUNS) => {}
                Err(error) if error.retryable && Instant::now() < until => {}
                Err(error) => return Err(error),
            }
            if tokio::time::timeout(PAUSE, cancel.cancelled()).await.is_ok() {
                return Err(ToolError::cancelled());
            }
        }
        Ok(())
    }

    /// Children of a step that is retried: those that succeeded, those whose runs go on, and under other ids those whose
    /// runs never came to a step, or are gone.
    pub(super) fn retried_children(
        &self,
        state: &RunFold,
        node: NodeIndex,
        children: &[RunChild],
    ) -> Result<Vec<RunChild>, ToolError> {
        let runs = self.runs()?;
        let attempt = |id: RunId| {
            let view = runs.get(DAEMON, &id.to_string()).ok()?;
            view.state.work().map(|_| view.state.attempt)
        };
        let again = |(at, child): (u32, &RunChild)| match attempt(child.id) {
            _ if state.results.contains_key(&(node, at)) => child.clone(),
            Some(attempt) => RunChild { attempt: Some(attempt), ..child.clone() },
            None => RunChild { id: RunId::new(), attempt: None, ..child.clone() },
        };
        Ok((0u32..).zip(children).map(again).collect())
    }

    /// Has a child's run do again what failed in it, unless an earlier incarnation did.
    ///
    /// # Errors
    /// As for [`Self::begin_child`].
    async fn retry_child(
        &self,
        id: RunId,
        before: u32,
        cancel: &CancellationToken,
    ) -> Result<(), ToolError> {
        let (runs, until, id) = (self.runs()?, Instant::now() + PATIENCE, id.to_string());
        loop {
            let over = runs.until(DAEMON, &id, |state| state.attempt > before);
            let over =
                cancel.run_until_cancelled(over).await.ok_or_else(ToolError::cancelled)??;
            if over.state.attempt > before {
                return Ok(());
            }
            let retried = move |state: &RunFold| match state.attempt > before {
                true => Ok(Decision::nothing()),
                // A run without a failure, of which its parent never heard.
                false => {
                    let failed = state.retried(RetryFrom::Failed);
                    failed.or_else(|_| state.retried(RetryFrom::Beginning))
                }
            };
            match runs.reopen(DAEMON, &id, retried).await {
                Ok(()) => return Ok(()),
                Err(error) if error.is(codes::TOO_MANY_RUNS) => {}
                Err(error) if error.is(codes::BUSY) && Instant::now() < until => {}
                Err(error) => return Err(error),
            }
            if tokio::time::timeout(PAUSE, cancel.cancelled()).await.is_ok() {
                return Err(ToolError::cancelled());
            }
        }
    }

    fn first_record(
        &self,
        state: &RunFold,
        work: &RunWork,
        key: NodeKey,
        child: u32,
        planned: &RunChild,
    ) -> Result<RunRecord, ToolError> {
        let begun = &state.begun;
        if begun.depth >= MAX_DEPTH {
            return Err(invalid(format!(
                "runs are {MAX_DEPTH} deep in one another, as many as may"
            )));
        }
        let trigger = match planned.queue {
            Some(_) => RunTrigger::Enqueue { run: begun.id },
            None => RunTrigger::Parent { run: begun.id, key, child },
        };
        if let RunText::Workflow(_) = &begun.text {
            return self.subworkflow(begun, planned, trigger);
        }
        let node = work.progress.plan().node(key.node);
        let foreach = node.and_then(|node| node.action.step.foreach.as_ref());
        let (dag, name, body) = match (&planned.dag, foreach) {
            (Some(name), _) => {
                let dag = begun.documents.get(name).cloned();
                if dag.as_ref().is_some_and(asks_people) {
                    let message =
                        format!("the DAG `{name:.80}` has `human.task`, and no child may");
                    return Err(invalid(message));
                }
                (
                    dag.ok_or_else(|| invalid(format!("there is no DAG `{name}`")))?,
                    name.clone(),
                    None,
                )
            }
            (None, Some(foreach)) => {
                let (dag, body) = loop_body(state, work, (key.node, child), foreach, planned)?;
                (dag, begun.name.clone(), Some(Box::new(body)))
            }
            (None, None) => return Err(ToolError::internal("a child of no step")),
        };
        Ok(RunRecord::Begun(Box::new(RunBegun {
            id: planned.id,
            user: begun.user,
            session: begun.session,
            name,
            trigger,
            queue: planned.queue.clone().map(|name| RunQueue { name, priority: 0 }),
            place: begun.place.clone(),
            folder: format!("{}/{}.{}-{child}", begun.folder, key.node.0, key.tries),
            text: RunText::Dag(Box::new(RunDag {
                dag: Box::new(dag),
                documents: begun.documents.clone(),
                given: planned.given.clone(),
                body,
            })),
            depth: begun.depth + 1,
            at: Utc::now(),
        })))
    }

    /// Stops the children of a try that have begun.
    ///
    /// # Errors
    /// The first child that could not be told.
    pub(crate) async fn stop_children(
        &self,
        state: &RunFold,
        key: NodeKey,
    ) -> Result<(), ToolError> {
        let runs = self.runs()?;
        let children = state.children.get(&key.node).into_iter().flat_map(|them| them.iter());
        for child in children.filter(|child| child.queue.is_none()) {
            match runs.cancel(DAEMON, &child.id.to_string()).await {
                Err(error) if !error.is(crate::codes::RUN_NOT_FOUND) => return Err(error),
                // A child that is over, or was never begun, needs no stop.
                _ => {}
            }
        }
        Ok(())
    }

    /// Tells the parent of the run's end, as a record of the parent.
    pub(super) async fn inform(&self, state: &RunFold) {
        let RunTrigger::Parent { run, key, child } = state.begun.trigger else { return };
        let succeeded =
            matches!(state.outcome(), Some(RunOutcome::Succeeded | RunOutcome::PartlySucceeded));
        let (mut left, id) = (NodeLeft::default(), state.begun.id);
        let outputs = match &state.machine {
            Some(machine) => {
                left.error = machine.error().map(Box::new);
                Ok(machine.result())
            }
            None => state.work().map(|work| run_outputs(state, work)).transpose(),
        };
        let succeeded = match outputs {
            Ok(outputs) => {
                left.published = outputs;
                succeeded
            }
            Err(error) => {
                left.error = Some(Box::new(error));
                false
            }
        };
        left.succeeded = succeeded;
        if !succeeded && left.error.is_none() {
            left.error = state.failures().into_iter().next().map(|first| Box::new(failed(first)));
        }
        fault_point!("run.child_over");
        loop {
            let told = match self.runs() {
                Ok(runs) => {
                    let left = left.clone();
                    let decide =
                        move |state: &RunFold| Ok(ended(state, (key.node, child), id, left));
                    runs.tell(DAEMON, &run.to_string(), decide).await
                }
                Err(error) => Err(error),
            };
            match told {
                Ok(()) => return,
                // A parent that is over, or was removed, waits for nothing.
                Err(error) if error.is_any(&[codes::RUN_OVER, crate::codes::RUN_NOT_FOUND]) => {
                    return;
                }
                Err(error) => {
                    tracing::warn!(run = %state.begun.id, parent = %run, %error, "its parent is not told of its end yet");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// True for a DAG with a human task, which only a run that somebody started may have.
fn asks_people(dag: &DagManifest) -> bool {
    steps(dag).into_iter().any(|step| step.action.as_deref() == Some(TASK))
}

/// Steps of a loop as a DAG for one of its items, and what they see of the run.
fn loop_body(
    state: &RunFold,
    work: &RunWork,
    (node, child): (NodeIndex, u32),
    foreach: &DagForeach,
    planned: &RunChild,
) -> Result<(DagManifest, LoopBody), ToolError> {
    // The body reads the secrets itself, and its beginning is recorded.
    let (begun, none) = (&state.begun, RunSecrets::default());
    let scopes = RunScopes::of_node(state, work, node, &begun.folder, none)?;
    let mut items = scopes.items.clone();
    items.push(item_scope(foreach, child as usize, planned.key.clone(), &planned.given));
    let mut beginning = (*work.beginning).clone();
    beginning.env = scopes.env.clone();
    let steps = foreach.steps.iter().cloned();
    let dag = DagManifest {
        dag_type: Some(DagType::Graph),
        steps: DagSteps::List(steps.map(|it| DagStepEntry::Step(Box::new(it))).collect()),
        handler_on: None,
        preconditions: None,
        retry_policy: None,
        delay_sec: None,
        timeout_sec: None,
        ..(*begun.dag).clone()
    };
    let collect = foreach.collect.clone().unwrap_or_default();
    let steps = scopes.steps.clone().unwrap_or_default();
    Ok((dag, LoopBody { beginning, steps, items, collect }))
}

fn planned(state: &RunFold, node: NodeIndex, child: u32) -> Option<&RunChild> {
    state.children.get(&node)?.get(child as usize)
}

/// End of a child in its parent, with its beginning where the parent has not recorded that yet; nothing where the parent
/// does not wait for that run.
fn ended(
    state: &RunFold,
    (node, child): (NodeIndex, u32),
    id: RunId,
    left: NodeLeft,
) -> Decision<RunRecord> {
    let at = Utc::now();
    let is_meant = planned(state, node, child).is_some_and(|child| child.id == id);
    let progress = state.work().and_then(|work| work.progress.node(node)).filter(|_| is_meant);
    let Some((tries, NodePhase::Children(children))) = progress.map(|it| (it.tries, &it.phase))
    else {
        return Decision::nothing();
    };
    let key = NodeKey { node, tries };
    let ended = ProgressRecord::ChildEnded { key, child, succeeded: left.succeeded, at };
    let ended = RunRecord::Moved { progress: ended, left: Some(Box::new(left)) };
    match children.get(child as usize) {
        Some(ChildPhase::Open) => {
            let begun = RunRecord::moved(ProgressRecord::ChildBegun { key, child, at });
            Decision::record(begun).and(ended)
        }
        Some(ChildPhase::Begun) => Decision::record(ended),
        _ => Decision::nothing(),
    }
}
