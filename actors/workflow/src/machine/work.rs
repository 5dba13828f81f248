//! Work of a state, from its beginning to the record of its end, of its wait or of its child.

use chrono::{DateTime, Utc};
use hivekeep_kernel::{ExecutionId, RunId, ToolError, fault_point};
use hivekeep_manifest::workflow::WorkflowState;
use hivekeep_plan::{
    machine::{MAX_BLACKBOARD_BYTES, StateOutput},
    progress::{NodeKey, NodeOutcome, ProgressRecord, TryEnd},
};
use hivekeep_runtime::log::LogError;
use tokio_util::sync::CancellationToken;

use super::{records::MachineRecord, text::RunWorkflow, visit::StateVisit};
use crate::run::{NodeLeft, RunFold, RunRecord, RunSaga, RunText, try_name};

/// Outcome of a state's work for now.
pub(super) enum StateDone {
    Output(StateOutput),
    /// The state waits, for a person or for its child.
    Waits(RunRecord),
}

impl RunSaga {
    /// Works on a state that is entered.
    pub(crate) async fn work_state(
        &self,
        run: &RunFold,
        text: &RunWorkflow,
        key: NodeKey,
    ) -> Result<(), LogError> {
        let Some(at) = StateVisit::of(run, text, key) else { return Ok(()) };
        let cancel = self.cancel_of(run, key);
        let done =
            within(at.machine.ends_at, cancel, async |cancel| self.state_done(&at, &cancel).await);
        let output = match done.await {
            None => at.failure("its time is over"),
            Some(Ok(StateDone::Output(output))) => output,
            Some(Ok(StateDone::Waits(waits))) => {
                // An answer may be there already.
                return self.follows(|run| at.early(run).unwrap_or(waits)).await;
            }
            Some(Err(_)) if cancel.is_cancelled() => {
                let outcome = NodeOutcome::Aborted;
                let end =
                    TryEnd { outcome, exit_code: None, said: false, again: false, last: false };
                self.moved(ProgressRecord::Ended { key, end, at: Utc::now() }, None).await?;
                self.forget(run, &try_name(key));
                self.remove_containers(&at).await;
                return Ok(());
            }
            Some(Err(_)) if self.shared.daemon.closing.is_cancelled() => {
                // The next daemon looks at what has become of it.
                return std::future::pending().await;
            }
            Some(Err(error)) => at.failure(&error.message),
        };
        let output = match serde_json::to_vec(&output).map_or(0, |bytes| bytes.len()) {
            bytes if bytes > MAX_BLACKBOARD_BYTES => {
                at.failure(&format!("its output has {bytes} bytes: more than a blackboard takes"))
            }
            _ => output,
        };
        fault_point!("run.before_end");
        let ended = at.ended(output);
        self.follows(|_| ended).await?;
        fault_point!("run.after_end");
        self.forget(run, &try_name(key));
        self.remove_containers(&at).await;
        Ok(())
    }

    async fn state_done(
        &self,
        at: &StateVisit<'_>,
        cancel: &CancellationToken,
    ) -> Result<StateDone, ToolError> {
        let output = match at.state {
            WorkflowState::Agent { .. } => self.agent(at, cancel).await?,
            WorkflowState::ParallelAgents { .. } => self.panel(at, cancel).await?,
            WorkflowState::System { command, env, workdir, .. } => {
                self.system(at, (command, env.as_ref(), workdir.as_deref()), cancel).await?
            }
            WorkflowState::ContainerRun { .. } | WorkflowState::ParallelContainerRun { .. } => {
                self.containers(at, cancel).await?
            }
            WorkflowState::Human { prompt, .. } => {
                return Ok(StateDone::Waits(at.asked(at.rendered("prompt", prompt)?)));
            }
            WorkflowState::Subworkflow { .. } => return self.call(at, cancel).await,
        };
        self.handled(at, output, cancel).await.map(StateDone::Output)
    }
}

impl RunFold {
    /// Part of the record that a state is entered by, with ids for everything that it may begin.
    pub(crate) fn entering(&self, key: NodeKey) -> Option<NodeLeft> {
        let RunText::Workflow(text) = &self.begun.text else { return None };
        let (name, state) = text.manifest.spec.states.iter().nth(key.node.at())?;
        let agents = match state {
            WorkflowState::Agent { .. } => 3,
            WorkflowState::ParallelAgents { agents, .. } => agents.len() + 1,
            WorkflowState::ContainerRun { .. } | WorkflowState::ParallelContainerRun { .. } => 1,
            _ => 0,
        };
        let calls = matches!(state, WorkflowState::Subworkflow { .. });
        Some(NodeLeft::of_machine(MachineRecord::Entered {
            state: name.clone(),
            visit: self.work()?.progress.node(key.node)?.visits,
            executions: (0..agents).map(|_| ExecutionId::new()).collect(),
            child: calls.then(RunId::new),
        }))
    }
}

/// Does work under a token that fires with another one or at a time; `None` where the time came before its end.
pub(super) async fn within<T>(
    ends_at: Option<DateTime<Utc>>,
    cancel: &CancellationToken,
    work: impl AsyncFnOnce(CancellationToken) -> T,
) -> Option<T> {
    let own = cancel.child_token();
    let mut work = std::pin::pin!(work(own.clone()));
    let Some(ends_at) = ends_at else { return Some(work.await) };
    let left = (ends_at - Utc::now()).to_std().unwrap_or_default();
    tokio::select! {
        biased;
        done = &mut work => Some(done),
        () = tokio::time::sleep(left) => {
            own.cancel();
            work.await;
            None
        }
    }
}
