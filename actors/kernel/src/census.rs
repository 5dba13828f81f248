//! Status table of all actors, readable without sending a message to any of them.

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

/// State shown for an actor that its supervisor gave up.
pub(crate) const GAVE_UP: &str = "gave_up";

/// Status of one place in the actor tree. Outlives the restarts of the actor.
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
    /// Bytes; 0 where the actor has no machine or its memory is not known.
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
            // A new status may have taken the place in the meantime.
            census.remove_if(&self.path, |_, status| status.strong_count() == 0);
        }
    }
}

/// Row of the actor tree, as `hivekeep ps` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActorRow {
    /// Path in the tree, names joined by `/`.
    pub path: String,
    /// Kind of actor.
    pub kind: String,
    /// `starting`, `running`, `restarting`, `gave_up`, `stopped`, or the actor's own word.
    pub state: String,
    /// Number of restarts.
    pub restarts: u32,
    /// Number of messages waiting.
    pub mailbox: usize,
    /// Number of messages handled by all incarnations.
    pub handled: u64,
    /// Time since the present incarnation started.
    pub uptime_ms: u64,
    /// Reason of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Restart policy that the supervisor applies.
    pub policy: RestartPolicy,
    /// Memory of the actor's machine on the host, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_memory_bytes: Option<u64>,
}

impl ActorStatus {
    /// Path in the tree, names joined by `/`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Last name of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or(self.path.as_str(), |(_, name)| name)
    }

    /// Restart policy that the supervisor applies.
    pub fn policy(&self) -> RestartPolicy {
        self.policy
    }

    /// Sets the state that the actor reports of itself.
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

    /// Number of messages waiting.
    pub fn depth(&self) -> usize {
        self.depth.load(Relaxed)
    }

    /// Records a failure.
    pub fn set_error(&self, error: impl Into<String>) {
        self.last_error.store(Some(Arc::new(error.into())));
    }

    /// Records the memory that the actor's machine holds on the host.
    pub fn set_machine_memory(&self, bytes: u64) {
        self.machine_memory.store(bytes, Relaxed);
    }

    /// Time since this status was made; the clock of restart windows.
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
        // An actor that set a state of its own while it started knows better.
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

/// Table of every actor's status. Cheap to clone; readers block nobody.
#[derive(Debug, Clone, Default)]
pub struct Census(Arc<DashMap<String, Weak<ActorStatus>>>);

impl Census {
    /// Status for a place in the tree: the present one while anybody holds it, otherwise a new one.
    pub fn probe(&self, path: &str, kind: &'static str, policy: RestartPolicy) -> Arc<ActorStatus> {
        let mut place = self.0.entry(path.to_owned()).or_default();
        if let Some(status) = place.upgrade() {
            return status;
        }
        let status = Arc::new(ActorStatus {
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
        *place = Arc::downgrade(&status);
        status
    }

    /// All rows, sorted by path.
    pub fn rows(&self) -> Vec<ActorRow> {
        // Dropped after the iteration: dropping the last handle of a status removes its entry.
        let statuses: Vec<_> = self.0.iter().filter_map(|place| place.upgrade()).collect();
        let mut rows: Vec<_> = statuses.iter().map(|status| status.row()).collect();
        rows.sort_by(|a, b| a.path.cmp(&b.path));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(census: &Census) -> ActorRow {
        census.rows().into_iter().next().expect("one")
    }

    #[test]
    fn a_row_tells_what_an_actor_did() {
        let census = Census::default();
        let one = census.probe("parent/it", "thing", RestartPolicy::ENTITY);
        assert_eq!((one.name(), one.path(), one.depth()), ("it", "parent/it", 0));
        assert_eq!(one.policy(), RestartPolicy::ENTITY);
        assert_eq!(census.probe("it", "thing", RestartPolicy::ENTITY).name(), "it");
        (0..5).for_each(|_| one.sent());
        one.took();
        one.unsent(2);
        let told = row(&census);
        assert_eq!((told.kind.as_str(), told.state.as_str()), ("thing", "starting"));
        assert_eq!((told.mailbox, told.handled, told.restarts), (2, 1, 0));
        assert_eq!((told.last_error, told.machine_memory_bytes), (None, None));
        one.unsent(9);
        assert_eq!(one.depth(), 0, "never below none");
        one.sent();
        one.emptied();
        one.set_error("it broke");
        one.set_machine_memory(1);
        one.restarting();
        let told = row(&census);
        assert_eq!((told.mailbox, told.restarts, told.state.as_str()), (0, 1, "restarting"));
        assert_eq!(
            (told.last_error.as_deref(), told.machine_memory_bytes),
            (Some("it broke"), Some(1))
        );
    }

    #[test]
    fn a_state_of_its_own_outlasts_a_start_and_a_detail_is_of_what_runs() {
        let census = Census::default();
        let one = census.probe("it", "thing", RestartPolicy::ENTITY);
        one.set_detail(|| Some("three waiting".to_owned()));
        for before in ["starting", "restarting", "stopped", GAVE_UP] {
            one.set_state(before);
            assert_eq!((row(&census).state.as_str(), one.gave_up()), (before, before == GAVE_UP));
            one.started();
            assert_eq!(row(&census).state, "running, three waiting", "after {before}");
        }
        one.set_state("degraded");
        one.started();
        assert_eq!(row(&census).state, "degraded");
        one.set_state("running");
        one.set_detail(|| None);
        assert_eq!(row(&census).state, "running");
    }

    #[test]
    fn time_counts_from_the_last_start() {
        let census = Census::default();
        let one = census.probe("it", "thing", RestartPolicy::ENTITY);
        std::thread::sleep(std::time::Duration::from_millis(40));
        assert!(row(&census).uptime_ms >= 40 && one.age().as_millis() >= 40);
        one.started();
        let up = u128::from(row(&census).uptime_ms);
        assert!(up + 40 <= one.age().as_millis(), "{up}");
    }

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
