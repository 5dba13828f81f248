//! Steps that end as soon as they begin: both are one append to the run's log.

use chrono::Utc;
use hivekeep_kernel::{ToolError, fault_point};
use hivekeep_plan::{
    lower::StepWork,
    progress::{NodeKey, NodeOutcome, ProgressRecord},
};
use hivekeep_runtime::log::LogError;

use super::{
    RunFold, RunSaga,
    node_try::{AttemptEnd, NodeEnd, is_stdout_read},
    state::RunWork,
};

/// Actions of which nothing comes but their end.
const INSTANT: [&str; 4] = ["noop", "log.write", "outputs.write", "router.route"];

/// Whether a step ends as soon as it begins: nothing is judged or asked for it, and its text goes to no file.
pub(super) fn is_instant(state: &RunFold, work: &RunWork, key: NodeKey) -> bool {
    let Some(node) = work.progress.plan().node(key.node).map(|node| &node.action) else {
        return false;
    };
    let step = &node.step;
    INSTANT.contains(&node.action.as_str())
        && step.preconditions.is_none()
        && step.approval.is_none()
        && step.repeat_policy.is_none()
        && step.foreach.is_none()
        && step.parallel.is_none()
        && step.container.is_none()
        && (node.action == "noop" || is_in_records(state, node))
}

/// Whether what a step leaves is in the run's records alone: a file is a command in the workspace.
fn is_in_records(state: &RunFold, node: &StepWork) -> bool {
    let step = &node.step;
    let files = [step.stdout.is_some(), step.stderr.is_some(), step.outputs.is_some()];
    !files.contains(&true) && step.output.is_none() && !is_stdout_read(state, node)
}

impl RunSaga {
    /// Works on a try whose beginning is recorded with its end: no more than that end comes of it, so one that a crash
    /// cuts short has not begun.
    pub(super) async fn work_at_once(
        &self,
        state: &RunFold,
        work: &RunWork,
        key: NodeKey,
    ) -> Result<(), LogError> {
        let began = Utc::now();
        let attempted = match self.shared.secrets_of(state).await {
            Ok(secrets) => {
                let masks = secrets.masks.clone();
                let attempted = self.attempt(state, work, key, (false, secrets)).await;
                attempted.map(|ended| (ended, masks))
            }
            Err(error) => Err(error),
        };
        let NodeEnd { end, left } = match attempted {
            Ok((AttemptEnd::Ended(ended), masks)) => {
                NodeEnd { end: ended.end, left: masks.left(ended.left) }
            }
            Ok(_) => NodeEnd::failed(ToolError::internal("a step that only ends does more")),
            Err(error) => NodeEnd::failed(error),
        };
        if self.shared.daemon.closing.is_cancelled() && end.outcome == NodeOutcome::Failed {
            // The next daemon does it.
            return std::future::pending().await;
        }
        fault_point!("run.before_end");
        let entered = ProgressRecord::Entered { key, at: began };
        let ended = ProgressRecord::Ended { key, end, at: Utc::now() };
        let moves = [(entered, None), (ended, Some(Box::new(left)))];
        self.all_moved(moves.into()).await?;
        fault_point!("run.after_end");
        Ok(())
    }
}
