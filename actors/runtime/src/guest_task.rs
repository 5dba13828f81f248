//! Task of a workspace, from its assignment to its acknowledgement, for work that outlives the daemon: the guest runs
//! it once for its id, and keeps its result until that is durable here.

use std::{collections::BTreeMap, time::Duration};

use hivekeep_kernel::{ToolError, WorkspaceId};
use hivekeep_ports::{TaskAssignment, TaskResult, Tasks};

/// Results that are read at a time.
const PAGE: u32 = 20;
/// Time for the end of a task that is stopped, and for an acknowledgement.
const STOPPING: Duration = Duration::from_secs(20);

/// See the module.
#[derive(Clone, Copy)]
pub struct GuestTask<'t> {
    /// Queues of all guests.
    pub tasks: &'t dyn Tasks,
    /// Workspace whose guest has it.
    pub workspace: WorkspaceId,
    /// Id of the task.
    pub id: &'t str,
    /// Id of the message that assigns it.
    pub message: &'t str,
}

impl GuestTask<'_> {
    /// Assigns it; its result where it is over already.
    ///
    /// # Errors
    /// Those of [`Tasks::put`].
    pub async fn put(&self, assignment: TaskAssignment) -> Result<Option<TaskResult>, ToolError> {
        Ok(self.tasks.put(self.workspace, assignment).await?.result)
    }

    /// Looks for its result, and waits for news where there is none: some seconds at most.
    ///
    /// # Errors
    /// Those of [`Tasks::results`].
    pub async fn look(&self) -> Result<Option<TaskResult>, ToolError> {
        let mut hints = self.tasks.hints(self.workspace).await?;
        let result = self.result().await?;
        if result.is_none() {
            hints.next().await;
        }
        Ok(result)
    }

    /// Its result, if it has one.
    ///
    /// # Errors
    /// Those of [`Tasks::results`].
    pub async fn result(&self) -> Result<Option<TaskResult>, ToolError> {
        let sent = BTreeMap::from([(self.id.to_owned(), self.message.to_owned())]);
        let mut after = 0;
        loop {
            let page = self.tasks.results(self.workspace, after, PAGE, &sent).await?;
            if let Some(result) = page.results.into_iter().find(|it| it.task_id == self.id) {
                return Ok(Some(result));
            }
            if !page.more || page.next_after <= after {
                return Ok(None);
            }
            after = page.next_after;
        }
    }

    /// Ends it, as far as its guest can be asked.
    pub async fn stop(&self) {
        let stopping = self.tasks.cancel(self.workspace, self.id.to_owned());
        match tokio::time::timeout(STOPPING, stopping).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(task = self.id, %error, "it is not stopped"),
            Err(_) => tracing::warn!(task = self.id, "it is not stopped in time"),
        }
    }

    /// Lets its guest forget the result, which is durable here. A machine that is away keeps it until it ends.
    pub async fn forget(&self) {
        let forgetting = self.tasks.acknowledge(self.workspace, vec![self.id.to_owned()]);
        let _kept = tokio::time::timeout(STOPPING, forgetting).await;
    }
}
