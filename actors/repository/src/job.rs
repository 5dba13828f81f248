//! Operation under way: what it works on, for whom, until when, and the daemon's tools that it uses.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{Progress, RepositoryId, ToolError, VolumeId, WorkspaceId};
use hivekeep_runtime::{OnBehalfOf, log::Log};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    binding::Binding, bindings::RepositoryResult, remote::Remote, repositories::Repositories,
    tools::RemoteCredential,
};

/// Time for everything of an operation but what git does with the server.
const BESIDE: Duration = Duration::from_secs(900);

/// Operation under way.
pub(crate) struct RepositoryJob {
    pub(crate) service: Arc<Repositories>,
    pub(crate) id: RepositoryId,
    pub(crate) log: Log<Binding>,
    /// State of the binding when the operation began.
    pub(crate) binding: Binding,
    pub(crate) remote: Remote,
    pub(crate) caller: OnBehalfOf,
    pub(crate) progress: Progress,
    pub(crate) credential: Option<RemoteCredential>,
}

/// Result of an operation, and the commit that is checked out where it looked.
pub(crate) struct Finished<T> {
    pub(crate) value: T,
    pub(crate) commit: Option<String>,
}

/// A volume, as its tools answer it.
#[derive(Debug, Deserialize)]
pub(crate) struct ListedVolume {
    pub(crate) volume_id: VolumeId,
    pub(crate) label: String,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) workspaces: Vec<WorkspaceId>,
}

impl RepositoryJob {
    /// Begins to work for a session whatever becomes of the call that asked for it.
    ///
    /// # Errors
    /// When the log was forgotten, or its remote is one of a newer daemon.
    pub(crate) fn new(
        service: Arc<Repositories>,
        id: RepositoryId,
        log: Log<Binding>,
        progress: Progress,
        credential: Option<RemoteCredential>,
    ) -> RepositoryResult<Self> {
        let state = log.state().filter(|binding| binding.begun.is_some());
        let defect = || ToolError::internal("no operation of the repository has begun");
        let binding = state.ok_or_else(defect)?;
        let session = binding.begun.ok_or_else(defect)?.session;
        let remote = Remote::parse(&binding.terms.repo_url)?;
        let time = BESIDE + Duration::from_secs(service.options.timeout_secs);
        // A stand-in's workspaces are refused to clients: they have credentials and the remote's network.
        let caller = OnBehalfOf::own(session.stand_in(), time);
        Ok(Self { service, id, log, binding, remote, caller, progress, credential })
    }

    /// Tells what is being done.
    pub(crate) fn step(&self, what: &'static str) {
        self.service.steps().insert(self.id, what);
        self.progress.report(0.0, None, what);
    }

    /// Calls a tool of the daemon.
    ///
    /// # Errors
    /// As the tool.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        tool: &'static str,
        args: Value,
    ) -> RepositoryResult<T> {
        self.service.tools.call(self.id, &self.caller, tool, args).await
    }

    /// Volume of the repository.
    ///
    /// # Errors
    /// `internal` before one is made.
    pub(crate) fn volume(&self) -> RepositoryResult<VolumeId> {
        let volume = self.log.view(|binding| binding.and_then(|binding| binding.volume));
        volume.ok_or_else(|| ToolError::internal("the repository has no volume"))
    }

    /// Volumes of the user.
    ///
    /// # Errors
    /// As `aegis.volume.list`.
    pub(crate) async fn volumes(&self) -> RepositoryResult<Vec<ListedVolume>> {
        #[derive(Deserialize)]
        struct Listed {
            volumes: Vec<ListedVolume>,
        }
        let listed: Listed = self.call("aegis.volume.list", json!({})).await?;
        Ok(listed.volumes)
    }

    /// Workspaces that have the repository's volume.
    ///
    /// # Errors
    /// As `aegis.volume.list`.
    pub(crate) async fn users(&self) -> RepositoryResult<Vec<WorkspaceId>> {
        let volumes = self.volumes().await?;
        let volume = self.volume()?;
        let own = volumes.into_iter().find(|row| row.volume_id == volume);
        Ok(own.map(|row| row.workspaces).unwrap_or_default())
    }
}
