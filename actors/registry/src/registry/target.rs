//! Slots of a target, the fair queue before them, and who may have how much of them.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    time::Duration,
};

use hivekeep_kernel::{RateClass, ToolSpec};
use serde_json::Value;

use crate::AdmissionOptions;

/// The class of slots that a call takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Runs commands or makes machines: may take long.
    Work,
    /// Runs beside no other call of its class: one after another.
    Exclusive,
    /// Everything else.
    Control,
}

impl Lane {
    /// The class of a call of a tool.
    pub(crate) fn of(spec: &ToolSpec, args: &Value) -> Self {
        if !spec.concurrency_safe {
            return Self::Exclusive;
        }
        match spec.class(args) {
            RateClass::Create | RateClass::Exec => Self::Work,
            RateClass::File | RateClass::Default => Self::Control,
        }
    }
}

/// The sessions that a target serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Serves {
    /// All sessions: each has at most half of the target.
    All,
    /// A single session, in the main.
    One,
}

/// Calls of one session in one lane; they wait in one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flow<S> {
    pub(super) session: S,
    pub(super) lane: Lane,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// In flight, of both lanes.
    pub(super) all: u32,
    /// In flight, of the lane `Work`.
    pub(super) work: u32,
    pub(super) queued: u32,
    /// Parked, of one session.
    pub(super) parked: u32,
    pub(super) wait: Duration,
}

impl Limits {
    pub(super) fn new(options: &AdmissionOptions) -> Self {
        let all = options.in_flight.get();
        let work = all.saturating_sub(options.reserved).max(1);
        let AdmissionOptions { queued, parked, .. } = *options;
        Self { all, work, queued, parked, wait: options.queue_wait() }
    }

    /// Limits of a session at a target.
    pub(super) fn share(self, serves: Serves) -> Self {
        match serves {
            Serves::One => self,
            Serves::All => {
                let half = |of: u32| (of / 2).max(1);
                let queued = half(self.queued).min(self.queued);
                Self { all: half(self.all), work: half(self.work), queued, ..self }
            }
        }
    }
}

/// Something that can be waiting to be admitted.
pub(super) trait Waits {
    /// True when nobody wants it admitted any more.
    fn gone(&self) -> bool;
}

/// Calls of one target, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) in_flight: u32,
    /// Calls in flight in the lane `Work`.
    pub(super) work: u32,
    /// Calls in flight in the lane `Exclusive`: one at most.
    pub(super) exclusive: u32,
    pub(super) queued: u32,
}

/// Load of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) in_flight: u32,
    pub(super) queued: u32,
    /// Moving average of service times; unknown until a call has ended.
    pub(super) average: Option<Duration>,
    pub(super) slots: u32,
}

impl Load {
    /// Time until a caller should try again: until the calls before it are through, between 100 ms
    /// and 30 s.
    pub(super) fn hint(self) -> Duration {
        let average = self.average.unwrap_or(Duration::from_secs(1));
        let turns = (self.queued + 1).div_ceil(self.slots.max(1));
        (average * turns).clamp(Duration::from_millis(100), Duration::from_secs(30))
    }
}

/// The reason why a call may not even wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// Nobody may wait any more.
    Queue,
    /// The session may have no more waiting.
    Share,
}

#[derive(Debug)]
pub(super) struct Waiting<C, T> {
    pub(super) call: C,
    pub(super) since: Duration,
    pub(super) item: T,
}

/// Slots that a session holds.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    all: u32,
    work: u32,
}

type Queue<C, S, T> = (Flow<S>, VecDeque<Waiting<C, T>>);

#[derive(Debug)]
pub(super) struct TargetQueue<C, S, T> {
    serves: Serves,
    counts: Counts,
    /// Calls in flight, by session; a session without calls has no entry.
    held: HashMap<S, Held>,
    average: Option<Duration>,
    /// The flow whose turn it is stands first. No queue is empty.
    flows: VecDeque<Queue<C, S, T>>,
}

impl<C, S: Copy + Eq + Hash, T: Waits> TargetQueue<C, S, T> {
    pub(super) fn new(serves: Serves) -> Self {
        let counts = Counts::default();
        Self { serves, counts, held: HashMap::new(), average: None, flows: VecDeque::new() }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn idle(&self) -> bool {
        self.counts.in_flight == 0 && self.counts.queued == 0
    }

    pub(super) fn load(&self, limits: Limits) -> Load {
        let Counts { in_flight, queued, .. } = self.counts;
        Load { in_flight, queued, average: self.average, slots: limits.all }
    }

    /// True when a newcomer goes at once: it gets a free slot only when nobody waits who could take
    /// it.
    pub(super) fn admits(&self, flow: Flow<S>, limits: Limits) -> bool {
        let waits =
            |(other, _): &Queue<C, S, T>| other.lane == flow.lane && self.is_free(*other, limits);
        self.is_free(flow, limits) && !self.flows.iter().any(waits)
    }

    fn is_free(&self, flow: Flow<S>, limits: Limits) -> bool {
        let held = self.held.get(&flow.session).copied().unwrap_or_default();
        let share = limits.share(self.serves);
        let Counts { in_flight, work, exclusive, .. } = self.counts;
        let in_lane = match flow.lane {
            Lane::Control => true,
            Lane::Exclusive => exclusive == 0,
            Lane::Work => work < limits.work && held.work < share.work,
        };
        in_flight < limits.all && held.all < share.all && in_lane
    }

    pub(super) fn take(&mut self, flow: Flow<S>) {
        let work = u32::from(flow.lane == Lane::Work);
        self.counts.in_flight += 1;
        self.counts.exclusive += u32::from(flow.lane == Lane::Exclusive);
        self.counts.work += work;
        let held = self.held.entry(flow.session).or_default();
        held.all += 1;
        held.work += work;
    }

    pub(super) fn give(&mut self, flow: Flow<S>, took: Duration) {
        let work = u32::from(flow.lane == Lane::Work);
        self.counts.in_flight -= 1;
        self.counts.exclusive -= u32::from(flow.lane == Lane::Exclusive);
        self.counts.work -= work;
        if let Some(held) = self.held.get_mut(&flow.session) {
            held.all -= 1;
            held.work -= work;
            if held.all == 0 {
                self.held.remove(&flow.session);
            }
        }
        // A fifth of the newest: the last dozen calls make nine tenths of it.
        self.average = Some(self.average.map_or(took, |average| (average * 4 + took) / 5));
    }

    /// Lets a call wait.
    ///
    /// # Errors
    /// When there is no room for it, also after those that have gone were dropped.
    pub(super) fn push(
        &mut self,
        flow: Flow<S>,
        waiting: Waiting<C, T>,
        limits: Limits,
    ) -> Result<(), (T, Full)> {
        if self.full(flow.session, limits).is_some() {
            self.flows.iter_mut().for_each(|(_, queue)| queue.retain(|one| !one.item.gone()));
            self.tidy();
        }
        if let Some(full) = self.full(flow.session, limits) {
            return Err((waiting.item, full));
        }
        self.counts.queued += 1;
        match self.flows.iter_mut().find(|(other, _)| *other == flow) {
            Some((_, queue)) => queue.push_back(waiting),
            None => self.flows.push_back((flow, VecDeque::from([waiting]))),
        }
        Ok(())
    }

    fn full(&self, session: S, limits: Limits) -> Option<Full> {
        if self.counts.queued >= limits.queued {
            return Some(Full::Queue);
        }
        let own = self.flows.iter().filter(|(flow, _)| flow.session == session);
        let own: usize = own.map(|(_, queue)| queue.len()).sum();
        (count(own) >= limits.share(self.serves).queued).then_some(Full::Share)
    }

    /// The next call of the first flow in turn that has a slot.
    pub(super) fn next(&mut self, limits: Limits) -> Option<(Flow<S>, Waiting<C, T>)> {
        loop {
            let turn = self.flows.iter().position(|(flow, _)| self.is_free(*flow, limits))?;
            let (flow, mut queue) = self.flows.remove(turn)?;
            let before = queue.len();
            let next = std::iter::from_fn(|| queue.pop_front()).find(|one| !one.item.gone());
            self.counts.queued -= count(before - queue.len());
            if !queue.is_empty() {
                self.flows.push_back((flow, queue));
            }
            if let Some(next) = next {
                return Some((flow, next));
            }
        }
    }

    /// Takes out those that waited too long, and drops those that have gone.
    pub(super) fn sweep(&mut self, now: Duration, wait: Duration) -> Vec<T> {
        let mut late = Vec::new();
        for (_, queue) in &mut self.flows {
            queue.retain(|one| !one.item.gone());
            while queue.front().is_some_and(|one| one.since + wait <= now) {
                late.extend(queue.pop_front().map(|one| one.item));
            }
        }
        self.tidy();
        late
    }

    /// Time at which the oldest began to wait.
    pub(super) fn oldest(&self) -> Option<Duration> {
        self.flows.iter().filter_map(|(_, queue)| Some(queue.front()?.since)).min()
    }

    fn tidy(&mut self) {
        self.flows.retain(|(_, queue)| !queue.is_empty());
        self.counts.queued = count(self.flows.iter().map(|(_, queue)| queue.len()).sum());
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
