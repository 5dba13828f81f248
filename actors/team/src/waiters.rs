//! Calls that wait for messages or for the end of a swarm, counted by team or swarm and by session.
//! They hold no place among the calls that those work on, so they are bounded here.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hivekeep_kernel::{SessionId, ToolError};

use crate::{refuse, shared::RunId};

/// See the module.
#[derive(Debug)]
pub(crate) struct WaiterLimit {
    per_party: usize,
    per_session: usize,
    /// Held for a few additions, never across an await.
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    parties: HashMap<RunId, usize>,
    sessions: HashMap<SessionId, usize>,
}

/// One that waits. It is counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    waits: Arc<WaiterLimit>,
    party: RunId,
    session: SessionId,
}

impl WaiterLimit {
    pub(crate) fn new(per_party: usize, per_session: usize) -> Arc<Self> {
        Arc::new(Self { per_party, per_session, counts: Mutex::default() })
    }

    /// Counts one more.
    ///
    /// # Errors
    /// `too_many_receivers`.
    pub(crate) fn enter(
        self: &Arc<Self>,
        party: impl Into<RunId>,
        session: SessionId,
    ) -> Result<Waiting, ToolError> {
        let party = party.into();
        let mut counts = self.counts();
        let of = |count: Option<&usize>| count.copied().unwrap_or(0);
        if of(counts.parties.get(&party)) >= self.per_party {
            let whose = match party {
                RunId::Team(_) => "the team",
                RunId::Swarm(_) => "the swarm",
            };
            return Err(refuse::too_many_waits(whose, self.per_party));
        }
        if of(counts.sessions.get(&session)) >= self.per_session {
            return Err(refuse::too_many_waits("the session", self.per_session));
        }
        *counts.parties.entry(party).or_default() += 1;
        *counts.sessions.entry(session).or_default() += 1;
        drop(counts);
        Ok(Waiting { waits: self.clone(), party, session })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Nothing between lock and unlock panics; were it so, the sums still hold.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut counts = self.waits.counts();
        less(&mut counts.parties, self.party);
        less(&mut counts.sessions, self.session);
    }
}

fn less<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use hivekeep_kernel::TeamId;

    use super::*;

    #[test]
    fn each_team_and_each_session_has_so_many_and_nothing_is_kept_of_those_that_left() {
        let waits = WaiterLimit::new(2, 3);
        let (one, other) = (TeamId::new(), TeamId::new());
        let (mine, yours) = (SessionId::new(), SessionId::new());
        let mut there = vec![waits.enter(one, mine).unwrap(), waits.enter(one, yours).unwrap()];
        let full = waits.enter(one, yours).unwrap_err();
        assert_eq!(full.code, "too_many_receivers");
        assert!(full.message.contains("team") && full.retryable);
        there.push(waits.enter(other, yours).unwrap());
        there.push(waits.enter(other, yours).unwrap());
        assert!(waits.enter(TeamId::new(), yours).unwrap_err().message.contains("session"));
        there.swap_remove(0);
        there.push(waits.enter(one, mine).unwrap());
        drop(there);
        assert!(waits.counts().parties.is_empty() && waits.counts().sessions.is_empty());
    }
}
