//! Client of a guest's task queue: put, read, acknowledge.
//!
//! [`TaskQueueClient`] talks to one guest over a link; `check` validates its answers, pure.

mod check;

use std::collections::BTreeMap;
use std::time::Duration;

use hivekeep_kernel::ToolError;
use hivekeep_ports::{TaskBoard, TaskOutput, TaskPage, TaskState, TaskTaken, TaskWindow};
use hivekeep_protocol as wire;
use hivekeep_protocol::{TaskAck, TaskCancel, TaskList, TaskPut, TaskRead, TaskResults, limits};

pub use check::is_id;

use crate::link_error;
use crate::{CallTerms, Link};

/// Maximum time for an answer of the guest: some write to its disk, behind others.
const PATIENCE: Duration = Duration::from_secs(30);

/// Task queue client of one guest. A dropped future gives a call up; what was put or acknowledged
/// by then may have taken effect, and both may be repeated.
#[derive(Debug, Clone)]
pub struct TaskQueueClient {
    link: Link,
    /// Folder of the guest's tasks.
    folder: String,
}

impl TaskQueueClient {
    /// Makes a client of a guest as it is in a workspace.
    pub fn over(link: Link) -> Self {
        Self { link, folder: limits::TASKS_DIR.to_owned() }
    }

    /// Makes a client of a guest that keeps its tasks in another folder.
    pub fn with_folder(link: Link, folder: impl Into<String>) -> Self {
        Self { link, folder: folder.into() }
    }

    fn wait() -> CallTerms {
        CallTerms::at_most(PATIENCE)
    }

    /// Puts a task.
    ///
    /// # Errors
    /// See [`hivekeep_ports::Tasks::put`].
    pub async fn put(&self, task: TaskPut) -> Result<TaskTaken, ToolError> {
        let id = task.task_id.clone();
        let taken = self.link.ask(task, Self::wait()).await.map_err(link_error)?;
        check::taken(&id, taken, &self.folder)
    }

    /// Reads results.
    ///
    /// # Errors
    /// See [`hivekeep_ports::Tasks::results`].
    pub async fn results(
        &self,
        after: u64,
        limit: u32,
        sent: &BTreeMap<String, String>,
    ) -> Result<TaskPage, ToolError> {
        let asked = question(after, limit);
        let page = self.link.ask(asked.clone(), Self::wait()).await.map_err(link_error)?;
        check::page(&asked, page, sent, &self.folder)
    }

    /// Acknowledges results, any number of them.
    ///
    /// # Errors
    /// See [`hivekeep_ports::Tasks::acknowledge`]. Some may be acknowledged then.
    pub async fn acknowledge(&self, task_ids: Vec<String>) -> Result<u32, ToolError> {
        let mut acknowledged = 0_u32;
        for some in task_ids.chunks(limits::MAX_TASKS) {
            let ack = TaskAck { task_ids: some.to_vec() };
            let acked = self.link.ask(ack, Self::wait()).await.map_err(link_error)?;
            let most = u32::try_from(some.len()).unwrap_or(u32::MAX);
            acknowledged = acknowledged.saturating_add(acked.acknowledged.min(most));
        }
        Ok(acknowledged)
    }

    /// Ends a task.
    ///
    /// # Errors
    /// See [`hivekeep_ports::Tasks::cancel`].
    pub async fn cancel(&self, task_id: String) -> Result<TaskState, ToolError> {
        let asked = self.link.ask_reserved(TaskCancel { task_id }, Self::wait()).await;
        Ok(check::state(asked.map_err(link_error)?.state))
    }

    /// Reads a part of a task's output.
    ///
    /// # Errors
    /// See [`hivekeep_ports::TaskOutputs::output`].
    pub async fn output(&self, window: TaskWindow) -> Result<TaskOutput, ToolError> {
        let TaskWindow { task_id, stdout_from, stderr_from, max_bytes } = window;
        let asked = TaskRead { task_id, stdout_from, stderr_from, max_bytes };
        let reading = self.link.ask(asked.clone(), Self::wait()).await.map_err(link_error)?;
        check::reading(&asked, reading)
    }

    /// Lists the tasks without a result.
    ///
    /// # Errors
    /// See [`hivekeep_ports::Tasks::board`].
    pub async fn board(&self) -> Result<TaskBoard, ToolError> {
        let tasks = self.link.ask(TaskList, Self::wait()).await.map_err(link_error)?;
        check::board(tasks)
    }
}

fn question(after: u64, limit: u32) -> TaskResults {
    let most = u32::try_from(limits::MAX_TASK_RESULTS).unwrap_or(u32::MAX);
    TaskResults { after, limit: limit.clamp(1, most) }
}

/// Validates results that the guest pushed.
///
/// # Errors
/// See [`TaskQueueClient::results`].
pub fn pushed_results(
    after: u64,
    limit: u32,
    page: wire::TaskResultsReply,
    sent: &BTreeMap<String, String>,
) -> Result<TaskPage, ToolError> {
    let page = check::page(&question(after, limit), page, sent, limits::TASKS_DIR)?;
    Ok(TaskPage { told: true, ..page })
}

#[cfg(test)]
mod tests;
