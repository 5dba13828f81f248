//! Lasting sessions: one for each user of a door, for requests that name none.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::FutureExt as _;
use hivekeep_kernel::{Door, SessionId, ToolError, User};
use hivekeep_policy::SessionProfile;
use hivekeep_registry::{Attachment, OpenSession, SessionsHandle};

/// Holds the sessions for as long as the door is open.
pub(in crate::doors) struct LastingSessions {
    sessions: SessionsHandle,
    door: Door,
    /// First part of the sessions' names.
    name: &'static str,
    /// No more than there are users of the door: the token's, and the credentials'.
    held: Mutex<HashMap<User, Arc<Attachment>>>,
}

impl LastingSessions {
    pub(in crate::doors) fn new(sessions: SessionsHandle, door: Door, name: &'static str) -> Self {
        Self { sessions, door, name, held: Mutex::default() }
    }

    /// The session of a user, opened if it is not there or has ended.
    pub(in crate::doors) async fn of(
        &self,
        user: User,
        client: impl FnOnce() -> String,
    ) -> Result<SessionId, ToolError> {
        let held = self.held().get(&user).cloned();
        if let Some(held) = held.filter(|held| held.over().now_or_never().is_none()) {
            return Ok(held.session);
        }
        let name = match user {
            User::Bearer => self.name.to_owned(),
            user => format!("{}-{user}", self.name),
        };
        let (door, profile) = (self.door, SessionProfile::default());
        let client = client();
        let request = OpenSession { door, client, user, resume: None, profile };
        let attachment = Arc::new(self.sessions.open_named(&name, request).await?);
        let session = attachment.session;
        self.held().insert(user, attachment);
        Ok(session)
    }

    /// The session of a user, if it is open already.
    pub(in crate::doors) fn known(&self, user: User) -> Option<SessionId> {
        let held = self.held().get(&user).cloned();
        held.filter(|held| held.over().now_or_never().is_none()).map(|held| held.session)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<User, Arc<Attachment>>> {
        // Nothing between lock and unlock panics; were it so, the map still holds.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
