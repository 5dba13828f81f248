//! Admission control, as a pure state machine.
//!
//! ```text
//!              slot free                    work ended
//!  arrive ────────────────────▶ in flight ─────────────▶ gone
//!     │                             ▲  │ only waits        ▲
//!     │                             │  └──────▶ parked ────┘
//!     │ none free, room to wait     │ slot freed, its flow's turn
//!     ├────────────▶ queued ────────┘
//!     │                │ waited too long, or nobody wants it any more
//!     │ no room        ▼
//!     └────────────▶ refused, dropped
//! ```
//!
//! Waiting calls of one target are kept in flows, one for each session and lane.
//! The flows take turns, so a session with many calls does not starve another
//! with one. Commands and machine making (the lane `Work`) never take the last
//! `reserved` slots, so looking and killing work while long commands run. Calls of tools that bear no
//! other beside them (the lane `Exclusive`) go one after another.
//!
//! Of a target that sessions share, no session has more than half: of the slots,
//! of those for work, and of the places to wait. An actor that is one session's
//! own, as a workspace is, serves that one with all it has.
//!
//! A call that only waits gives its slot back and is parked. How many of a
//! session are is bounded over all targets: one more keeps its slot.
//!
//! A queued call whose caller has gone takes no slot. It is dropped when its turn
//! comes, when the queue has no room, or by a sweep. A target is forgotten when
//! nothing of it runs or waits.

use std::{collections::HashMap, hash::Hash, sync::Arc, time::Duration};

use super::target::{Counts, Flow, Full, Limits, Load, Serves, TargetQueue, Waiting, Waits};

/// The outcome of an arrival.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival<T> {
    Go(T),
    Queued,
    Refused(T, Full, Load),
}

/// A call that was admitted.
#[derive(Debug)]
enum Admitted<S> {
    InFlight { key: Arc<str>, flow: Flow<S>, since: Duration },
    Parked { session: S },
}

/// Sums over all targets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) counts: Counts,
    pub(super) parked: u32,
}

/// All targets. `C` names a call, `S` a session, `T` is what is admitted.
/// Times are since any fixed origin.
#[derive(Debug)]
pub(super) struct Admission<C, S, T> {
    limits: Limits,
    targets: HashMap<Arc<str>, TargetQueue<C, S, T>>,
    admitted: HashMap<C, Admitted<S>>,
    /// Calls that gave their slot back; no session has none.
    parked: HashMap<S, u32>,
    totals: Totals,
}

impl<C: Copy + Eq + Hash, S: Copy + Eq + Hash, T: Waits> Admission<C, S, T> {
    pub(super) fn new(limits: Limits) -> Self {
        let (targets, admitted, parked) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { limits, targets, admitted, parked, totals: Totals::default() }
    }

    /// A call arrives for the target `key`.
    pub(super) fn arrive(
        &mut self,
        now: Duration,
        (key, serves): (&str, Serves),
        flow: Flow<S>,
        call: C,
        item: T,
    ) -> Arrival<T> {
        let limits = self.limits;
        let key: Arc<str> = match self.targets.get_key_value(key) {
            Some((key, _)) => key.clone(),
            None => key.into(),
        };
        let target = self.targets.entry(key.clone()).or_insert_with(|| TargetQueue::new(serves));
        let before = target.counts();
        let arrival = if target.admits(flow, limits) {
            target.take(flow);
            Arrival::Go(item)
        } else {
            match target.push(flow, Waiting { call, since: now, item }, limits) {
                Ok(()) => Arrival::Queued,
                Err((item, full)) => Arrival::Refused(item, full, target.load(limits)),
            }
        };
        self.changed(&key, before);
        if let Arrival::Go(_) = arrival {
            self.admitted.insert(call, Admitted::InFlight { key, flow, since: now });
        }
        arrival
    }

    /// A call's work has ended; gives the calls that go now. One that was not admitted is ignored.
    pub(super) fn end(&mut self, now: Duration, call: &C) -> Vec<T> {
        match self.admitted.remove(call) {
            None => Vec::new(),
            Some(Admitted::InFlight { key, flow, since }) => self.free(now, &key, flow, since),
            Some(Admitted::Parked { session }) => {
                self.totals.parked -= 1;
                if let Some(parked) = self.parked.get_mut(&session) {
                    *parked -= 1;
                    if *parked == 0 {
                        self.parked.remove(&session);
                    }
                }
                Vec::new()
            }
        }
    }

    /// A call only waits from now on; gives the calls that go in its place. One
    /// that is one too many of its session keeps its slot.
    pub(super) fn park(&mut self, now: Duration, call: &C) -> Vec<T> {
        let Some(Admitted::InFlight { key, flow, since }) = self.admitted.get(call) else {
            return Vec::new();
        };
        let (key, flow, since) = (key.clone(), *flow, *since);
        let parked = self.parked.get(&flow.session).copied().unwrap_or_default();
        if parked >= self.limits.parked {
            return Vec::new();
        }
        self.parked.insert(flow.session, parked + 1);
        self.totals.parked += 1;
        self.admitted.insert(*call, Admitted::Parked { session: flow.session });
        self.free(now, &key, flow, since)
    }

    /// Frees a slot. Its session and its lane may each have kept another call waiting.
    fn free(&mut self, now: Duration, key: &Arc<str>, flow: Flow<S>, since: Duration) -> Vec<T> {
        let Some(target) = self.targets.get_mut(key) else { return Vec::new() };
        let before = target.counts();
        target.give(flow, now.saturating_sub(since));
        let mut next = Vec::new();
        while let Some((flow, waiting)) = target.next(self.limits) {
            target.take(flow);
            let admitted = Admitted::InFlight { key: key.clone(), flow, since: now };
            self.admitted.insert(waiting.call, admitted);
            next.push(waiting.item);
        }
        self.changed(key, before);
        next
    }

    /// Takes out the calls that waited too long, and drops those that have gone.
    pub(super) fn sweep(&mut self, now: Duration) -> Vec<(T, Load)> {
        let (limits, mut late) = (self.limits, Vec::new());
        for target in self.targets.values_mut() {
            let before = target.counts();
            for item in target.sweep(now, limits.wait) {
                late.push((item, target.load(limits)));
            }
            self.totals.count(before, target.counts());
        }
        self.targets.retain(|_, target| !target.idle());
        late
    }

    /// Time at which the next call will have waited too long.
    pub(super) fn next_expiry(&self) -> Option<Duration> {
        let oldest = self.targets.values().filter_map(TargetQueue::oldest).min();
        oldest.map(|since| since + self.limits.wait)
    }

    /// The targets that are not idle.
    pub(super) fn loads(&self) -> impl Iterator<Item = (&str, Load)> {
        self.targets.iter().map(|(key, target)| (&**key, target.load(self.limits)))
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// Keeps the sums, and no idle target.
    fn changed(&mut self, key: &Arc<str>, before: Counts) {
        let Some(target) = self.targets.get(key) else { return };
        self.totals.count(before, target.counts());
        if target.idle() {
            self.targets.remove(key);
        }
    }
}

impl Totals {
    fn count(&mut self, before: Counts, after: Counts) {
        let all = &mut self.counts;
        all.in_flight = all.in_flight + after.in_flight - before.in_flight;
        all.work = all.work + after.work - before.work;
        all.exclusive = all.exclusive + after.exclusive - before.exclusive;
        all.queued = all.queued + after.queued - before.queued;
    }
}

#[cfg(test)]
mod tests;
