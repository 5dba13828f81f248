//! Operations: an intent, its effect, and the record of its end. Each runs to its end, whether or not
//! anybody waits, and one at a time works on a repository. A job is one under way: what it works on, for whom,
//! until when, and the daemon's tools that it uses.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use hivekeep_kernel::{
    CallCx, Layer, Progress, RepositoryId, SessionId, ToolError, VolumeId, WorkspaceId, fault_point,
};
use hivekeep_runtime::{
    OnBehalfOf,
    log::{Decision, Log},
};
use hivekeep_store::NewEvent;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    binding::{Begun, Binding, OperationError, Record, RepositoryOperation},
    codes,
    remote::{Remote, RemoteCredential},
    repositories::{Repositories, RepositoryResult, find},
};

impl Repositories {
    /// Does an operation on a user's repository, which is not being worked on, and waits for its end.
    ///
    /// # Errors
    /// `repository_not_found`, `repository_busy`, `repository_not_ready`; those of the work.
    pub(crate) async fn operate<T: Send + 'static>(
        self: &Arc<Self>,
        cx: &CallCx,
        asked: &str,
        operation: RepositoryOperation,
        credential: Option<RemoteCredential>,
        work: impl FnOnce(Arc<RepositoryJob>) -> BoxFuture<'static, RepositoryResult<Finished<T>>>
        + Send
        + 'static,
    ) -> RepositoryResult<T> {
        let owner = self.sessions.caller(cx.session)?;
        let (id, log, written) = {
            let (id, log) = find(&self.logs(), owner, asked)?;
            let written = log.decide(|binding| begin(binding, operation, cx.session))?;
            (id, log, written)
        };
        written.await?;
        // The work is that of other tools; this call only waits.
        cx.slot.give_back();
        let job = RepositoryJob::new(self.clone(), id, log, cx.progress.clone(), credential)?;
        let ended = tokio::spawn(run(Arc::new(job), work));
        ended.await.map_err(|panic| ToolError::internal(format!("a repository: {panic}")))?
    }
}

/// Judges whether an operation may begin. A refresh of what was never cloned clones it.
fn begin(
    binding: Option<&Binding>,
    operation: RepositoryOperation,
    session: SessionId,
) -> RepositoryResult<Decision<Record>> {
    let binding = binding.ok_or_else(|| ToolError::internal("a repository without records"))?;
    let label = &binding.terms.label;
    if binding.begun.is_some() {
        let message = format!("the repository `{label}` is {}", doing(binding));
        return Err(ToolError::new(Layer::Actor, codes::REPOSITORY_BUSY, message)
            .next("aegis.git.status tells how it goes; repeat the call when that has ended")
            .retryable());
    }
    let operation = match operation {
        RepositoryOperation::Refresh { .. } if binding.cloned_at.is_none() => {
            RepositoryOperation::Clone
        }
        RepositoryOperation::Commit | RepositoryOperation::Push | RepositoryOperation::Diff
            if binding.cloned_at.is_none() =>
        {
            let message = format!("the repository `{label}` was never cloned whole");
            return Err(ToolError::new(Layer::Actor, codes::REPOSITORY_NOT_READY, message)
                .next("aegis.git.status says why; aegis.git.refresh clones again"));
        }
        other => other,
    };
    Ok(Decision::record(Record::Began { begun: Begun { operation, session }, at: Utc::now() }))
}

fn doing(binding: &Binding) -> &'static str {
    match binding.begun.map(|begun| begun.operation) {
        Some(RepositoryOperation::Commit) => "being committed",
        Some(RepositoryOperation::Push) => "being pushed",
        Some(RepositoryOperation::Diff) => "being compared",
        _ => binding.status(),
    }
}

/// Does the work of an operation that has begun, and records its end.
///
/// # Errors
/// Those of the work; those of the journal.
pub(crate) async fn run<T: Send + 'static>(
    job: Arc<RepositoryJob>,
    work: impl FnOnce(Arc<RepositoryJob>) -> BoxFuture<'static, RepositoryResult<Finished<T>>> + Send,
) -> RepositoryResult<T> {
    let _live = job.service.sessions.hold(job.caller.session);
    // A panic of the work is its error, and ends it.
    let done = tokio::spawn(work(job.clone())).await;
    let done = done.unwrap_or_else(|panic| Err(ToolError::internal(format!("{panic}"))));
    fault_point!("repository.before_ended");
    job.service.steps().remove(&job.id);
    // An operation that an ordered stop cuts short is taken up by the next daemon.
    let cut_short = done.is_err() && job.service.closing.is_cancelled();
    if job.log.ended().is_none() && !cut_short {
        let commit = done.as_ref().ok().and_then(|done| done.commit.clone());
        ended(&job, commit, done.as_ref().err()).await?;
    }
    done.map(|done| done.value)
}

/// Records the end of an operation; the end of a clone or refresh is published as an event.
///
/// # Errors
/// Those of the journal.
pub(crate) async fn ended(
    job: &RepositoryJob,
    commit: Option<String>,
    error: Option<&ToolError>,
) -> RepositoryResult<()> {
    let kept = error
        .map(|error| OperationError { code: error.code.to_string(), message: error.to_text() });
    let event = job.binding.begun.and_then(|begun| match (begun.operation, &kept) {
        (RepositoryOperation::Clone, None) => Some("repository.cloned"),
        (RepositoryOperation::Refresh { .. }, None) => Some("repository.refreshed"),
        (RepositoryOperation::Clone | RepositoryOperation::Refresh { .. }, Some(_)) => {
            Some("repository.failed")
        }
        _ => None,
    });
    let mut decision = Decision::record(Record::Ended { at: Utc::now(), commit, error: kept });
    if let Some(kind) = event {
        let (kind, subject) = (kind.to_owned(), job.id.to_string());
        let data = json!({ "label": job.binding.terms.label });
        decision = decision.event(NewEvent { kind, subject, data });
    }
    job.log.decide(|_| Ok::<_, ToolError>(decision))?.await?;
    Ok(())
}

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
