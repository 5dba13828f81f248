//! Every actor's vital signs, readable without asking the actor.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use dashmap::DashMap;
use serde::{Deserialize, Serialize};

use crate::RestartPolicy;

/// What is said of an actor that its supervisor gave up.
pub(crate) const GAVE_UP: &str = "gave_up";

/// The vital signs of one place in the tree. It outlives the actor's restarts.
#[derive(Debug)]
pub struct ActorStatus {
    path: String,
    kind: &'static str,
    policy: RestartPolicy,
    born: Instant,
    started_ms: AtomicU64,
    restarts: AtomicU32,
    depth: AtomicUsize,
    handled: AtomicU64,
    state: ArcSwap<String>,
    detail: ArcSwapOption<Detail>,
    last_error: ArcSwapOption<String>,
    /// 0: keeps no machine, or its memory is not known.
    machine_memory: AtomicU64,
    census: Weak<DashMap<String, Weak<ActorStatus>>>,
}

/// Words that an actor adds to its state, made whenever somebody looks.
struct Detail(Box<dyn Fn() -> Option<String> + Send + Sync>);

impl std::fmt::Debug for Detail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Detail")
    }
}

impl Drop for ActorStatus {
    fn drop(&mut self) {
        if let Some(census) = self.census.upgrade() {
            // The place may have a new one by now.
            census.remove_if(&self.path, |_, probe| probe.strong_count() == 0);
        }
    }
}

/// One row of the tree, as `hivekeep ps` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActorRow {
    /// Place in the tree, names joined by `/`.
    pub path: String,
    /// Kind of actor.
    pub kind: String,
    /// `starting`, `running`, `restarting`, `gave_up`, `stopped`, or the actor's own word.
    pub state: String,
    /// Times it was started again.
    pub restarts: u32,
    /// Messages waiting.
    pub mailbox: usize,
    /// Messages handled by all incarnations.
    pub handled: u64,
    /// Since the present incarnation started.
    pub uptime_ms: u64,
    /// Why it last failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// What its supervisor does when it ends.
    pub policy: RestartPolicy,
    /// Memory of the machine it keeps, if it keeps one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_memory_bytes: Option<u64>,
}

impl ActorStatus {
    /// Place in the tree.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The last name of its path.
    pub fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or(self.path.as_str(), |(_, name)| name)
    }

    /// What its supervisor does when it ends.
    pub fn policy(&self) -> RestartPolicy {
        self.policy
    }

    /// What the actor says of itself.
    pub fn set_state(&self, state: impl Into<String>) {
        let state = state.into();
        if **self.state.load() != state {
            self.state.store(Arc::new(state));
        }
    }

    /// Adds words to the state while it is `running`, for what changes too often to be said each
    /// time. They are asked for by whoever looks, so `detail` reads what is shared and waits for
    /// nothing.
    pub fn set_detail(&self, detail: impl Fn() -> Option<String> + Send + Sync + 'static) {
        self.detail.store(Some(Arc::new(Detail(Box::new(detail)))));
    }

    /// Whether its supervisor gave the actor up: nobody comes to the place any more.
    pub fn gave_up(&self) -> bool {
        **self.state.load() == GAVE_UP
    }

    /// Messages waiting.
    pub fn depth(&self) -> usize {
        self.depth.load(Relaxed)
    }

    /// Notes a failure.
    pub fn set_error(&self, error: impl Into<String>) {
        self.last_error.store(Some(Arc::new(error.into())));
    }

    /// Notes the memory that the actor's machine holds on the host.
    pub fn set_machine_memory(&self, bytes: u64) {
        self.machine_memory.store(bytes, Relaxed);
    }

    /// Since the place was first taken; the clock of restart windows.
    pub fn age(&self) -> std::time::Duration {
        self.born.elapsed()
    }

    pub(crate) fn sent(&self) {
        self.depth.fetch_add(1, Relaxed);
    }

    pub(crate) fn unsent(&self, count: usize) {
        let _ =
            self.depth.fetch_update(Relaxed, Relaxed, |depth| Some(depth.saturating_sub(count)));
    }

    pub(crate) fn emptied(&self) {
        self.depth.store(0, Relaxed);
    }

    pub(crate) fn took(&self) {
        self.unsent(1);
        self.handled.fetch_add(1, Relaxed);
    }

    pub(crate) fn started(&self) {
        self.started_ms.store(self.age_ms(), Relaxed);
        // An actor that said something else of itself while it started knows better.
        if ["starting", "restarting", "stopped", GAVE_UP].contains(&self.state.load().as_str()) {
            self.set_state("running");
        }
    }

    pub(crate) fn restarting(&self) {
        self.restarts.fetch_add(1, Relaxed);
        self.set_state("restarting");
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn state(&self) -> String {
        let mut state = String::clone(&self.state.load());
        let detail = self.detail.load().as_ref().and_then(|detail| (detail.0)());
        if let (Some(detail), "running") = (detail, state.as_str()) {
            state = format!("{state}, {detail}");
        }
        state
    }

    fn row(&self) -> ActorRow {
        ActorRow {
            path: self.path.clone(),
            kind: self.kind.to_owned(),
            state: self.state(),
            restarts: self.restarts.load(Relaxed),
            mailbox: self.depth(),
            handled: self.handled.load(Relaxed),
            uptime_ms: self.age_ms().saturating_sub(self.started_ms.load(Relaxed)),
            last_error: self.last_error.load().as_deref().cloned(),
            policy: self.policy,
            machine_memory_bytes: Some(self.machine_memory.load(Relaxed))
                .filter(|bytes| *bytes > 0),
        }
    }
}

/// All probes. Cheap to clone; reading it stops nobody.
#[derive(Debug, Clone, Default)]
pub struct Census(Arc<DashMap<String, Weak<ActorStatus>>>);

impl Census {
    /// A probe for a place in the tree. A place whose probe is still held keeps it.
    pub fn probe(&self, path: &str, kind: &'static str, policy: RestartPolicy) -> Arc<ActorStatus> {
        let mut place = self.0.entry(path.to_owned()).or_default();
        if let Some(probe) = place.upgrade() {
            return probe;
        }
        let probe = Arc::new(ActorStatus {
            path: path.to_owned(),
            kind,
            policy,
            born: Instant::now(),
            started_ms: AtomicU64::new(0),
            restarts: AtomicU32::new(0),
            depth: AtomicUsize::new(0),
            handled: AtomicU64::new(0),
            state: ArcSwap::from_pointee("starting".to_owned()),
            detail: ArcSwapOption::empty(),
            last_error: ArcSwapOption::empty(),
            machine_memory: AtomicU64::new(0),
            census: Arc::downgrade(&self.0),
        });
        *place = Arc::downgrade(&probe);
        probe
    }

    /// The tree, sorted by path.
    pub fn rows(&self) -> Vec<ActorRow> {
        // Let go of after the iteration: the last one to hold a probe removes its place.
        let probes: Vec<_> = self.0.iter().filter_map(|place| place.upgrade()).collect();
        let mut rows: Vec<_> = probes.iter().map(|probe| probe.row()).collect();
        rows.sort_by(|a, b| a.path.cmp(&b.path));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_known_as_long_as_its_probe_is_held() {
        let census = Census::default();
        let one = census.probe("a", "thing", RestartPolicy::ENTITY);
        let again = census.probe("a", "thing", RestartPolicy::ENTITY);
        let other = census.probe("b", "thing", RestartPolicy::ENTITY);
        drop(one);
        assert_eq!(census.rows().len(), 2);
        drop((again, other));
        assert_eq!(census.0.len(), 0, "nobody had to ask");
        let anew = census.probe("a", "thing", RestartPolicy::ENTITY);
        assert_eq!((census.0.len(), anew.path()), (1, "a"));
    }
}
