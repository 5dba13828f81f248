//! Retention of ended sessions: for a time, up to a number, and while they own something.

use std::time::Duration;

use chrono::Utc;
use hivekeep_kernel::SessionId;

use super::{Msg, Sessions};
use crate::sessions::{EndReason, SessionShared, end, records::stream};

/// Interval of forgetting ended sessions and writing summaries.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Ended sessions beyond those that are kept, so that they are forgotten several at a time.
const BATCH: usize = 64;

impl Sessions {
    /// Takes note of the end of a session.
    pub(super) fn ended(&mut self, id: SessionId) {
        self.live.remove(id);
        let forgotten = |shared: &SessionShared| match shared.ended() {
            Some((_, reason)) => !shared.leaves_something(reason),
            None => false,
        };
        // The stream of a forgotten session is gone already.
        self.table.sessions.remove_if(&id, |_, shared| forgotten(shared));
        self.keep_ended(id);
        if self.ended.len() > self.max_ended() + BATCH {
            self.sweep();
        }
    }

    /// Lists a session to be forgotten some day, if it is over.
    pub(super) fn keep_ended(&mut self, id: SessionId) {
        if let Some((at, _)) = self.table.get(id).and_then(|shared| shared.ended()) {
            self.ended.insert((at, id));
        }
    }

    /// Ends a session whose actor is given up: nobody could attach to it, or end it, any more.
    pub(super) fn end_given_up(&mut self, id: SessionId) {
        let live = self.table.get(id).filter(|shared| shared.ended().is_none());
        // The actor may have failed last just after the session's end.
        let Some(shared) = live else { return self.ended(id) };
        let (table, me) = (self.table.clone(), self.me.address.clone());
        let _detached = self.me.workers.spawn(async move {
            match end::write(&table, &shared, EndReason::Failed).await {
                // Nobody there: the next incarnation finds the shared as it is.
                Ok(()) => drop(me.send(Msg::Ended(id))),
                Err(error) => {
                    tracing::error!(session = %id, %error, "its end was not written; tried again");
                }
            }
        });
    }

    /// Ended sessions that are kept.
    fn max_ended(&self) -> usize {
        usize::try_from(self.table.options.sessions.max_ended).unwrap_or(usize::MAX)
    }

    pub(super) fn sweep_later(&self) {
        let me = self.me.address.clone();
        let _detached = self.me.workers.spawn(async move {
            tokio::time::sleep(SWEEP_EVERY).await;
            // Nobody there: the next incarnation sweeps.
            let _ = me.send(Msg::Sweep);
        });
    }

    /// Forgets what ended too long ago, or is one too many, and owns nothing any more.
    pub(super) fn sweep(&mut self) {
        let kept = i64::try_from(self.table.options.sessions.ended_kept_secs).unwrap_or(i64::MAX);
        let now = Utc::now();
        let mut surplus = self.ended.len().saturating_sub(self.max_ended());
        let mut batch = Vec::new();
        let table = self.table.clone();
        self.ended.retain(|(at, id)| {
            let late = now.signed_duration_since(*at).num_seconds() >= kept;
            let gone =
                (late || surplus > 0) && !table.get(*id).is_some_and(|shared| shared.holds());
            surplus -= usize::from(gone && surplus > 0);
            if gone {
                batch.push(*id);
            }
            !gone
        });
        let me = self.me.address.clone();
        let _detached = self.me.workers.spawn(async move {
            for id in batch {
                match table.journal.forget(&stream(id)).await {
                    Ok(()) => drop(table.sessions.remove(&id)),
                    Err(error) => {
                        tracing::warn!(session = %id, %error, "not forgotten; tried again");
                        // Nobody there: the next incarnation finds it.
                        let _ = me.send(Msg::Remembered(id));
                    }
                }
            }
        });
    }
}
