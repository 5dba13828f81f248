//! Owners of the protocol's sessions: nobody uses or ends one with another's credential.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use hivekeep_kernel::User;

use super::{KeptClients, resumable::ResumableSessions};

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
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
