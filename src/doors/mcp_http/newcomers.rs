//! Sessions of the protocol whose client has said nothing since its `initialize`. They hold no
//! place of the daemon's sessions yet, and end soon.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hivekeep_kernel::PoolFull;
use rmcp::transport::streamable_http_server::session::{
    SessionId, SessionManager as _, SessionStore as _,
};

use super::{KeptClients, PLACES, resumable::ResumableSessions};

/// Sessions that are silent, and the manager of all sessions. Cheap to clone.
#[derive(Clone)]
pub(super) struct Newcomers {
    manager: ResumableSessions,
    kept: KeptClients,
    silent: Arc<Mutex<VecDeque<SessionId>>>,
    patience: Duration,
    /// Sessions of the protocol at once.
    most: usize,
}

impl Newcomers {
    pub(super) fn new(
        manager: ResumableSessions,
        kept: KeptClients,
        patience: Duration,
        most: usize,
    ) -> Self {
        Self { manager, kept, silent: Arc::default(), patience, most }
    }

    /// A session was made, one of `own` of its user's. When there are too many, the one silent for longest
    /// ends.
    ///
    /// # Errors
    /// When that is this one, or its user has half of what others leave.
    pub(super) async fn made(&self, session: SessionId, own: usize) -> Result<(), PoolFull> {
        let others = self.manager.count().await.saturating_sub(1);
        let room = PoolFull::check(PLACES, self.most, own.saturating_sub(1), others);
        self.lock().push_back(session.clone());
        let surplus = match room {
            Ok(()) => None,
            Err(PoolFull::Own { .. }) => self.mark_active(&session).then(|| session.clone()),
            Err(PoolFull::All { .. }) => self.lock().pop_front(),
        };
        if let Some(surplus) = &surplus {
            self.end(surplus).await;
        }
        if surplus.as_ref() == Some(&session) {
            return room;
        }
        let newcomers = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(newcomers.patience).await;
            if newcomers.mark_active(&session) {
                newcomers.end(&session).await;
            }
        });
        Ok(())
    }

    /// Notes a sign of life of the session's client. True when it was silent until now.
    pub(super) fn mark_active(&self, session: &str) -> bool {
        let mut silent = self.lock();
        let at = silent.iter().position(|one| &**one == session);
        at.is_some_and(|at| silent.remove(at).is_some())
    }

    async fn end(&self, session: &SessionId) {
        if let Err(error) = self.manager.close_session(session).await {
            tracing::debug!(%error, "a session had ended already");
        }
        if let Err(error) = self.kept.delete(session).await {
            tracing::warn!(%error, "a session that ended stays on the disk");
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<SessionId>> {
        // Nothing between lock and unlock panics; were it so, the queue still holds.
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
