//! What the actors of this crate share; it outlives their restarts.

use std::{future::Future, sync::Arc, time::Duration};

use hivekeep_kernel::{
    Census, SessionId, ToolError, User,
    ports::{PlaceFiles, SessionQuotas, WorkspaceFiles},
};
use hivekeep_runtime::log::LogSet;
use hivekeep_store::{Events, Journal, NewEvent};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    Options,
    embed::Embedder,
    ingestion::FIRST_PAUSE,
    pdf::PdfReader,
    reading::FileLimits,
    state::{CollectionState, IngestionPlan, IngestionReport, Made},
    store::{PointStore, StoreFailure},
};

/// Time of a batch's embeddings.
pub(crate) const EMBED_LIMIT: Duration = Duration::from_secs(300);
/// Attempts at what may pass.
const ATTEMPTS: u32 = 5;

/// See the module.
pub(crate) struct IngestShared {
    pub(crate) options: Options,
    pub(crate) journal: Journal,
    pub(crate) events: Events,
    pub(crate) sessions: Arc<dyn SessionQuotas>,
    pub(crate) census: Census,
    pub(crate) closing: CancellationToken,
    pub(crate) places: Option<Arc<dyn PlaceFiles>>,
    /// Says whose the workspaces are that collections were given to.
    pub(crate) workspaces: Option<Arc<dyn WorkspaceFiles>>,
    pub(crate) pdfs: PdfReader,
    /// Permits of rounds that run.
    pub(crate) rounds: Semaphore,
    pub(crate) embedder: Embedder,
    pub(crate) store: Arc<dyn PointStore>,
    /// Logs of collections, which go on writing when their actors end.
    pub(crate) logs: LogSet<CollectionState>,
}

/// Whoever wants to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader {
    pub(crate) user: User,
    pub(crate) session: SessionId,
}

/// Error that may pass.
pub(crate) trait MayPass {
    /// True if the same may succeed later.
    fn may_pass(&self) -> bool;
}

impl MayPass for StoreFailure {
    fn may_pass(&self) -> bool {
        self.passing
    }
}

impl MayPass for ToolError {
    fn may_pass(&self) -> bool {
        self.retryable
    }
}

impl IngestShared {
    /// Does what may be done twice, again while its error may pass.
    pub(crate) async fn retried<T, E: MayPass, F>(&self, work: impl Fn() -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        let mut pause = FIRST_PAUSE;
        for _ in 1..ATTEMPTS {
            match work().await {
                Err(error) if error.may_pass() => tokio::time::sleep(pause).await,
                outcome => return outcome,
            }
            pause *= 2;
        }
        work().await
    }

    /// User of a call.
    pub(crate) fn user(&self, session: SessionId) -> Result<User, ToolError> {
        self.sessions.user(session).ok_or_else(|| ToolError::internal("the session is over"))
    }

    /// Whoever reads by a call.
    pub(crate) fn reader(&self, session: SessionId) -> Result<Reader, ToolError> {
        Ok(Reader { user: self.user(session)?, session })
    }

    /// Files of places.
    ///
    /// # Errors
    /// `internal`: this daemon has no places.
    pub(crate) fn places(&self) -> Result<Arc<dyn PlaceFiles>, ToolError> {
        self.places.clone().ok_or_else(|| ToolError::internal("this daemon has no places"))
    }

    /// Largest files.
    pub(crate) fn file_limits(&self) -> FileLimits {
        let Options { max_file_kb, max_pdf_kb, .. } = self.options;
        FileLimits { text_bytes: max_file_kb as u64 * 1024, pdf_bytes: max_pdf_kb as u64 * 1024 }
    }

    /// Publishes the end of an ingestion.
    pub(crate) fn tell(&self, made: &Made, plan: &IngestionPlan, report: &IngestionReport) {
        let data = json!({
            "session": plan.session, "collection": made.name, "place": plan.place, "path": plan.path, "files": report.files,
            "chunks": report.chunks, "embedded": report.embedded, "removed": report.removed,
            "failed": report.failed_total, "error": report.error.as_ref().map(|error| &error.code),
        });
        let kind = if report.error.is_none() { "ingestion.finished" } else { "ingestion.stopped" };
        let event = NewEvent { kind: kind.to_owned(), subject: made.id.to_string(), data };
        let _lost_is_counted = self.events.publish_later(event);
    }
}
