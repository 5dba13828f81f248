//! The merge of what the tasks committed.

use std::time::Duration;

use hivekeep_kernel::{ToolError, fault_point};
use serde_json::json;

use super::{
    records::Record,
    saga::{Run, Stuck},
};
use crate::{errands::wait_or, house::For, tools::swarm::SwarmMerge};

/// For the merge, and for another one into the same target that comes first.
const PATIENCE: Duration = Duration::from_secs(1800);

impl Run {
    /// Merges once. Where a daemon died in the middle, it is asked for again: commits that have
    /// arrived are there already.
    pub(super) async fn merge(&self) -> Result<(), Stuck> {
        self.unless_closing().await;
        let state = self.state();
        let Some(wish) = &state.plan.merge else { return Ok(()) };
        if state.merged.is_some() {
            return Ok(());
        }
        let repeated = state.merging;
        let blank = SwarmMerge {
            strategy: wish.strategy,
            target_workspace: wish.target,
            success: false,
            repeated,
            detail: None,
            error: None,
        };
        let success = state
            .tasks
            .iter()
            .filter(|task| task.end.as_ref().is_some_and(|end| end.success()))
            .filter_map(|task| task.worker);
        let sources: Vec<_> = success.collect();
        let merge = if self.stop.is_cancelled() && !repeated {
            SwarmMerge { error: Some("the swarm was cancelled".to_owned()), ..blank }
        } else if sources.is_empty() {
            SwarmMerge { error: Some("no task succeeded".to_owned()), ..blank }
        } else {
            fault_point!("swarm.before_merge");
            if !repeated {
                self.note(Record::Merging).await?;
            }
            let args = json!({
                "source_workspaces": sources, "target_workspace": wish.target,
                "strategy": wish.strategy,
            });
            match self.ask_merge(state.plan.owner, args).await {
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
        self.tell("swarm.merged", json!({ "target": wish.target, "success": merge.success }));
        self.note(Record::Merged { merge: Box::new(merge) }).await.map(drop)
    }

    async fn ask_merge(
        &self,
        owner: hivekeep_kernel::SessionId,
        args: serde_json::Value,
    ) -> Result<serde_json::Value, ToolError> {
        let whom = For { cancel: self.stop.child_token(), ..For::own(owner, PATIENCE) };
        loop {
            match self.house.insist(self.id, &whom, "workspace_merge", args.clone()).await {
                Ok(detail) => return Ok(detail),
                Err(error) => {
                    let passing = error.code == "merge_in_progress";
                    wait_or(&whom, error, passing).await?;
                }
            }
        }
    }
}
