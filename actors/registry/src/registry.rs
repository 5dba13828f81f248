//! The registry actor: which calls may reach which mailbox, and when.
//!
//! ```text
//!  dispatcher ── Route ──▶ registry ── admitted: the call ──▶ target's mailbox ──▶ its work
//!      ▲                      ▲                                                      │
//!      │                      └──────────────────── Ended ───────────────────────────┤
//!      └────────────────────────────────── answer ───────────────────────────────────┘
//! ```
//! A call costs one message to this actor and one back. It arrives with everything that is needed
//! to answer it, is admitted, queued or refused by `admission.rs`, and is put into the target's
//! mailbox from here. Its end is told by its [`Responder`](hivekeep_kernel::Responder), before the
//! caller hears the answer. So a call keeps its slot until its work has really ended, also when its
//! caller has gone: admission bounds work, not callers. Work that only waits is parked meanwhile, as
//! far as its session may have such work.
//!
//! Whether a call is still wanted is settled between this actor and its caller by a one-shot
//! channel: the registry admits a call by sending on it, a caller that goes closes it first. So
//! "nothing was done" is never said of a call that was handed over. Callers that have gone are
//! noticed when their turn comes, when the queue is full, or by the sweep that runs while calls wait.
//!
//! After a restart the new incarnation knows none of the calls that the old one
//! had in flight; their ends name ids it never saw and are ignored. Calls that
//! were queued are dropped, and their callers told that nothing was done.

mod admission;
mod target;

use std::{fmt, sync::Arc, time::Duration};

use hivekeep_kernel::{
    CallId, Context, Entity, Fault, Layer, SessionId, Target, ToolCall, ToolError,
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};

use crate::{AdmissionOptions, codes};
use admission::{Admission, Arrival, Totals};
use target::{Flow, Full, Limits, Load, Waits};

pub(crate) use target::{Lane, Serves};

/// While calls wait, those whose callers have gone are looked for this often.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// A call on its way through admission.
pub struct RoutedCall {
    pub(crate) target: Arc<dyn Target>,
    pub(crate) call: ToolCall,
    pub(crate) lane: Lane,
    pub(crate) serves: Serves,
    pub(crate) routed: Instant,
    /// Told how long the call waited, when it is admitted. Closed: nobody waits for it any more, and
    /// it was said that nothing was done.
    pub(crate) admitted: oneshot::Sender<Duration>,
}

impl fmt::Debug for RoutedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoutedCall")
            .field("target", &self.target.key())
            .field("call", &self.call.cx.id)
            .finish_non_exhaustive()
    }
}

impl Waits for RoutedCall {
    fn gone(&self) -> bool {
        self.admitted.is_closed()
    }
}

/// Messages to the registry.
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
    /// Calls may have waited too long, or be wanted no more.
    Sweep,
    /// Asks how busy the targets are.
    Targets(oneshot::Sender<Vec<TargetRow>>),
}

/// Load of one target. Idle targets are not listed.
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

/// Start arguments of each incarnation of the registry.
#[derive(Debug, Clone)]
pub struct RegistryArgs {
    /// Limits per target.
    pub admission: AdmissionOptions,
}

/// The registry actor.
pub struct Registry {
    me: Context<Msg>,
    born: Instant,
    admission: Admission<CallId, SessionId, RoutedCall>,
    /// The sums that `hivekeep ps` shows.
    totals: watch::Sender<Totals>,
    /// A worker waits for the time of the next sweep.
    sweeping: bool,
}

impl Entity for Registry {
    type Msg = Msg;
    type Args = RegistryArgs;

    async fn start(args: RegistryArgs, me: Context<Msg>) -> Result<Self, Fault> {
        let admission = Admission::new(Limits::new(&args.admission));
        let (totals, shown) = watch::channel(Totals::default());
        me.address.probe().set_detail(move || shown.borrow().in_words());
        Ok(Self { me, born: Instant::now(), admission, totals, sweeping: false })
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        let now = self.born.elapsed();
        match message {
            Msg::Route(routed) => self.route(now, routed),
            Msg::Ended(call) => deliver(self.admission.end(now, &call)),
            Msg::Parked(call) => deliver(self.admission.park(now, &call)),
            Msg::Sweep => {
                self.sweeping = false;
                self.sweep(now);
                self.sweep_later(now);
            }
            Msg::Targets(reply) => {
                self.sweep(now);
                // A caller that stopped waiting is no error.
                drop(reply.send(self.rows()));
            }
        }
        let totals = self.admission.totals();
        // Nobody waits for a change: it is read when somebody looks.
        self.totals.send_if_modified(|told| {
            *told = totals;
            false
        });
        Ok(())
    }
}

impl Registry {
    fn route(&mut self, now: Duration, routed: RoutedCall) {
        let (cx, target) = (&routed.call.cx, routed.target.clone());
        let (call, flow) = (cx.id, Flow { session: cx.session, lane: routed.lane });
        match self.admission.arrive(now, (target.key(), routed.serves), flow, call, routed) {
            Arrival::Go(routed) => deliver([routed]),
            Arrival::Queued => self.sweep_later(now),
            Arrival::Refused(routed, Full::Queue, load) => {
                refuse(routed, load, "its queue is full");
            }
            Arrival::Refused(routed, Full::Share, load) => {
                refuse(routed, load, "this session's half of its queue is full");
            }
        }
    }

    fn sweep(&mut self, now: Duration) {
        for (routed, load) in self.admission.sweep(now) {
            refuse(routed, load, "it did not get to this call in time");
        }
    }

    /// Has the queues swept when the oldest call's time is over, or before.
    fn sweep_later(&mut self, now: Duration) {
        let Some(expiry) = self.admission.next_expiry().filter(|_| !self.sweeping) else { return };
        self.sweeping = true;
        let (address, wait) = (self.me.address.clone(), expiry.saturating_sub(now));
        let _detached = self.me.workers.spawn(async move {
            tokio::time::sleep(wait.min(SWEEP_EVERY)).await;
            // Nobody there: the next incarnation sweeps its own.
            let _ = address.send(Msg::Sweep);
        });
    }

    fn rows(&self) -> Vec<TargetRow> {
        let loads = self.admission.loads().map(|(key, load)| TargetRow {
            target: key.to_owned(),
            in_flight: load.in_flight,
            queued: load.queued,
            average_ms: load.average.map(ms),
        });
        let mut rows: Vec<_> = loads.collect();
        rows.sort_by(|a, b| a.target.cmp(&b.target));
        rows
    }
}

impl Totals {
    fn in_words(&self) -> Option<String> {
        let Self { counts, parked } = *self;
        let (in_flight, work) = (counts.in_flight, counts.work);
        let parts = [
            (in_flight, format!("{in_flight} in flight ({work} of work)")),
            (counts.queued, format!("{} waiting", counts.queued)),
            (parked, format!("{parked} parked")),
        ];
        let some: Vec<_> =
            parts.into_iter().filter_map(|(number, words)| (number > 0).then_some(words)).collect();
        (!some.is_empty()).then(|| some.join(", "))
    }
}

/// Hands admitted calls over. One that is dropped here, as its caller or its target has gone, ends
/// like any other: its slot comes back by [`Msg::Ended`].
fn deliver(admitted: impl IntoIterator<Item = RoutedCall>) {
    for RoutedCall { target, call, routed, admitted, .. } in admitted {
        if admitted.send(routed.elapsed()).is_ok() {
            // The call has told its caller.
            let _ = target.deliver(call);
        }
    }
}

/// Tells a caller `busy`.
fn refuse(RoutedCall { target, call, .. }: RoutedCall, load: Load, why: &str) {
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
    call.reply.answer(Err(error));
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
