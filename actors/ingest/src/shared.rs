//! State shared by the actors of this crate; it outlives their restarts.

use std::{future::Future, path::PathBuf, sync::Arc, time::Duration};

use hivekeep_kernel::{Census, PoolPlace, Room, SessionId, SharedPool, ToolError, User};
use hivekeep_ports::{KnownUsers, PlaceFiles, SessionQuotas, WorkspaceFiles};
use hivekeep_runtime::{Ports, log::LogSet};
use hivekeep_store::{Events, Journal, NewEvent};
use serde_json::json;
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
/// Attempts at an operation whose error may pass.
const ATTEMPTS: u32 = 5;

/// State shared by the actors of this crate.
pub(crate) struct IngestShared {
    pub(crate) options: Options,
    pub(crate) journal: Journal,
    pub(crate) events: Events,
    pub(crate) sessions: Arc<dyn SessionQuotas>,
    pub(crate) census: Census,
    pub(crate) closing: CancellationToken,
    pub(crate) places: Option<Arc<dyn PlaceFiles>>,
    /// Owners of the workspaces that collections are shared with.
    pub(crate) workspaces: Option<Arc<dyn WorkspaceFiles>>,
    pub(crate) pdfs: PdfReader,
    /// Pool of the rounds that run.
    pub(crate) rounds: SharedPool,
    /// Check of the disk that collections are on, where that is the host's.
    pub(crate) disk: Option<(Room, PathBuf)>,
    /// Ports of the daemon, searched when needed: [`KnownUsers`] is offered last.
    pub(crate) ports: Ports,
    pub(crate) embedder: Embedder,
    pub(crate) store: Arc<dyn PointStore>,
    /// Logs of collections, which go on writing when their actors end.
    pub(crate) logs: LogSet<CollectionState>,
}

/// Session that reads collections, with its user.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader {
    pub(crate) user: User,
    pub(crate) session: SessionId,
}

/// Error that may pass.
pub(crate) trait MayPass {
    /// True if the same operation may succeed later.
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
    /// Runs an idempotent operation, again while its error may pass.
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

    /// Takes a place in the pool for a user's round, as soon as there is one.
    pub(crate) async fn round(&self, user: User) -> PoolPlace {
        loop {
            match self.rounds.take(user) {
                Ok(place) => return place,
                Err(_) => tokio::time::sleep(FIRST_PAUSE).await,
            }
        }
    }

    /// Whether a user still exists.
    pub(crate) fn knows(&self, user: User) -> bool {
        self.ports.find::<dyn KnownUsers>().is_none_or(|users| users.knows(user))
    }

    /// Refuses to write more on a disk that is nearly full.
    ///
    /// # Errors
    /// `host_disk_full`.
    pub(crate) fn admit(&self) -> Result<(), ToolError> {
        self.disk.as_ref().map_or(Ok(()), |(room, folder)| room.admit(folder))
    }

    /// User of a call.
    pub(crate) fn user(&self, session: SessionId) -> Result<User, ToolError> {
        self.sessions.caller(session)
    }

    /// Reader of a call.
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
