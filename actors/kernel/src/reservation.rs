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
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;

use crate::{Layer, Resources, SessionId, ToolError, User, codes, lock};

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

    /// User of a session that calls.
    ///
    /// # Errors
    /// `session_ended` for a session that is over.
    fn caller(&self, session: SessionId) -> Result<User, ToolError> {
        self.user(session).ok_or_else(|| session_ended(session))
    }

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
        let mut left = lock(&self.0.left);
        *left = left.plus(what);
    }

    /// Amount that nobody has drawn.
    pub fn left(&self) -> Resources {
        *lock(&self.0.left)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.sessions.release(self.session, *lock(&self.left));
    }
}

/// Drop guard: puts back what was taken out, unless kept.
struct Drawn<'h> {
    shared: &'h Shared,
    what: Resources,
}

impl<'h> Drawn<'h> {
    fn from(shared: &'h Shared, wanted: Resources) -> Self {
        let mut left = lock(&shared.left);
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
        let mut left = lock(&self.shared.left);
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

/// Refusal of a call for a session that is over.
pub fn session_ended(session: SessionId) -> ToolError {
    ToolError::new(Layer::Session, codes::SESSION_ENDED, format!("the session {session} is over"))
        .next("open a new session; what the old one owned can be taken by `workspace_adopt`")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Layer;

    const MOST: Resources = Resources { workspaces: 40, memory_mb: 40, disk_gb: 40 };

    /// Quotas of one session, of a user.
    #[derive(Default)]
    struct Bank {
        session: Option<SessionId>,
        used: Mutex<Resources>,
    }

    #[async_trait]
    impl SessionQuotas for Bank {
        async fn reserve(&self, _: SessionId, what: Resources) -> Result<(), ToolError> {
            let mut used = self.used.lock().unwrap();
            if used.plus(what).first_over(MOST).is_some() {
                return Err(ToolError::foreign(Layer::Quota, "quota_exceeded", "it is too much"));
            }
            *used = used.plus(what);
            Ok(())
        }

        fn release(&self, _: SessionId, what: Resources) {
            let mut used = self.used.lock().unwrap();
            assert_eq!(what.first_over(*used), None, "more is given back than was taken");
            *used = used.minus(what);
        }

        fn restore(&self, _: SessionId, _: Resources) {}

        fn hold(&self, _: SessionId) -> Hold {
            Hold::default()
        }

        fn user(&self, session: SessionId) -> Option<User> {
            (self.session == Some(session)).then_some(User::Uid(7))
        }

        async fn standing(&self, _: SessionId) -> Standing {
            Standing { attached: true, calls_in_flight: 0, idle_for: Duration::ZERO, ended: false }
        }
    }

    fn resources() -> impl Strategy<Value = Resources> {
        (0..9_u64, 0..9_u64, 0..9_u64).prop_map(|(workspaces, memory_mb, disk_gb)| Resources {
            workspaces,
            memory_mb,
            disk_gb,
        })
    }

    proptest! {
        #[test]
        fn nothing_is_counted_twice_and_nothing_is_lost(
            taken in resources(),
            steps in prop::collection::vec((resources(), any::<bool>()), 0..24),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let (bank, session) = (Arc::new(Bank::default()), SessionId::new());
                let used = || *bank.used.lock().unwrap();
                let reservation = Reservation::take(bank.clone(), session, taken).await.unwrap();
                assert_eq!((reservation.session(), reservation.left(), used()), (session, taken, taken));
                let (mut drawn, mut left) = (Vec::new(), taken);
                for (what, back) in steps {
                    let fits = used().plus(what.minus(left)).first_over(MOST).is_none();
                    if back && let Some(what) = drawn.pop() {
                        reservation.put_back(what);
                        left = left.plus(what);
                    } else if reservation.draw(what).await.is_ok() {
                        assert!(fits);
                        left = left.minus(what);
                        drawn.push(what);
                    } else {
                        assert!(!fits, "{what:?} of {left:?}, with {:?} taken", used());
                    }
                    assert_eq!(reservation.left(), left);
                    assert_eq!(used(), drawn.iter().fold(left, |sum, one| sum.plus(*one)));
                }
                drop(reservation);
                drawn.into_iter().for_each(|what| bank.release(session, what));
                assert_eq!(used(), Resources::default());
            });
        }
    }

    #[tokio::test]
    async fn what_is_not_there_is_not_taken() {
        let bank = Arc::new(Bank::default());
        let more = MOST.plus(Resources::workspace(0, 0));
        let refused = Reservation::take(bank.clone(), SessionId::new(), more).await.unwrap_err();
        assert_eq!(refused.code, "quota_exceeded");
        assert!(bank.take_over(SessionId::new(), None, more).await.is_err());
        assert_eq!(bank.take_over(SessionId::new(), None, MOST).await, Ok(()));
        assert_eq!(*bank.used.lock().unwrap(), MOST);
    }

    #[test]
    fn a_thing_is_of_its_owner_and_of_its_owners_user() {
        let (own, other) = (SessionId::new(), SessionId::new());
        let bank = Bank { session: Some(own), ..Bank::default() };
        let is = |recorded, owner| bank.is_of_user(own, recorded, owner);
        assert!(is(None, Some(own)) && is(Some(User::Uid(8)), Some(own)), "its own");
        assert!(is(Some(User::Uid(7)), None) && is(Some(User::Uid(7)), Some(other)), "its user's");
        assert!(!is(Some(User::Uid(8)), None) && !is(Some(User::Uid(8)), Some(other)));
        assert!(!is(None, None) && !is(None, Some(other)));
        // Two that nobody knows are not of one user.
        assert!(!bank.is_of_user(other, None, Some(SessionId::new())));
        assert!(!bank.is_of_user(other, None, None));
        assert!(bank.is_of_user(other, None, Some(other)));
        assert_eq!((bank.last_user(own), bank.last_user(other)), (Some(User::Uid(7)), None));
        assert_eq!(bank.allowance(User::Uid(7), "workspaces"), None);
        assert!(Hold::of(1).holds() && !Hold::default().holds());
    }
}
