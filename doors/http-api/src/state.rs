//! State of the door, shared by its handlers, and the sessions that it holds.
//!
//! Sessions over HTTP have no connection: one counts as attached for some time after the last request that named it.
//! Then it is left, and ends by the grace time of sessions.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::FutureExt as _;
use hivekeep_door_server::{
    DaemonServices,
    http::{body::BodyGate, caller::LastingSessions, hosts::AllowedHosts},
};
use hivekeep_kernel::{SessionId, SharedPool, ToolError, lock};
use hivekeep_ports::ToolSearch;
use hivekeep_registry::{Attachment, SessionsHandle};
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::sync::CancellationToken;

use super::idempotency::IdempotencyKeys;

/// State of the handlers.
pub(super) struct Api {
    pub(super) core: Arc<DaemonServices>,
    pub(super) hosts: AllowedHosts,
    pub(super) bodies: BodyGate,
    pub(super) webhook_bodies: BodyGate,
    /// Requests at a time, streams of events not counted.
    pub(super) requests: SharedPool,
    /// Streams of events at a time.
    pub(super) streams: SharedPool,
    /// Sessions of callers that name none.
    pub(super) lasting: LastingSessions,
    /// Sessions that callers have named.
    pub(super) held: HeldSessions,
    pub(super) keys: IdempotencyKeys,
    /// Readers of the audit log at a time.
    pub(super) audit_readers: Arc<Semaphore>,
    pub(super) search: Option<Arc<dyn ToolSearch>>,
    /// Ends the streams when the door closes.
    pub(super) end: CancellationToken,
}

/// Interval between two looks for sessions that were left, at most.
const SWEEP: Duration = Duration::from_secs(15);

/// The attachments. Cheap to clone.
#[derive(Clone)]
pub(super) struct HeldSessions {
    sessions: SessionsHandle,
    idle: Duration,
    /// No more than there are sessions.
    held: Arc<Mutex<HashMap<SessionId, (Attachment, Instant)>>>,
}

impl HeldSessions {
    pub(super) fn new(sessions: SessionsHandle, idle: Duration) -> Self {
        Self { sessions, idle, held: Arc::default() }
    }

    /// Holds a session that was just opened.
    pub(super) fn keep(&self, attachment: Attachment) {
        self.lock().insert(attachment.session, (attachment, Instant::now()));
    }

    /// Notes a request that names a session, and attaches to it if it was left.
    ///
    /// # Errors
    /// `session_unknown`, `session_ended`, `actor_unavailable`.
    pub(super) async fn touch(&self, session: SessionId) -> Result<(), ToolError> {
        if let Some((attachment, last)) = self.lock().get_mut(&session)
            && attachment.over().now_or_never().is_none()
        {
            *last = Instant::now();
            return Ok(());
        }
        let attachment = self.sessions.attach(session).await?;
        self.keep(attachment);
        Ok(())
    }

    /// Lets go of those that nobody has named for a while, until the door closes.
    pub(super) fn sweep_until(&self, end: CancellationToken) {
        let held = self.clone();
        tokio::spawn(async move {
            let every = (held.idle / 4).clamp(Duration::from_millis(100), SWEEP);
            while end.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
                let idle = held.idle;
                held.lock().retain(|_, (attachment, last)| {
                    last.elapsed() < idle && attachment.over().now_or_never().is_none()
                });
            }
            held.lock().clear();
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, (Attachment, Instant)>> {
        // Nothing between lock and unlock panics; were it so, the map still holds.
        lock(&self.held)
    }
}
