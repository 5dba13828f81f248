//! Recovery of operations that an earlier daemon left: finished where they can be repeated, else ended.

use std::sync::Arc;

use hivekeep_kernel::{Progress, RepositoryId};
use hivekeep_runtime::log::Log;

use crate::{
    binding::{Binding, RepositoryOperation},
    clone::cloned,
    machine::name_of,
    operation::{RepositoryJob, run},
    refresh::refreshed_or_cloned,
    repositories::{Repositories, RepositoryResult},
    tools::{deleted, looked},
};

impl Repositories {
    /// Takes up what had begun, beside everything else of a start.
    pub(crate) fn recover(self: &Arc<Self>) {
        let begun =
            |log: &Log<Binding>| log.view(|binding| binding.is_some_and(|it| it.begun.is_some()));
        let cut: Vec<_> = {
            let logs = self.logs();
            let cut = logs.iter().filter(|(_, log)| begun(log));
            cut.map(|(id, log)| (*id, log.clone())).collect()
        };
        for (id, log) in cut {
            tracing::warn!(repository = %id, "an operation was cut short");
            let this = self.clone();
            tokio::spawn(async move {
                if let Err(error) = this.take_up(id, log).await {
                    tracing::error!(repository = %id, %error, "an operation that was cut short failed");
                }
            });
        }
    }

    /// Removes the workspace that an operation left, and does the operation again. A commit or a push
    /// is not made a second time: what was done of it is looked at.
    async fn take_up(self: Arc<Self>, id: RepositoryId, log: Log<Binding>) -> RepositoryResult<()> {
        let job = Arc::new(RepositoryJob::new(self.clone(), id, log, Progress::default(), None)?);
        self.steps().insert(id, "waiting for the workspaces");
        if let Err(error) = self.tools.remove(id, &job.caller, &name_of(id)).await {
            tracing::warn!(repository = %id, %error, "the workspace of an operation stays");
        }
        match job.binding.begun.map(|begun| begun.operation) {
            Some(RepositoryOperation::Clone) => run(job, cloned).await,
            Some(RepositoryOperation::Refresh { .. }) => {
                run(job, refreshed_or_cloned).await.map(drop)
            }
            Some(RepositoryOperation::Delete) => run(job, deleted).await.map(drop),
            Some(
                RepositoryOperation::Commit | RepositoryOperation::Push | RepositoryOperation::Diff,
            ) => run(job, looked).await,
            None => Ok(()),
        }
    }
}
