//! A concurrency limit of calls that wait for something, by the run they wait for and by session.
//! They hold no place among the calls that those work on, so they are bounded here.

use std::{
    collections::HashMap,
    fmt::Display,
    hash::Hash,
    sync::{Arc, Mutex},
};

use hivekeep_kernel::{Layer, SessionId, ToolError, codes, lock};

/// See the module. One limit serves several kinds of runs, so that a session's calls are counted
/// together.
#[derive(Debug)]
pub struct WaiterLimit {
    per_run: usize,
    per_session: usize,
    /// Held for a few additions, never across an await.
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    runs: HashMap<String, usize>,
    sessions: HashMap<SessionId, usize>,
}

/// The limit as one kind of runs uses it.
#[derive(Debug, Clone)]
pub struct Waiters {
    limit: Arc<WaiterLimit>,
    kind: &'static str,
}

/// A call that waits. Counted until it is dropped.
#[derive(Debug)]
pub struct Waiting {
    limit: Arc<WaiterLimit>,
    run: String,
    session: SessionId,
}

impl WaiterLimit {
    /// At most so many calls that wait for one run, and so many of one session.
    pub fn new(per_run: usize, per_session: usize) -> Arc<Self> {
        Arc::new(Self { per_run, per_session, counts: Mutex::default() })
    }

    /// The limit for a kind of runs, which errors name: `team`.
    pub fn of(self: &Arc<Self>, kind: &'static str) -> Waiters {
        Waiters { limit: self.clone(), kind }
    }
}

impl Waiters {
    /// Counts one more call that waits.
    ///
    /// # Errors
    /// `too_many_receivers`.
    pub fn enter(&self, run: impl Display, session: SessionId) -> Result<Waiting, ToolError> {
        let WaiterLimit { per_run, per_session, .. } = *self.limit;
        let run = run.to_string();
        let mut counts = lock(&self.limit.counts);
        let of = |count: Option<&usize>| count.copied().unwrap_or(0);
        if of(counts.runs.get(&run)) >= per_run {
            return Err(too_many(self.kind, per_run));
        }
        if of(counts.sessions.get(&session)) >= per_session {
            return Err(too_many("session", per_session));
        }
        *counts.runs.entry(run.clone()).or_default() += 1;
        *counts.sessions.entry(session).or_default() += 1;
        drop(counts);
        Ok(Waiting { limit: self.limit.clone(), run, session })
    }
}

fn too_many(kind: &str, limit: usize) -> ToolError {
    let message = format!("{limit} calls for the {kind} wait already");
    ToolError::new(Layer::Actor, codes::TOO_MANY_RECEIVERS, message)
        .next("wait for one of them to answer, or call without wait_secs")
        .retryable()
        .detail("limit", limit)
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut counts = lock(&self.limit.counts);
        less(&mut counts.runs, &self.run);
        less(&mut counts.sessions, &self.session);
    }
}

fn less<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use hivekeep_kernel::TeamId;

    use super::*;

    #[test]
    fn each_team_and_each_session_has_so_many_and_nothing_is_kept_of_those_that_left() {
        let limit = WaiterLimit::new(2, 3);
        let waits = limit.of("team");
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
        assert!(lock(&limit.counts).runs.is_empty() && lock(&limit.counts).sessions.is_empty());
    }
}
