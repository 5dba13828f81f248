//! Merge of the tasks' commits into the target.

use std::time::Duration;

use futures::future::join_all;
use hivekeep_kernel::{ToolError, WorkspaceId, fault_point};
use hivekeep_runtime::{OnBehalfOf, log::LogError};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    SwarmSaga,
    fork::Fork,
    state::{MergePlan, Record, SwarmPlan},
};
use crate::{codes, tools::SwarmMerge};

/// Time limit of the merge, and of another one into the same target that comes first.
const PATIENCE: Duration = Duration::from_secs(1800);
/// Time limit for machines that are down or cannot be reached, all of them together.
const REACHING: Duration = Duration::from_secs(300);

impl SwarmSaga {
    /// Merges once. Where a daemon died in the middle, it is asked for again: commits that have
    /// arrived are there already.
    pub(super) async fn merge(&self) -> Result<(), LogError> {
        self.unless_closing().await;
        self.release_room();
        let state = self.state();
        let Some(wanted) = &state.plan.merge else { return Ok(()) };
        let blank = SwarmMerge {
            strategy: wanted.strategy,
            target_workspace: wanted.target,
            success: false,
            repeated: state.merging,
            detail: None,
            error: None,
        };
        let success = state
            .tasks
            .iter()
            .filter(|task| task.end.as_ref().is_some_and(|end| end.success()))
            .filter_map(|task| task.worker);
        let sources: Vec<_> = success.collect();
        let merge = if self.is_cancelled() && !state.merging {
            SwarmMerge { error: Some("the swarm was cancelled".to_owned()), ..blank }
        } else if sources.is_empty() {
            SwarmMerge { error: Some("no task succeeded".to_owned()), ..blank }
        } else {
            fault_point!("swarm.before_merge");
            if !state.merging {
                self.handle.record(Record::Merging).await?;
            }
            // Only the target knows whether a merge has landed, also of a swarm that was cancelled since.
            let cancel = match self.is_cancelled() {
                true => CancellationToken::new(),
                false => self.handle.cancelled().child_token(),
            };
            match self.ask_merge(&state.plan, wanted, &sources, cancel).await {
                Ok(detail) => {
                    let success = detail["success"] == true;
                    let why = "not every task's commits could be merged; detail says which";
                    let error = (!success).then(|| why.to_owned());
                    SwarmMerge { success, detail: Some(detail), error, ..blank }
                }
                Err(error) => {
                    self.unless_closing().await;
                    SwarmMerge { error: Some(error.to_text()), ..blank }
                }
            }
        };
        fault_point!("swarm.after_merge");
        self.tell("swarm.merged", json!({ "target": wanted.target, "success": merge.success }));
        self.handle.record(Record::Merged { merge: Box::new(merge) }).await
    }

    /// Asks for the merge with every machine up. What is down for a moment only, a machine or the
    /// way into it, is no reason to lose what the tasks made: as long as nothing landed for such a
    /// reason alone, it is asked for again.
    async fn ask_merge(
        &self,
        plan: &SwarmPlan,
        wanted: &MergePlan,
        sources: &[WorkspaceId],
        cancel: CancellationToken,
    ) -> Result<Value, ToolError> {
        let args = json!({
            "source_workspaces": sources, "target_workspace": wanted.target,
            "strategy": wanted.strategy,
        });
        let caller = OnBehalfOf { cancel, ..OnBehalfOf::own(plan.owner, PATIENCE) };
        let until = Instant::now() + REACHING;
        let sides = [wanted.target].into_iter().chain(sources.iter().copied());
        let sides: Vec<_> = sides.map(|side| Fork::of(self, plan.owner, side)).collect();
        loop {
            // A side that stays down is reported by the merge itself.
            let raising = OnBehalfOf { deadline: until, ..caller.clone() };
            for outcome in join_all(sides.iter().map(|side| side.raise(&raising))).await {
                if let Err(error) = outcome {
                    tracing::warn!(swarm = %self.id, %error, "a side of a merge is not up");
                }
            }
            let again = Instant::now() < until;
            let asked = self.shared.tools.call::<_, Value>(
                self.id,
                &caller,
                "workspace_merge",
                args.clone(),
            );
            match asked.await {
                Ok(detail) if !(again && only_unreached(&detail)) => return Ok(detail),
                Ok(detail) => {
                    if caller.wait_or(ToolError::cancelled(), true).await.is_err() {
                        return Ok(detail);
                    }
                }
                Err(error) => {
                    let passing =
                        error.is(codes::MERGE_IN_PROGRESS) || (again && unreached(&error.code));
                    caller.wait_or(error, passing).await?;
                }
            }
        }
    }
}

/// Codes of what says nothing of commits.
fn unreached(code: &str) -> bool {
    let codes = [
        codes::WORKSPACE_BUSY,
        codes::WORKSPACE_STATE,
        codes::GUEST_UNREACHABLE,
        codes::ACTOR_UNAVAILABLE,
    ];
    codes.iter().any(|one| one.name == code)
}

/// A merge of which nothing landed, and for no other reason.
fn only_unreached(detail: &Value) -> bool {
    let rows = detail["conflicts"].as_array().map_or(&[][..], Vec::as_slice);
    detail["success"] == false
        && !rows.is_empty()
        && rows.iter().all(|row| row["code"].as_str().is_some_and(unreached))
}
