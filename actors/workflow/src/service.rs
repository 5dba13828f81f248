//! Service of the tools of DAGs and of workflows.

use std::sync::Arc;

use hivekeep_kernel::{CallId, RunId, ToolError, User};
use hivekeep_manifest_registry::ManifestRegistry;
use hivekeep_ports::{ChatEvents, RunFeeds, SessionQuotas, TaskOutputs, Tools};
use hivekeep_runtime::{
    Child, Daemon, ToolClient, schedule::Schedules, tool_catalogue::ToolCatalogue,
};

use crate::{
    DagRuns, Options, Workflows,
    folders::DagFolders,
    schedule::ScheduledDag,
    webhooks::WebhookKeys,
    workflows::{self, DeployedWorkflow},
};

/// Workflows and runs of all users, and what their tools need.
pub(crate) struct WorkflowService {
    pub(crate) runs: DagRuns,
    pub(crate) workflows: Arc<ManifestRegistry<DeployedWorkflow>>,
    pub(crate) folders: Arc<DagFolders>,
    pub(crate) schedules: Schedules<ScheduledDag>,
    pub(crate) webhooks: Arc<WebhookKeys>,
    pub(crate) sessions: Arc<dyn SessionQuotas>,
    pub(crate) catalogue: Arc<dyn ToolCatalogue>,
    pub(crate) calls: Arc<dyn Tools>,
    pub(crate) outputs: Arc<dyn TaskOutputs>,
    pub(crate) tools: ToolClient<RunId>,
    /// Tools that are asked in the course of a call.
    pub(crate) asked: ToolClient<CallId>,
    pub(crate) daemon: Daemon,
}

impl WorkflowService {
    /// Opens what is kept; the children go on with the runs and the schedules, and ask people for runs.
    pub(crate) async fn open(
        daemon: &Daemon,
        options: &Options,
    ) -> Result<(Self, [Child; 3]), ToolError> {
        let mut workflows = ManifestRegistry::open(daemon, options.workflows()).await?;
        workflows::ship(&mut workflows)?;
        let workflows = Arc::new(workflows);
        daemon.ports.offer::<dyn Workflows>(workflows.clone());
        let (runs, [child, desk]) = DagRuns::open(daemon, options).await?;
        let folders = Arc::new(DagFolders::new(daemon, &options.folders, runs.clone())?);
        let (schedules, times) = Schedules::open(daemon, "dag-schedules", folders.clone()).await?;
        let service = Self {
            runs,
            workflows,
            folders,
            schedules,
            webhooks: Arc::default(),
            sessions: daemon.sessions.clone(),
            catalogue: daemon.ports.need::<dyn ToolCatalogue>()?,
            calls: daemon.tools.clone(),
            outputs: daemon.ports.need::<dyn TaskOutputs>()?,
            tools: ToolClient::new(daemon.tools.clone()),
            asked: ToolClient::new(daemon.tools.clone()),
            daemon: daemon.clone(),
        };
        Ok((service, [child, desk, times]))
    }
}

impl RunFeeds for WorkflowService {
    fn events(&self, user: User, run: &str, after: u64) -> Option<Box<dyn ChatEvents>> {
        self.runs.0.feed(user, run, after)
    }
}
