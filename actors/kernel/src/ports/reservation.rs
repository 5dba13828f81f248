//! Quota reservation: taken as a whole for several things before the first of them is made.
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

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::SessionQuotas;
use crate::{Resources, SessionId, ToolError};

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
