//! A fake of the sessions' port: everybody is attached, everything may be reserved, and users are as
//! the test says.

use std::{collections::HashMap, time::Duration};

use async_trait::async_trait;
use hivekeep_kernel::{Resources, SessionId, ToolError, User};
use hivekeep_ports::{Hold, SessionQuotas, Standing};

/// Sessions of users. The default knows none: each session is over.
#[derive(Debug, Default)]
pub struct FakeUsers {
    of_others: Option<User>,
    named: HashMap<SessionId, Option<User>>,
    allowances: Vec<(User, &'static str, u64)>,
}

impl FakeUsers {
    /// Gives each session that is not named otherwise to this user.
    pub fn all(user: User) -> Self {
        Self { of_others: Some(user), ..Self::default() }
    }

    /// Gives a session to another user.
    #[must_use]
    pub fn and(mut self, session: SessionId, user: User) -> Self {
        self.named.insert(session, Some(user));
        self
    }

    /// Ends a session.
    #[must_use]
    pub fn over(mut self, session: SessionId) -> Self {
        self.named.insert(session, None);
        self
    }

    /// Sets how many of a kind a user's tier allows.
    #[must_use]
    pub fn allowed(mut self, user: User, kind: &'static str, most: u64) -> Self {
        self.allowances.push((user, kind, most));
        self
    }
}

#[async_trait]
impl SessionQuotas for FakeUsers {
    async fn reserve(&self, _: SessionId, _: Resources) -> Result<(), ToolError> {
        Ok(())
    }
    fn release(&self, _: SessionId, _: Resources) {}
    fn restore(&self, _: SessionId, _: Resources) {}
    fn hold(&self, _: SessionId) -> Hold {
        Hold::default()
    }
    fn user(&self, session: SessionId) -> Option<User> {
        self.named.get(&session.principal()).cloned().unwrap_or(self.of_others)
    }
    fn allowance(&self, user: User, kind: &str) -> Option<u64> {
        let own = |allowed: &&(User, &str, u64)| allowed.0 == user && allowed.1 == kind;
        self.allowances.iter().find(own).map(|(.., most)| *most)
    }
    async fn standing(&self, _: SessionId) -> Standing {
        Standing { attached: true, calls_in_flight: 0, idle_for: Duration::ZERO, ended: false }
    }
}
