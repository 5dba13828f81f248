use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use hivekeep_kernel::{Address, Layer, ToolError, WorkspaceId};
use hivekeep_link::tasks::{self, TaskQueueClient};
use hivekeep_ports::{
    TaskAssignment, TaskBoard, TaskHints, TaskOutput, TaskOutputs, TaskPage, TaskState, TaskTaken,
    TaskWindow, Tasks,
};
use hivekeep_protocol::TaskPut;
use tokio::sync::oneshot;

use crate::{
    codes,
    link_state::usable,
    messages::{GuestAccess, Msg, TaskMsg},
    phase::Phase,
    shared::Shared,
};

/// A workspace's actor answers at once, unless it is being started anew.
const ACTOR_PATIENCE: Duration = Duration::from_secs(10);

/// Reaches the guest of every workspace. Cheap to clone.
#[derive(Clone)]
pub struct TasksHandle(Arc<Shared>);

impl TasksHandle {
    /// For the workspaces of this daemon.
    pub fn new(workspaces: Arc<Shared>) -> Self {
        Self(workspaces)
    }

    fn address(&self, id: WorkspaceId) -> Result<Address<Msg>, ToolError> {
        let card = self.0.directory.any(id).filter(|card| card.pool.is_none());
        card.map(|card| card.address).ok_or_else(|| {
            ToolError::not_found(
                Layer::Resolve,
                codes::WORKSPACE_NOT_FOUND,
                "workspace",
                &id.to_string(),
            )
            .next("workspace_list shows the workspaces there are")
        })
    }

    /// Waits for the link, while one is being made.
    async fn access(
        &self,
        id: WorkspaceId,
        ask: impl FnOnce(oneshot::Sender<Result<GuestAccess, ToolError>>) -> TaskMsg,
    ) -> Result<(TaskQueueClient, Vec<(String, String)>), ToolError> {
        let ask = |reply| ask(reply).into();
        let sleeps = self.0.directory.any(id).is_some_and(|card| card.phase == Phase::Parked);
        let boot = Duration::from_secs(self.0.options.boot_timeout_secs);
        let patience = if sleeps { ACTOR_PATIENCE + boot } else { ACTOR_PATIENCE };
        let access = self.address(id)?.ask(patience, ask).await?;
        let GuestAccess { mut link_state, env } = access?;
        let patience = Duration::from_secs(self.0.options.link_wait_secs);
        Ok((TaskQueueClient::over(usable(&mut link_state, patience).await?), env))
    }

    async fn delivery(&self, id: WorkspaceId) -> Result<TaskQueueClient, ToolError> {
        Ok(self.access(id, |reply| TaskMsg::Access { env: BTreeMap::new(), reply }).await?.0)
    }
}

#[async_trait]
impl Tasks for TasksHandle {
    async fn put(&self, id: WorkspaceId, task: TaskAssignment) -> Result<TaskTaken, ToolError> {
        let TaskAssignment { message_id, task_id, command, workdir, env, timeout_secs } = task;
        let (delivery, env) = self.access(id, |reply| TaskMsg::Access { env, reply }).await?;
        let put = TaskPut { message_id, task_id, command, workdir, env, timeout_secs };
        delivery.put(put).await
    }

    async fn results(
        &self,
        id: WorkspaceId,
        after: u64,
        limit: u32,
        sent: &BTreeMap<String, String>,
    ) -> Result<TaskPage, ToolError> {
        let ask = |reply| TaskMsg::Cached { after, limit, reply }.into();
        match self.address(id)?.ask(ACTOR_PATIENCE, ask).await? {
            Some(page) => tasks::pushed_results(after, limit, page, sent),
            None => self.delivery(id).await?.results(after, limit, sent).await,
        }
    }

    async fn acknowledge(&self, id: WorkspaceId, task_ids: Vec<String>) -> Result<u32, ToolError> {
        let ids = task_ids.clone();
        let ask = |reply| TaskMsg::Acknowledged { task_ids: ids, reply };
        self.access(id, ask).await?.0.acknowledge(task_ids).await
    }

    async fn cancel(&self, id: WorkspaceId, task_id: String) -> Result<TaskState, ToolError> {
        self.delivery(id).await?.cancel(task_id).await
    }

    async fn board(&self, id: WorkspaceId) -> Result<TaskBoard, ToolError> {
        self.delivery(id).await?.board().await
    }

    async fn hints(&self, id: WorkspaceId) -> Result<TaskHints, ToolError> {
        let ask = |reply| TaskMsg::Hints(reply).into();
        Ok(self.address(id)?.ask(ACTOR_PATIENCE, ask).await?)
    }
}

#[async_trait]
impl TaskOutputs for TasksHandle {
    async fn output(&self, id: WorkspaceId, window: TaskWindow) -> Result<TaskOutput, ToolError> {
        self.delivery(id).await?.output(window).await
    }
}
