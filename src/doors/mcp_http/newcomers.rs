//! Sessions of the protocol whose client has said nothing since its `initialize`. They hold no
//! place of the daemon's sessions yet, and end soon.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rmcp::transport::streamable_http_server::session::{
    SessionId, SessionManager, SessionStore as _, local::LocalSessionManager,
};

use super::KeptClients;

/// Sessions that are silent, and the manager of all sessions. Cheap to clone.
#[derive(Clone)]
pub(super) struct Newcomers {
    manager: Arc<LocalSessionManager>,
    kept: KeptClients,
    silent: Arc<Mutex<VecDeque<SessionId>>>,
    patience: Duration,
    /// Sessions of the protocol at once.
    most: usize,
}

impl Newcomers {
    pub(super) fn new(
        manager: Arc<LocalSessionManager>,
        kept: KeptClients,
        patience: Duration,
        most: usize,
    ) -> Self {
        Self { manager, kept, silent: Arc::default(), patience, most }
    }

    /// A session was made. When there are too many, the one silent for longest ends; false when
    /// that is this one.
    pub(super) async fn made(&self, session: SessionId) -> bool {
        self.lock().push_back(session.clone());
        let full = self.manager.sessions.read().await.len() > self.most;
        let surplus = if full { self.lock().pop_front() } else { None };
        if let Some(oldest) = &surplus {
            self.end(oldest).await;
        }
        let stays = surplus.as_ref() != Some(&session);
        if stays {
            let newcomers = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(newcomers.patience).await;
                if newcomers.mark_active(&session) {
                    newcomers.end(&session).await;
                }
            });
        }
        stays
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
