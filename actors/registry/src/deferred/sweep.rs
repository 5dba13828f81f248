//! Garbage collection of deferred calls, at a start and before each new one.

use chrono::Utc;
use hivekeep_kernel::{DeferredId, SessionId};

use super::{DeferredCalls, HeldCall, stream};

impl DeferredCalls {
    /// Forgets what has expired, and what nobody can ask for any more.
    pub(super) fn sweep(&self) {
        let now = Utc::now();
        let gone = |call: &HeldCall| {
            call.is_over() && (call.expired(&self.0.options, now) || self.is_over(call.session))
        };
        let mut calls = self.calls();
        let ids: Vec<_> = calls.values().filter(|call| gone(call)).map(|call| call.id).collect();
        for id in &ids {
            calls.remove(id);
        }
        drop(calls);
        for id in ids {
            self.forget(id);
        }
    }

    /// Removes what the journal has of a call, some time soon. What is left by a crash is found at
    /// the next start.
    pub(super) fn forget(&self, id: DeferredId) {
        let journal = self.0.journal.clone();
        tokio::spawn(async move {
            if let Err(error) = journal.forget(&stream(id)).await {
                tracing::warn!(%error, %id, "a deferred call stays until the next start");
            }
        });
    }

    fn is_over(&self, session: SessionId) -> bool {
        self.0.sessions.standing_of(session).is_err()
    }
}
