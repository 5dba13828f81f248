//! The registry actor: what may reach which mailbox, and when.
//!
//! A call arrives routed, is admitted, queued or refused by `state.rs`, and is
//! put into the target's mailbox from here. Its answer goes straight to the
//! dispatcher, which then gives the slot back. A call keeps its slot until its
//! work has really ended, also when its caller has gone: admission bounds work,
//! not callers. Work that only waits is parked meanwhile, as far as its session
//! may have such work.
//!
//! After a restart the new incarnation knows none of the calls that the old one
//! had in flight; their ends name ids it never saw and are ignored. Calls that
//! were queued are dropped, and their callers told that nothing was done.

mod routes;
mod state;
mod ticket;

use std::{fmt, sync::Arc, time::Duration};

use hivekeep_kernel::{
    CallId, Context, Entity, Fault, Layer, SessionId, Target, ToolCall, ToolError,
};
use serde::{Deserialize, Serialize};
use tokio::{sync::oneshot, time::Instant};

use crate::AdmissionOptions;
use crate::codes;
use state::{Admission, Arrival, Flow, Load};

pub use routes::Routes;
pub(crate) use state::{Lane, Serves};
pub(crate) use ticket::{Fate, Ticket};

/// A routed call on its way through admission.
pub struct RoutedCall {
    pub(crate) target: Arc<dyn Target>,
    pub(crate) call: ToolCall,
    pub(crate) lane: Lane,
    pub(crate) serves: Serves,
    pub(crate) ticket: Arc<Ticket>,
}

impl fmt::Debug for RoutedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journey")
            .field("target", &self.target.key())
            .field("call", &self.call.cx.id)
            .finish_non_exhaustive()
    }
}

impl RoutedCall {
    fn flow(&self) -> Flow<SessionId> {
        Flow { session: self.call.cx.session, lane: self.lane }
    }
}

/// What the registry is told.
// A mailbox boxes every message; a box inside would be the second one.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Msg {
    /// A call for a target.
    Route(RoutedCall),
    /// A call's work has ended.
    Ended(CallId),
    /// A call's work only waits from now on.
    Parked(CallId),
    /// A caller has gone. Takes the call out of the queue; a running one goes on
    /// until its `Ended`.
    Left(CallId),
    /// Calls may have waited too long.
    Tick,
    /// Answers when everything told before has been handled.
    Settle(oneshot::Sender<()>),
    /// How busy the targets are.
    Targets(oneshot::Sender<Vec<TargetRow>>),
}

/// How busy one target is. Idle targets are not listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetRow {
    /// The target's key: its place in the tree.
    pub target: String,
    /// Calls it works on, also those whose callers have gone.
    pub in_flight: u32,
    /// Calls that wait for it.
    pub queued: u32,
    /// Moving average of its calls' times, in milliseconds.
    pub average_ms: Option<u64>,
}

/// What each incarnation of the registry is made from.
#[derive(Debug, Clone)]
pub struct RegistrySeed {
    /// Limits per target.
    pub admission: AdmissionOptions,
}

/// The registry actor.
pub struct Registry {
    me: Context<Msg>,
    born: Instant,
    admission: Admission<CallId, SessionId, RoutedCall>,
    /// A worker is waiting for the oldest queued call's time to pass.
    armed: bool,
}

impl Entity for Registry {
    type Msg = Msg;
    type Seed = RegistrySeed;

    async fn start(seed: RegistrySeed, me: Context<Msg>) -> Result<Self, Fault> {
        let limits = state::Limits::new(&seed.admission);
        let admission = Admission::new(limits);
        Ok(Self { me, born: Instant::now(), admission, armed: false })
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        let now = self.born.elapsed();
        match message {
            Msg::Route(journey) => self.route(now, journey),
            Msg::Ended(call) => {
                let next = self.admission.end(now, &call);
                self.deliver(now, next);
            }
            Msg::Parked(call) => {
                let next = self.admission.park(now, &call);
                self.deliver(now, next);
            }
            Msg::Left(call) => drop(self.admission.leave(&call)),
            Msg::Tick => self.tick(now),
            // A caller that stopped waiting is no error; so below.
            Msg::Settle(reply) => drop(reply.send(())),
            Msg::Targets(reply) => drop(reply.send(self.rows())),
        }
        Ok(())
    }
}

impl Registry {
    fn route(&mut self, now: Duration, journey: RoutedCall) {
        let (call, flow, target) = (journey.call.cx.id, journey.flow(), journey.target.clone());
        let stop = (target.key(), journey.serves);
        match self.admission.arrive(now, stop, flow, call, journey) {
            Arrival::Go(journey) => self.deliver(now, vec![journey]),
            Arrival::Queued => self.arm(now),
            Arrival::Full(journey, load) => refuse(journey, load, "its queue is full"),
            Arrival::Share(journey, load) => {
                refuse(journey, load, "this session's half of its queue is full");
            }
        }
    }

    fn deliver(&mut self, now: Duration, mut next: Vec<RoutedCall>) {
        while let Some(RoutedCall { target, call, ticket, .. }) = next.pop() {
            let id = call.cx.id;
            ticket.handed_over();
            if target.deliver(call).is_err() {
                ticket.unreached();
                next.extend(self.admission.end(now, &id));
            }
        }
    }

    fn tick(&mut self, now: Duration) {
        self.armed = false;
        for (journey, load) in self.admission.expire(now) {
            refuse(journey, load, "it did not get to this call in time");
        }
        self.arm(now);
    }

    fn arm(&mut self, now: Duration) {
        let Some(expiry) = self.admission.next_expiry().filter(|_| !self.armed) else { return };
        self.armed = true;
        let (address, wait) = (self.me.address.clone(), expiry.saturating_sub(now));
        let _detached = self.me.workers.spawn(async move {
            tokio::time::sleep(wait).await;
            // Nobody there: the next incarnation arms its own.
            let _ = address.send(Msg::Tick);
        });
    }

    fn rows(&self) -> Vec<TargetRow> {
        let mut rows: Vec<_> = self
            .admission
            .loads()
            .map(|(key, load)| TargetRow {
                target: key.to_owned(),
                in_flight: load.in_flight,
                queued: load.queued,
                average_ms: load.average.map(ms),
            })
            .collect();
        rows.sort_by(|a, b| a.target.cmp(&b.target));
        rows
    }
}

/// Tells a caller `busy`.
fn refuse(journey: RoutedCall, load: Load, why: &str) {
    let RoutedCall { target, call, ticket, .. } = journey;
    ticket.refused();
    let message = format!(
        "`{}` is busy: {} calls running, {} waiting, {why}",
        target.key(),
        load.in_flight,
        load.queued
    );
    let error = ToolError::new(Layer::Admission, codes::BUSY, message)
        .next("wait for running calls to end, or try again after retry_after_ms")
        .retry_after(load.hint())
        .detail("in_flight", load.in_flight)
        .detail("queued", load.queued);
    // The caller may have gone meanwhile.
    drop(call.reply.send(Err(error)));
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
