//! Operations: an intent, its effect, and the record of its end. Each runs to its end, whether or not
//! anybody waits, and one at a time works on a repository.

use std::sync::Arc;

use chrono::Utc;
use futures::future::BoxFuture;
use hivekeep_kernel::{CallCx, Layer, SessionId, ToolError, fault_point};
use hivekeep_runtime::log::Decision;
use hivekeep_store::NewEvent;
use serde_json::json;

use crate::{
    binding::{Begun, Binding, OperationError, Record, RepositoryOperation},
    bindings::{RepositoryResult, find},
    codes,
    job::{Finished, RepositoryJob},
    repositories::Repositories,
    tools::RemoteCredential,
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
        let owner = self.owner(cx.session)?;
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
