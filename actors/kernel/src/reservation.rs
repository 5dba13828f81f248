//! Quotas of sessions, and reservations from them.
//!
//! An actor that is about to make several things for a session reserves everything they need at
//! once, so that the last of them does not fail for want of room after the others are made. The
//! internal call for each carries the reservation, and the actor that makes the thing draws from it
//! instead of reserving by itself: nothing is counted twice, and nothing is free in between.
//!
//! ```text
//!  take ─► left ── draw ─► the drawer's, who releases it by `SessionQuotas::release`
//!            ▲                 └── put back, to be drawn again ─┐
//!            ├──────────────────────────────────────────────────┘
//!            └── last clone dropped ─► the session's again
//! ```

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use crate::{Resources, SessionId, ToolError, User};

/// State of a session that owns something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// True while a client is attached.
    pub attached: bool,
    /// Number of calls of the session that are running now. A session with one is live.
    pub calls_in_flight: u32,
    /// Time since the session last had a client attached or a call running.
    pub idle_for: Duration,
    /// True once the session is over; what it owned is orphaned.
    pub ended: bool,
}

/// Keep-alive guard: while it lives, the session does not end for want of a client and its things
/// cannot be taken over, as during a call in flight.
#[derive(Default)]
pub struct Hold(Option<Box<dyn std::any::Any + Send + Sync>>);

impl Hold {
    /// Guards as long as `held` lives.
    pub fn of(held: impl Send + Sync + 'static) -> Self {
        Self(Some(Box::new(held)))
    }

    /// True if a session is guarded; a session that is over is not.
    pub fn holds(&self) -> bool {
        self.0.is_some()
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Hold").field(&self.holds()).finish()
    }
}

/// Sessions and their quotas.
#[async_trait]
pub trait SessionQuotas: Send + Sync {
    /// Reserves quota before anything is made. Exact under concurrent calls.
    ///
    /// # Errors
    /// `quota_exceeded` or `host_full`, with what is used, wanted and allowed.
    async fn reserve(&self, session: SessionId, what: Resources) -> Result<(), ToolError>;

    /// Reserves what another session holds and will release once this succeeds; both together are
    /// counted once.
    ///
    /// # Errors
    /// See [`Self::reserve`].
    async fn take_over(
        &self,
        by: SessionId,
        from: Option<SessionId>,
        what: Resources,
    ) -> Result<(), ToolError> {
        let _ = from;
        self.reserve(by, what).await
    }

    /// Gives back what was reserved.
    fn release(&self, session: SessionId, what: Resources);

    /// Counts what a session already owns, without a limit; used at start-up.
    fn restore(&self, session: SessionId, what: Resources);

    /// Guards a session for work that continues without a call. A session that is over is not
    /// guarded.
    fn hold(&self, session: SessionId) -> Hold;

    /// User of a session; `None` for a session that is over.
    fn user(&self, session: SessionId) -> Option<User>;

    /// User of a session, also of one that is over, as long as it is known.
    fn last_user(&self, session: SessionId) -> Option<User> {
        self.user(session)
    }

    /// True if a thing is of the user of a session: of the user who was `recorded` with it, or whoever its
    /// `owner` was where none is, as in records of earlier versions.
    fn is_of_user(
        &self,
        session: SessionId,
        recorded: Option<User>,
        owner: Option<SessionId>,
    ) -> bool {
        let user = recorded.or_else(|| self.last_user(owner?));
        owner == Some(session) || user.is_some() && user == self.user(session)
    }

    /// Number of things of a kind that a user may hold at a time by its tier; `None` for no limit
    /// beyond the family's own. Kinds are declared by families, which keep to them.
    fn allowance(&self, user: User, kind: &str) -> Option<u64> {
        let _ = (user, kind);
        None
    }

    /// State of a session.
    async fn standing(&self, session: SessionId) -> Standing;
}

/// Shared reservation. Cheap to clone; the clones share what is left.
#[derive(Clone)]
pub struct Reservation(Arc<Shared>);

struct Shared {
    sessions: Arc<dyn SessionQuotas>,
    session: SessionId,
    /// Locked for an addition only, never across an await.
    left: Mutex<Resources>,
}

impl Reservation {
    /// Reserves all of `what`, or nothing.
    ///
    /// # Errors
    /// See [`SessionQuotas::reserve`].
    pub async fn take(
        sessions: Arc<dyn SessionQuotas>,
        session: SessionId,
        what: Resources,
    ) -> Result<Self, ToolError> {
        sessions.reserve(session, what).await?;
        Ok(Self(Arc::new(Shared { sessions, session, left: Mutex::new(what) })))
    }

    /// Session whose quota is reserved.
    pub fn session(&self) -> SessionId {
        self.0.session
    }

    /// Takes as much of `what` as is left out of the reservation and reserves the rest. All of
    /// `what` belongs to the drawer from then on, counted once.
    ///
    /// # Errors
    /// See [`SessionQuotas::reserve`]; nothing was taken out then.
    pub async fn draw(&self, what: Resources) -> Result<(), ToolError> {
        let drawn = Drawn::from(&self.0, what);
        // Called even when nothing is missing: a session that is over makes nothing more.
        self.0.sessions.reserve(self.0.session, what.minus(drawn.what)).await?;
        drawn.keep();
        Ok(())
    }

    /// Returns what a drawer no longer needs: it stays reserved for the next draw instead of going
    /// back to the session. Counted once before and after.
    pub fn put_back(&self, what: Resources) {
        let mut left = self.0.left();
        *left = left.plus(what);
    }

    /// Amount that nobody has drawn.
    pub fn left(&self) -> Resources {
        *self.0.left()
    }
}

impl Shared {
    fn left(&self) -> MutexGuard<'_, Resources> {
        // Nothing between lock and unlock panics; if it did, the sums would still be right.
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.sessions.release(self.session, *self.left());
    }
}

/// Drop guard: puts back what was taken out, unless kept.
struct Drawn<'h> {
    shared: &'h Shared,
    what: Resources,
}

impl<'h> Drawn<'h> {
    fn from(shared: &'h Shared, wanted: Resources) -> Self {
        let mut left = shared.left();
        let what = wanted.lesser(*left);
        *left = left.minus(what);
        drop(left);
        Self { shared, what }
    }

    fn keep(mut self) {
        self.what = Resources::default();
    }
}

impl Drop for Drawn<'_> {
    fn drop(&mut self) {
        let mut left = self.shared.left();
        *left = left.plus(self.what);
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reservation")
            .field("session", &self.0.session)
            .field("left", &self.left())
            .finish()
    }
}
