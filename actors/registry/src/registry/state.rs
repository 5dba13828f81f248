//! Admission, as a pure state machine.
//!
//! ```text
//!              slot free                    work ended
//!  arrive ────────────────────▶ in flight ─────────────▶ gone
//!     │                             ▲  │ only waits        ▲
//!     │                             │  └──────▶ parked ────┘
//!     │ none free, room to wait     │ slot freed, its flow's turn
//!     ├────────────▶ queued ────────┘
//!     │                │ caller left, or waited too long
//!     │ no room        ▼
//!     └────────────▶ refused
//! ```
//!
//! Waiting calls of one target are kept in flows, one for each session and lane.
//! The flows take turns, so a session with many calls does not starve another
//! with one. Commands and machine making (the lane `Work`) never take the last
//! `reserved` slots, so looking and killing work while long commands run.
//!
//! Of a target that sessions share, no session has more than half: of the slots,
//! of those for work, and of the places to wait. An actor that is one session's
//! own, as a workspace is, serves that one with all it has.
//!
//! A call that only waits gives its slot back and is parked. How many of a
//! session are is bounded over all targets: one more keeps its slot.
//!
//! A target is forgotten when nothing of it runs or waits.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use hivekeep_kernel::RateClass;

use crate::AdmissionOptions;

/// What kind of slot a call takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Runs commands or makes machines: may take long.
    Work,
    /// Everything else.
    Control,
}

impl From<RateClass> for Lane {
    fn from(class: RateClass) -> Self {
        match class {
            RateClass::Create | RateClass::Exec => Self::Work,
            RateClass::Default => Self::Control,
        }
    }
}

/// Whom a target serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Serves {
    /// Whoever calls: each has at most half of it.
    All,
    /// One session, in the main.
    One,
}

/// Calls that wait in one line.
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

    /// What one session may have of a target.
    fn share(self, serves: Serves) -> Self {
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

/// How busy a target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) in_flight: u32,
    pub(super) queued: u32,
    /// Moving average of service times; unknown until a call has ended.
    pub(super) average: Option<Duration>,
    slots: u32,
}

impl Load {
    /// When a caller should try again: the time until the calls before it are
    /// through, between 100 ms and 30 s.
    pub(super) fn hint(self) -> Duration {
        let average = self.average.unwrap_or(Duration::from_secs(1));
        let turns = (self.queued + 1).div_ceil(self.slots.max(1));
        (average * turns).clamp(Duration::from_millis(100), Duration::from_secs(30))
    }
}

/// What comes of an arrival.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival<T> {
    Go(T),
    Queued,
    /// Nobody may wait any more.
    Full(T, Load),
    /// The session may have no more waiting.
    Share(T, Load),
}

#[derive(Debug)]
struct Waiting<C, T> {
    call: C,
    since: Duration,
    cargo: T,
}

type Line<C, S, T> = (Flow<S>, VecDeque<Waiting<C, T>>);

/// Slots that a session holds.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    all: u32,
    work: u32,
}

#[derive(Debug)]
struct Stop<C, S, T> {
    serves: Serves,
    in_flight: u32,
    in_work: u32,
    /// Of `in_flight`; no session has none.
    held: HashMap<S, Held>,
    queued: u32,
    average: Option<Duration>,
    /// Whose turn it is stands first. No line is empty.
    lines: VecDeque<Line<C, S, T>>,
}

#[derive(Debug)]
enum Place<S> {
    Queued { key: Arc<str> },
    InFlight { key: Arc<str>, flow: Flow<S>, since: Duration },
    Parked { session: S },
}

/// All targets. `C` names a call, `S` a session, `T` is what is admitted.
/// Times are since any fixed origin.
#[derive(Debug)]
pub(super) struct Admission<C, S, T> {
    limits: Limits,
    stops: HashMap<Arc<str>, Stop<C, S, T>>,
    places: HashMap<C, Place<S>>,
    /// Calls that gave their slot back; no session has none.
    parked: HashMap<S, u32>,
}

impl<C: Copy + Eq + Hash, S: Copy + Eq + Hash, T> Admission<C, S, T> {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, stops: HashMap::new(), places: HashMap::new(), parked: HashMap::new() }
    }

    /// A call arrives for the target `key`.
    pub(super) fn arrive(
        &mut self,
        now: Duration,
        (key, serves): (&str, Serves),
        flow: Flow<S>,
        call: C,
        cargo: T,
    ) -> Arrival<T> {
        let limits = self.limits;
        let key: Arc<str> = match self.stops.get_key_value(key) {
            Some((key, _)) => key.clone(),
            None => key.into(),
        };
        let stop = self.stops.entry(key.clone()).or_insert_with(|| Stop::new(serves));
        // A free slot goes to a newcomer only when nobody waits who could take it.
        if stop.free(flow, limits) && !stop.someone_waits_for(flow.lane, limits) {
            stop.take(flow);
            self.places.insert(call, Place::InFlight { key, flow, since: now });
            return Arrival::Go(cargo);
        }
        if stop.queued >= limits.queued {
            return Arrival::Full(cargo, stop.load(limits));
        }
        if stop.waiting(flow.session) >= limits.share(stop.serves).queued {
            return Arrival::Share(cargo, stop.load(limits));
        }
        stop.push(flow, Waiting { call, since: now, cargo });
        self.places.insert(call, Place::Queued { key });
        Arrival::Queued
    }

    /// A call's work has ended; gives the calls that go now. An unknown call is
    /// ignored.
    pub(super) fn end(&mut self, now: Duration, call: &C) -> Vec<T> {
        match self.places.get(call) {
            None | Some(Place::Queued { .. }) => Vec::new(),
            Some(Place::Parked { session }) => {
                let session = *session;
                self.places.remove(call);
                self.unpark(session);
                Vec::new()
            }
            Some(Place::InFlight { .. }) => self.give(now, call),
        }
    }

    /// A call only waits from now on; gives the calls that go in its place. One
    /// that is one too many of its session keeps its slot.
    pub(super) fn park(&mut self, now: Duration, call: &C) -> Vec<T> {
        let Some(Place::InFlight { flow, .. }) = self.places.get(call) else { return Vec::new() };
        let session = flow.session;
        if self.parked.get(&session).is_some_and(|parked| *parked >= self.limits.parked) {
            return Vec::new();
        }
        let next = self.give(now, call);
        *self.parked.entry(session).or_default() += 1;
        self.places.insert(*call, Place::Parked { session });
        next
    }

    fn unpark(&mut self, session: S) {
        if let Some(parked) = self.parked.get_mut(&session) {
            *parked -= 1;
            if *parked == 0 {
                self.parked.remove(&session);
            }
        }
    }

    /// Frees the slot of a call in flight. Its session and its lane may each have
    /// kept another call waiting.
    fn give(&mut self, now: Duration, call: &C) -> Vec<T> {
        let Some(Place::InFlight { key, flow, since }) = self.places.remove(call) else {
            return Vec::new();
        };
        let Some(stop) = self.stops.get_mut(&key) else { return Vec::new() };
        stop.give(flow, now.saturating_sub(since));
        let mut next = Vec::new();
        while let Some((flow, waiting)) = stop.next(self.limits) {
            stop.take(flow);
            let place = Place::InFlight { key: key.clone(), flow, since: now };
            self.places.insert(waiting.call, place);
            next.push(waiting.cargo);
        }
        self.tidy(&key);
        next
    }

    /// A caller has gone: takes its call out of the queue, if it is there.
    pub(super) fn leave(&mut self, call: &C) -> Option<T> {
        let Some(Place::Queued { key }) = self.places.get(call) else { return None };
        let key = key.clone();
        self.places.remove(call);
        let waiting = self.stops.get_mut(&key)?.remove(call);
        self.tidy(&key);
        waiting
    }

    /// Takes out the calls that waited too long.
    pub(super) fn expire(&mut self, now: Duration) -> Vec<(T, Load)> {
        let (limits, mut late) = (self.limits, Vec::new());
        for stop in self.stops.values_mut() {
            for waiting in stop.expired(now, limits.wait) {
                self.places.remove(&waiting.call);
                late.push((waiting.cargo, stop.load(limits)));
            }
        }
        self.stops.retain(|_, stop| !stop.idle());
        late
    }

    /// When the next call will have waited too long.
    pub(super) fn next_expiry(&self) -> Option<Duration> {
        let fronts = self.stops.values().flat_map(|stop| &stop.lines);
        let oldest = fronts.filter_map(|(_, line)| line.front()).map(|waiting| waiting.since);
        oldest.min().map(|since| since + self.limits.wait)
    }

    /// The targets that are not idle.
    pub(super) fn loads(&self) -> impl Iterator<Item = (&str, Load)> {
        self.stops.iter().map(|(key, stop)| (&**key, stop.load(self.limits)))
    }

    fn tidy(&mut self, key: &Arc<str>) {
        if self.stops.get(key).is_some_and(Stop::idle) {
            self.stops.remove(key);
        }
    }
}

impl<C: Copy + Eq, S: Copy + Eq + Hash, T> Stop<C, S, T> {
    fn new(serves: Serves) -> Self {
        Self {
            serves,
            in_flight: 0,
            in_work: 0,
            held: HashMap::new(),
            queued: 0,
            average: None,
            lines: VecDeque::new(),
        }
    }

    fn idle(&self) -> bool {
        self.in_flight == 0 && self.queued == 0
    }

    fn load(&self, limits: Limits) -> Load {
        let Self { in_flight, queued, average, .. } = *self;
        Load { in_flight, queued, average, slots: limits.all }
    }

    fn free(&self, flow: Flow<S>, limits: Limits) -> bool {
        let held = self.held.get(&flow.session).copied().unwrap_or_default();
        let share = limits.share(self.serves);
        let work = self.in_work < limits.work && held.work < share.work;
        self.in_flight < limits.all && held.all < share.all && (flow.lane == Lane::Control || work)
    }

    fn someone_waits_for(&self, lane: Lane, limits: Limits) -> bool {
        self.lines.iter().any(|(flow, _)| flow.lane == lane && self.free(*flow, limits))
    }

    fn waiting(&self, session: S) -> u32 {
        let lines = self.lines.iter().filter(|(flow, _)| flow.session == session);
        lines.map(|(_, line)| u32::try_from(line.len()).unwrap_or(u32::MAX)).sum()
    }

    fn take(&mut self, flow: Flow<S>) {
        let work = u32::from(flow.lane == Lane::Work);
        self.in_flight += 1;
        self.in_work += work;
        let held = self.held.entry(flow.session).or_default();
        held.all += 1;
        held.work += work;
    }

    fn give(&mut self, flow: Flow<S>, took: Duration) {
        let work = u32::from(flow.lane == Lane::Work);
        self.in_flight -= 1;
        self.in_work -= work;
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

    fn push(&mut self, flow: Flow<S>, waiting: Waiting<C, T>) {
        self.queued += 1;
        match self.lines.iter_mut().find(|(other, _)| *other == flow) {
            Some((_, line)) => line.push_back(waiting),
            None => self.lines.push_back((flow, VecDeque::from([waiting]))),
        }
    }

    /// The next call of the first flow in turn that has a slot.
    fn next(&mut self, limits: Limits) -> Option<(Flow<S>, Waiting<C, T>)> {
        let turn = self.lines.iter().position(|(flow, _)| self.free(*flow, limits))?;
        let (flow, mut line) = self.lines.remove(turn)?;
        let waiting = line.pop_front();
        if !line.is_empty() {
            self.lines.push_back((flow, line));
        }
        self.queued -= u32::from(waiting.is_some());
        waiting.map(|waiting| (flow, waiting))
    }

    fn remove(&mut self, call: &C) -> Option<T> {
        for (_, line) in &mut self.lines {
            if let Some(place) = line.iter().position(|waiting| waiting.call == *call) {
                let waiting = line.remove(place)?;
                self.queued -= 1;
                self.lines.retain(|(_, line)| !line.is_empty());
                return Some(waiting.cargo);
            }
        }
        None
    }

    fn expired(&mut self, now: Duration, wait: Duration) -> Vec<Waiting<C, T>> {
        let mut late = Vec::new();
        for (_, line) in &mut self.lines {
            while line.front().is_some_and(|waiting| waiting.since + wait <= now) {
                late.extend(line.pop_front());
            }
        }
        self.queued -= u32::try_from(late.len()).unwrap_or(self.queued);
        self.lines.retain(|(_, line)| !line.is_empty());
        late
    }
}

#[cfg(test)]
mod tests;
