//! Owners of the protocol's sessions: nobody uses or ends one with another's credential. One whose client has said
//! nothing since its `initialize` holds no place of the daemon's sessions yet, and ends soon.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use hivekeep_kernel::{PoolFull, User, lock};
use rmcp::transport::streamable_http_server::session::{
    SessionId, SessionManager as _, SessionStore as _,
};

use super::{KeptClients, PLACES, resumable::ResumableSessions};

/// The user whose request made each session, also before the daemon was restarted.
pub(super) struct SessionOwners {
    manager: ResumableSessions,
    kept: KeptClients,
    users: Mutex<HashMap<String, User>>,
    /// Entries at which those of sessions that are gone are removed.
    most: usize,
}

impl SessionOwners {
    pub(super) fn new(manager: ResumableSessions, kept: KeptClients, most: usize) -> Self {
        Self { manager, kept, users: Mutex::default(), most: 2 * most }
    }

    /// True for the session's owner: a session of which none is known is nobody's.
    pub(super) async fn may_use(&self, session: &str, user: User) -> bool {
        let noted = self.lock().get(session).copied();
        if let Some(owner) = noted {
            return owner == user;
        }
        let owns = self.kept.user(session).await == Some(user);
        if owns {
            self.made(session, user).await;
        }
        owns
    }

    /// Notes whose a session is.
    pub(super) async fn made(&self, session: &str, user: User) {
        let full = {
            let mut users = self.lock();
            users.insert(session.to_owned(), user);
            users.len() > self.most
        };
        if full {
            let live = self.manager.names().await;
            self.lock().retain(|session, _| live.contains(session.as_str()));
        }
    }

    /// Live sessions of a user.
    pub(super) async fn live_of(&self, user: User) -> usize {
        let live = self.manager.names().await;
        let users = self.lock();
        live.iter().filter(|session| users.get(&***session) == Some(&user)).count()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, User>> {
        // Nothing between lock and unlock panics; were it so, the map still holds.
        lock(&self.users)
    }
}

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
        lock(&self.silent)
    }
}
