//! What a swarm made is removed, now or later, or left to its session.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use hivekeep_kernel::{ToolError, WorkspaceId};
use hivekeep_store::Seq;

use super::{
    records::{self, Record, Story, TaskEnd},
    saga::{Run, Stuck},
};
use crate::{house::For, tools::swarm::SwarmWorkerLeft};

/// For removing all forks: a machine may be starting, or stopping, and others come first.
const PATIENCE: Duration = Duration::from_secs(120);
/// Before what could not be removed is tried again, and at most, doubling.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_secs(900);
/// Removals at a time.
const AT_ONCE: usize = 8;

impl Run {
    /// Removes the forks, recorded or not, and says in a record which are left.
    pub(super) async fn clean(&self) -> Result<Seq, Stuck> {
        let state = self.state();
        let mut left = Vec::new();
        if state.plan.cleanup {
            let forks = state.plan.tasks.iter().zip(&state.tasks).enumerate();
            let there = forks.filter(|(_, (_, task))| !task.gone);
            let forks = there.map(|(at, (job, task))| (at, job.workspace.clone(), task.worker));
            let outcomes = self.remove_all(state.plan.owner, forks.collect()).await;
            for (task, name, worker, outcome) in outcomes {
                match outcome {
                    Ok(()) => self.notice(task, |task| task.gone = true),
                    Err(error) => left.push(still_there(name, worker, &error)),
                }
            }
        } else {
            self.acknowledge().await;
        }
        self.note(Record::Cleaned { left }).await
    }

    async fn remove_all(
        &self,
        owner: hivekeep_kernel::SessionId,
        forks: Vec<(usize, String, Option<WorkspaceId>)>,
    ) -> Vec<(usize, String, Option<WorkspaceId>, Result<(), ToolError>)> {
        let removes = forks.into_iter().map(|(at, name, worker)| async move {
            let whom = For::own(owner, PATIENCE);
            let key = worker.map_or(name.clone(), |id| id.to_string());
            let outcome = self.house.remove(self.id, &whom, &key).await;
            (at, name, worker, outcome)
        });
        stream::iter(removes).buffer_unordered(AT_ONCE).collect().await
    }

    /// The results of forks that stay are taken out of their queues. What cannot be told so now
    /// costs a guest one of its thousand places.
    async fn acknowledge(&self) {
        let state = self.state();
        let ran = |end: &Arc<TaskEnd>| matches!(**end, TaskEnd::Ran(_));
        for task in state.tasks.iter().filter(|task| task.end.as_ref().is_some_and(ran)) {
            if let Some(worker) = task.worker {
                let told = self.house.tasks.acknowledge(worker, vec![self.id.to_string()]).await;
                if let Err(error) = told {
                    tracing::info!(%worker, %error, "a result was not acknowledged");
                }
            }
        }
    }

    /// Goes on removing what the end of the swarm had to leave, until nothing is left.
    pub(super) async fn linger(&self) -> Result<(), Stuck> {
        let mut pause = if self.resumed { Duration::ZERO } else { FIRST_PAUSE };
        loop {
            let Story::Over(kept) = self.view.borrow().clone() else { return Ok(()) };
            if kept.result.workers_left.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            let rows = kept.result.workers_left.iter().enumerate();
            let forks = rows.map(|(at, row)| (at, row.workspace_name.clone(), row.workspace_id));
            let outcomes = self.remove_all(kept.owner, forks.collect()).await;
            let mut now = (*kept).clone();
            now.result.workers_left.clear();
            for (_, name, worker, outcome) in outcomes {
                match outcome {
                    Ok(()) if worker.is_some() => {
                        now.result.summary.workers_destroyed += 1;
                        now.result.summary.workers_left -= 1;
                    }
                    Ok(()) => {}
                    Err(error) => {
                        tracing::warn!(swarm = %self.id, %name, %error, "a fork is still there");
                        now.result.workers_left.push(still_there(name, worker, &error));
                    }
                }
            }
            if now.result.workers_left.len() < kept.result.workers_left.len() {
                let (journal, stream) = (self.house.journal.clone(), records::stream(self.id));
                let replay = tokio::task::spawn_blocking(move || journal.replay(&stream)).await;
                let replay = replay.map_err(|error| error.to_string())?;
                let upto = replay.map_err(|error| error.to_string())?.last();
                let bytes = self.keep(upto, &now).await?;
                self.over(now, bytes);
            }
        }
    }
}

fn still_there(name: String, worker: Option<WorkspaceId>, error: &ToolError) -> SwarmWorkerLeft {
    SwarmWorkerLeft { workspace_name: name, workspace_id: worker, error: error.to_text() }
}
