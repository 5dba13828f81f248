//! Owners of the protocol's sessions: nobody uses or ends one with another's credential.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hivekeep_kernel::User;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;

/// The user whose request made each session.
pub(super) struct SessionOwners {
    manager: Arc<LocalSessionManager>,
    users: Mutex<HashMap<String, User>>,
    /// Entries at which those of sessions that are gone are removed.
    most: usize,
}

impl SessionOwners {
    pub(super) fn new(manager: Arc<LocalSessionManager>, most: usize) -> Self {
        Self { manager, users: Mutex::default(), most: 2 * most }
    }

    /// True unless the session is another's.
    pub(super) fn may_use(&self, session: &str, user: User) -> bool {
        self.lock().get(session).is_none_or(|owner| *owner == user)
    }

    /// Notes who made a session.
    pub(super) async fn made(&self, session: &str, user: User) {
        let full = {
            let mut users = self.lock();
            users.insert(session.to_owned(), user);
            users.len() > self.most
        };
        if full {
            let live = self.manager.sessions.read().await;
            self.lock().retain(|session, _| live.contains_key(session.as_str()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, User>> {
        // Nothing between lock and unlock panics; were it so, the map still holds.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
