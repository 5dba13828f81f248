//! Admission, as a pure state machine.
//!
//! ```text
//!              slot free                    work ended
//!  arrive ────────────────────▶ in flight ─────────────▶ gone
//!     │                             ▲
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
    pub(super) wait: Duration,
}

impl Limits {
    pub(super) fn new(options: &AdmissionOptions) -> Self {
        let all = options.in_flight.get();
        let work = all.saturating_sub(options.reserved).max(1);
        Self { all, work, queued: options.queued, wait: options.queue_wait() }
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
    Full(T, Load),
}

#[derive(Debug)]
struct Waiting<C, T> {
    call: C,
    since: Duration,
    cargo: T,
}

type Line<C, S, T> = (Flow<S>, VecDeque<Waiting<C, T>>);

#[derive(Debug)]
struct Stop<C, S, T> {
    in_flight: u32,
    in_work: u32,
    queued: u32,
    average: Option<Duration>,
    /// Whose turn it is stands first. No line is empty.
    lines: VecDeque<Line<C, S, T>>,
}

#[derive(Debug)]
enum Place {
    Queued { key: Arc<str> },
    InFlight { key: Arc<str>, lane: Lane, since: Duration },
}

/// All targets. `C` names a call, `S` a session, `T` is what is admitted.
/// Times are since any fixed origin.
#[derive(Debug)]
pub(super) struct Admission<C, S, T> {
    limits: Limits,
    stops: HashMap<Arc<str>, Stop<C, S, T>>,
    places: HashMap<C, Place>,
}

impl<C: Copy + Eq + Hash, S: Copy + Eq, T> Admission<C, S, T> {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, stops: HashMap::new(), places: HashMap::new() }
    }

    /// A call arrives for the target `key`.
    pub(super) fn arrive(
        &mut self,
        now: Duration,
        key: &str,
        flow: Flow<S>,
        call: C,
        cargo: T,
    ) -> Arrival<T> {
        let limits = self.limits;
        let key: Arc<str> = match self.stops.get_key_value(key) {
            Some((key, _)) => key.clone(),
            None => key.into(),
        };
        let stop = self.stops.entry(key.clone()).or_insert_with(Stop::new);
        // A free slot goes to a newcomer only when nobody waits who could take it.
        if stop.free(flow.lane, limits) && !stop.someone_waits_for(flow.lane) {
            stop.take(flow.lane);
            self.places.insert(call, Place::InFlight { key, lane: flow.lane, since: now });
            return Arrival::Go(cargo);
        }
        if stop.queued >= limits.queued {
            return Arrival::Full(cargo, stop.load(limits));
        }
        stop.push(flow, Waiting { call, since: now, cargo });
        self.places.insert(call, Place::Queued { key });
        Arrival::Queued
    }

    /// A call's work has ended; gives the call that takes its slot. An unknown
    /// call is ignored.
    pub(super) fn end(&mut self, now: Duration, call: &C) -> Option<T> {
        let Some(Place::InFlight { key, lane, since }) = self.places.get(call) else { return None };
        let (key, lane, took) = (key.clone(), *lane, now.saturating_sub(*since));
        self.places.remove(call);
        let stop = self.stops.get_mut(&key)?;
        stop.give(lane, took);
        let next = stop.next(self.limits).map(|(lane, waiting)| {
            stop.take(lane);
            let place = Place::InFlight { key: key.clone(), lane, since: now };
            self.places.insert(waiting.call, place);
            waiting.cargo
        });
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

impl<C: Copy + Eq, S: Copy + Eq, T> Stop<C, S, T> {
    fn new() -> Self {
        Self { in_flight: 0, in_work: 0, queued: 0, average: None, lines: VecDeque::new() }
    }

    fn idle(&self) -> bool {
        self.in_flight == 0 && self.queued == 0
    }

    fn load(&self, limits: Limits) -> Load {
        let Self { in_flight, queued, average, .. } = *self;
        Load { in_flight, queued, average, slots: limits.all }
    }

    fn free(&self, lane: Lane, limits: Limits) -> bool {
        self.in_flight < limits.all && (lane == Lane::Control || self.in_work < limits.work)
    }

    fn someone_waits_for(&self, lane: Lane) -> bool {
        self.lines.iter().any(|(flow, _)| flow.lane == lane)
    }

    fn take(&mut self, lane: Lane) {
        self.in_flight += 1;
        self.in_work += u32::from(lane == Lane::Work);
    }

    fn give(&mut self, lane: Lane, took: Duration) {
        self.in_flight -= 1;
        self.in_work -= u32::from(lane == Lane::Work);
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

    /// The next call of the first flow in turn whose lane has a slot.
    fn next(&mut self, limits: Limits) -> Option<(Lane, Waiting<C, T>)> {
        let turn = self.lines.iter().position(|(flow, _)| self.free(flow.lane, limits))?;
        let (flow, mut line) = self.lines.remove(turn)?;
        let waiting = line.pop_front();
        if !line.is_empty() {
            self.lines.push_back((flow, line));
        }
        self.queued -= u32::from(waiting.is_some());
        waiting.map(|waiting| (flow.lane, waiting))
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
