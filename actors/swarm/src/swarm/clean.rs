//! The removal of what a swarm made: now, later, or not at all, and then it is left to its session.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use futures::{StreamExt, stream};
use hivekeep_kernel::{ToolError, WorkspaceId, fault_point};
use hivekeep_runtime::{
    OnBehalfOf,
    log::{Decision, LogError, Sourced},
};
use serde_json::json;

use super::{
    SwarmSaga, event,
    state::{Record, SwarmState, TaskEnd},
};
use crate::{
    codes,
    tools::{SwarmWorkerKept, SwarmWorkerLeft},
};

/// Time limit of removing all forks: a machine may be starting, or stopping, and others come first.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause before failed removals are tried again: the first, and the longest after doublings.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_secs(900);
/// Removals at a time.
const AT_ONCE: usize = 8;

impl SwarmSaga {
    /// Removes the forks, recorded or not, and says in a record which are left, and which are kept:
    /// work that was to be merged and is nowhere else is nobody's to remove unasked.
    pub(super) async fn clean(&self) -> Result<(), LogError> {
        self.release_room();
        let state = self.state();
        let removed = self.handle.view(|view| view.live.removed.clone());
        let mut cleaned = Cleaned::default();
        let all = || 0..state.tasks.len();
        let stay: Vec<_> = match (state.plan.cleanup, state.cancelled) {
            (false, _) => all().collect(),
            (true, false) => state.unmerged(),
            (true, true) => Vec::new(),
        };
        if state.plan.cleanup {
            let why = "its commits could not be merged; merge says why. Merge them with \
                       workspace_merge, or remove it with workspace_destroy";
            let forks = all().map(|at| (at, &state.plan.tasks[at].workspace, &state.tasks[at]));
            let (kept, goes): (Vec<_>, Vec<_>) = forks
                .filter(|(at, _, _)| !removed.contains(at))
                .partition(|(at, _, _)| stay.contains(at));
            let row = |name: &String, id| kept_row(name.clone(), id, why);
            cleaned.kept.extend(kept.into_iter().map(|(_, name, task)| row(name, task.worker)));
            let goes = goes.into_iter().map(|(at, name, task)| (at, name.clone(), task.worker));
            for (task, name, worker, outcome) in
                self.remove_all(state.plan.owner, goes.collect()).await
            {
                if outcome.is_ok() {
                    self.handle.update(|live| {
                        live.removed.insert(task);
                    });
                }
                cleaned.take(name, worker, outcome);
            }
        }
        self.acknowledge(&stay).await;
        self.finish(cleaned).await
    }

    /// Records the end, with its event.
    async fn finish(&self, Cleaned { left, kept }: Cleaned) -> Result<(), LogError> {
        fault_point!("swarm.before_end");
        let record = Record::Cleaned { left, kept, at: Some(Utc::now()) };
        let id = self.id;
        let end = |state: &SwarmState| {
            let decision = Decision::record(record.clone());
            let mut after = state.clone();
            Ok::<_, LogError>(match (after.apply(record), after) {
                (Ok(()), SwarmState::Finished(over)) => {
                    let summary = &over.result.summary;
                    let data = json!({
                        "state": over.result.state, "succeeded": summary.succeeded,
                        "failed": summary.failed,
                    });
                    decision.event(event(id, "swarm.ended", data))
                }
                _ => decision,
            })
        };
        self.handle.decide(end).await?;
        fault_point!("swarm.after_cleanup");
        Ok(())
    }

    async fn remove_all(
        &self,
        owner: hivekeep_kernel::SessionId,
        forks: Vec<(usize, String, Option<WorkspaceId>)>,
    ) -> Vec<(usize, String, Option<WorkspaceId>, Result<(), ToolError>)> {
        let removes = forks.into_iter().map(|(at, name, worker)| async move {
            let caller = OnBehalfOf::own(owner, PATIENCE);
            let key = worker.map_or(name.clone(), |id| id.to_string());
            let outcome = self.shared.tools.remove(self.id, &caller, &key).await;
            (at, name, worker, outcome)
        });
        stream::iter(removes).buffer_unordered(AT_ONCE).collect().await
    }

    /// The results of forks that stay are taken out of their queues. What cannot be told so now
    /// costs a guest one of its thousand places.
    async fn acknowledge(&self, stay: &[usize]) {
        let state = self.state();
        let ran = |end: &Arc<TaskEnd>| matches!(**end, TaskEnd::Ran(_));
        let stay = stay.iter().map(|at| &state.tasks[*at]);
        for task in stay.filter(|task| task.end.as_ref().is_some_and(ran)) {
            if let Some(worker) = task.worker {
                let told = self.shared.tasks.acknowledge(worker, vec![self.id.to_string()]).await;
                if let Err(error) = told {
                    tracing::info!(%worker, %error, "a result was not acknowledged");
                }
            }
        }
    }

    /// Goes on removing what the end of the swarm had to leave, until nothing is left.
    pub(super) async fn clean_left(&self) -> Result<(), LogError> {
        let mut pause = if self.resumed { Duration::ZERO } else { FIRST_PAUSE };
        loop {
            let SwarmState::Finished(over) = self.handle.state() else { return Ok(()) };
            let before = &over.result.workers_left;
            if before.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            let rows = before.iter().enumerate();
            let forks = rows.map(|(at, row)| (at, row.workspace_name.clone(), row.workspace_id));
            let outcomes = self.remove_all(over.owner, forks.collect()).await;
            let kept = over.result.workers_kept.clone();
            let mut cleaned = Cleaned { left: Vec::new(), kept };
            for (_, name, worker, outcome) in outcomes {
                if let Err(error) = &outcome {
                    tracing::warn!(swarm = %self.id, %name, %error, "a fork is still there");
                }
                cleaned.take(name, worker, outcome);
            }
            let Cleaned { left, kept } = cleaned;
            if left.len() < before.len() {
                self.handle.record(Record::Cleaned { left, kept, at: Some(Utc::now()) }).await?;
            }
        }
    }
}

/// The forks that removals leave behind.
#[derive(Default)]
struct Cleaned {
    left: Vec<SwarmWorkerLeft>,
    kept: Vec<SwarmWorkerKept>,
}

impl Cleaned {
    /// Notes the outcome of one removal. A fork that belongs to another session by now stays,
    /// whatever it holds.
    fn take(&mut self, name: String, worker: Option<WorkspaceId>, outcome: Result<(), ToolError>) {
        let Err(error) = outcome else { return };
        if !error.is(codes::NOT_OWNER) {
            let error = error.to_text();
            self.left.push(SwarmWorkerLeft { workspace_name: name, workspace_id: worker, error });
        } else if worker.is_some() {
            self.kept.push(kept_row(name, worker, "another session has taken it over"));
        }
    }
}

fn kept_row(name: String, worker: Option<WorkspaceId>, why: &str) -> SwarmWorkerKept {
    SwarmWorkerKept { workspace_name: name, workspace_id: worker, reason: why.to_owned() }
}
