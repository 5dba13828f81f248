//! Places of sessions: for one more, the idlest that nobody needs makes room; ended ones are kept for a
//! time, up to a number, and while they own something.

use std::{cmp::Reverse, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{Door, Layer, SessionId, ToolError};
use hivekeep_runtime::collection::CollectionMember;

use super::{Msg, SessionMember, Sessions};
use crate::{
    codes,
    sessions::{EndReason, SessionShared, User, records::stream, session},
};

/// Interval of forgetting ended sessions and writing summaries.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Ended sessions beyond those that are kept, so that they are forgotten several at a time.
const BATCH: usize = 64;

impl Sessions {
    /// Ends the idlest session that nobody needs if there are too many, of all or of this user. Sessions of agents and
    /// of those who attach do not take each other's places.
    pub(super) fn make_room(&mut self, user: User, door: Door) -> Result<(), ToolError> {
        let options = &self.table.options.sessions;
        let (max, option) = match door {
            Door::Agent => (options.max_children.get(), "max_children"),
            _ => (options.max_sessions.get(), "max_sessions"),
        };
        // Sessions of a user do not keep the others out, the operator among them.
        let of_one = max - max / 4;
        let is_alike = |one: &&SessionMember| {
            one.takes_place() && (one.door() == Door::Agent) == (door == Door::Agent)
        };
        let taking = || self.live.iter().map(|(_, member)| member).filter(is_alike);
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let all = count(taking().count());
        let own = count(taking().filter(|member| member.user() == user).count());
        if all < max && own < of_one {
            return Ok(());
        }
        let mut idle: Vec<_> = taking().filter_map(SessionMember::shared).collect();
        idle.retain(|shared| {
            let needed = shared.busy() || shared.about.name.is_some() || shared.holds();
            let counts = own < of_one || shared.account.user == user;
            counts && !needed && shared.ended().is_none()
        });
        idle.sort_by_key(|shared| Reverse(shared.idle_for()));
        // Its end takes a moment; the new one need not wait for it.
        let end = || session::Msg::End(EndReason::MadeRoom, None);
        let leaves = idle.iter().find(|shared| shared.tell(end()).is_ok()).map(|shared| shared.id);
        if let Some(id) = leaves {
            self.set_leaving(id, true);
            return Ok(());
        }
        let (open, allowed, whose) = match own < of_one {
            true => (all, max, "sessions are open".to_owned()),
            false => (own, of_one, format!("sessions of {user} are open")),
        };
        let message = format!("{open} {whose} and {allowed} are allowed");
        Err(ToolError::new(Layer::Session, codes::TOO_MANY_SESSIONS, message)
            .next(format!("end one (`hivekeep sessions`) or raise registry.sessions.{option}"))
            .retryable()
            .detail("open", open)
            .detail("allowed", allowed))
    }
}

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
            match session::write_end(&table, &shared, EndReason::Failed).await {
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
