//! Quota that is taken for several things before the first of them is made.
//!
//! Whoever is about to make several things for a session takes all that they need at once, so
//! that the last of them does not fail for want of room after the others are made. The errand of
//! each carries the reservation, and the actor that makes the thing draws from it instead of
//! reserving by itself: nothing is counted twice, and nothing is free in between.
//!
//! ```text
//!  take ─► left ── draw ─► the drawer's, who releases it by `Sessions::release`
//!            ▲                 └── put back, to be drawn again ─┐
//!            ├──────────────────────────────────────────────────┘
//!            └── last clone dropped ─► the session's again
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Sessions;
use crate::{Resources, SessionId, ToolError};

/// See the module. Cheap to clone; the clones share what is left.
#[derive(Clone)]
pub struct Reservation(Arc<Held>);

struct Held {
    sessions: Arc<dyn Sessions>,
    session: SessionId,
    /// Held for an addition, never across an await.
    left: Mutex<Resources>,
}

impl Reservation {
    /// Reserves all of it, or nothing.
    ///
    /// # Errors
    /// As [`Sessions::reserve`].
    pub async fn take(
        sessions: Arc<dyn Sessions>,
        session: SessionId,
        what: Resources,
    ) -> Result<Self, ToolError> {
        sessions.reserve(session, what).await?;
        Ok(Self(Arc::new(Held { sessions, session, left: Mutex::new(what) })))
    }

    /// Whose quota it is.
    pub fn session(&self) -> SessionId {
        self.0.session
    }

    /// Takes as much of `what` out of it as is left, and reserves the rest. All of `what` is the
    /// drawer's from then on, counted once.
    ///
    /// # Errors
    /// As [`Sessions::reserve`]; nothing was taken out then.
    pub async fn draw(&self, what: Resources) -> Result<(), ToolError> {
        let drawn = Drawn::from(&self.0, what);
        // Also when nothing is wanting: a session that is over makes nothing more.
        self.0.sessions.reserve(self.0.session, what.minus(drawn.what)).await?;
        drawn.keep();
        Ok(())
    }

    /// Takes back what a drawer holds and has no use for any more: it stays reserved, for whoever
    /// draws next, instead of being the session's again. Counted once before and after.
    pub fn put_back(&self, what: Resources) {
        let mut left = self.0.left();
        *left = left.plus(what);
    }

    /// What nobody has drawn.
    pub fn left(&self) -> Resources {
        *self.0.left()
    }
}

impl Held {
    fn left(&self) -> MutexGuard<'_, Resources> {
        // Nothing between lock and unlock panics; were it so, the sums still hold.
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.sessions.release(self.session, *self.left());
    }
}

/// Taken out, and put back when dropped, unless kept.
struct Drawn<'h> {
    held: &'h Held,
    what: Resources,
}

impl<'h> Drawn<'h> {
    fn from(held: &'h Held, wanted: Resources) -> Self {
        let mut left = held.left();
        let what = wanted.lesser(*left);
        *left = left.minus(what);
        drop(left);
        Self { held, what }
    }

    fn keep(mut self) {
        self.what = Resources::default();
    }
}

impl Drop for Drawn<'_> {
    fn drop(&mut self) {
        let mut left = self.held.left();
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
