//! A call's way into its target's mailbox, by the table of routes and the registry actor, and back.

use std::{collections::HashMap, sync::Arc, time::Duration};

use hivekeep_kernel::{
    Addressing, AdmissionPermit, AskError, CallCx, Door, EffectKey, Layer, Progress, Receipt,
    Responder, SessionId, Target, ToolCall, ToolError, TraceContext, User, serve::ActorDirectory,
};
use hivekeep_ports::{ClientPrompt, Reservation};
use serde_json::Value;
use tokio::{sync::oneshot, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Inner, audit::Trail};
use crate::{
    Catalogue, ToolEntry, ToolView, codes,
    registry::{Lane, Msg, RoutedCall, Serves},
    sessions::InFlight,
};

/// Added to a time limit that the input itself names: the tool acts on that
/// limit and still has to tell what happened.
const MARGIN: Duration = Duration::from_secs(10);
/// No call waits longer than a day; keeps arithmetic on times in range.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Actors by the names that declarations use. Built once, at boot: an actor's
/// target stays good across the actor's restarts.
#[derive(Clone, Default)]
pub struct Routes {
    singletons: HashMap<String, Arc<dyn Target>>,
    directories: HashMap<&'static str, Arc<dyn ActorDirectory>>,
}

impl Routes {
    /// The one actor of this name.
    #[must_use]
    pub fn singleton(mut self, name: impl Into<String>, target: Arc<dyn Target>) -> Self {
        self.singletons.insert(name.into(), target);
        self
    }

    /// The actors of this kind.
    #[must_use]
    pub fn directory(mut self, kind: &'static str, directory: Arc<dyn ActorDirectory>) -> Self {
        self.directories.insert(kind, directory);
        self
    }

    /// Tools that nobody serves; empty when the boot is right.
    pub fn unserved(&self, catalogue: &Catalogue) -> Vec<&'static str> {
        let served = |entry: &ToolEntry| match entry.spec.addressing {
            Addressing::Singleton(name) => self.singletons.contains_key(name),
            Addressing::Field { kind, .. } => self.directories.contains_key(kind),
        };
        catalogue.entries().filter(|entry| !served(entry)).map(|entry| entry.name()).collect()
    }

    /// Path of the single actor that serves a tool, if it is down. One of many is named by an input, and
    /// found wanting when the call is routed.
    pub(crate) fn down(&self, entry: &ToolEntry) -> Option<&str> {
        let Addressing::Singleton(name) = entry.spec.addressing else { return None };
        let target = self.singletons.get(name)?;
        (!target.is_up()).then(|| target.key())
    }

    /// The target of a call whose input passed the schema.
    pub(crate) fn find(
        &self,
        entry: &ToolEntry,
        args: &Value,
    ) -> Result<Arc<dyn Target>, ToolError> {
        let unserved = || ToolError::internal(format!("nobody serves `{}`", entry.name()));
        match entry.spec.addressing {
            Addressing::Singleton(name) => self.singletons.get(name).cloned().ok_or_else(unserved),
            Addressing::Field { kind, field } => {
                let directory = self.directories.get(kind).ok_or_else(unserved)?;
                let name = args.get(field).and_then(Value::as_str).ok_or_else(|| {
                    let message = format!("`{field}` must say which {kind} is meant");
                    ToolError::new(Layer::Schema, codes::INVALID_INPUT, message)
                        .next(format!("pass `{field}`: an id or a unique name"))
                })?;
                directory.find(name)
            }
        }
    }
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let directories: Vec<_> = self.directories.keys().collect();
        let singletons: Vec<_> = self.singletons.keys().collect();
        f.debug_struct("Routes")
            .field("singletons", &singletons)
            .field("directories", &directories)
            .finish()
    }
}

/// A call that may go.
pub(super) struct Order<'a> {
    pub(super) entry: &'a ToolEntry,
    /// User who calls, as the door knows it.
    pub(super) user: Option<User>,
    pub(super) door: Door,
    pub(super) view: Arc<ToolView>,
    pub(super) args: Value,
    pub(super) progress: Progress,
    pub(super) cancel: CancellationToken,
    pub(super) timeout: Option<Duration>,
    pub(super) caller: Caller,
    pub(super) receipt: Receipt,
    pub(super) reserved: Option<Reservation>,
    pub(super) trace: Option<TraceContext>,
    pub(super) effect: Option<EffectKey>,
    pub(super) client: Option<Arc<dyn ClientPrompt>>,
}

/// The party that makes the call.
pub(super) enum Caller {
    /// A session at a door: the call ends with it.
    Client(InFlight),
    /// The daemon for a session, which counts as busy if it still is one. The call ends when its
    /// work has ended, also after a cancellation.
    Daemon(SessionId, Option<InFlight>),
}

pub(super) async fn deliver(
    inner: &Inner,
    order: Order<'_>,
    trail: &mut Trail,
) -> Result<Value, ToolError> {
    let Order { entry, user, door, args, progress, cancel, timeout, caller, .. } = order;
    let target = inner.routes.find(entry, &args)?;
    let limit = time_limit(entry, &args, timeout);
    let spec = entry.spec;
    let id = trail.call();
    // Token that nobody fires, for a call that does not end before its work.
    let never = CancellationToken::new();
    let (session, over, patient, live) = match caller {
        Caller::Client(live) => (live.shared().id, live.shared().over.clone(), false, Some(live)),
        Caller::Daemon(session, live) => (session, never, true, live),
    };
    // The caller's own token stays its own: only this call's is fired here.
    let cancel = cancel.child_token();
    let span = tracing::info_span!(
        "call", %id, tool = spec.name, %session, actor = target.key()
    );
    let routed = Instant::now();
    let deadline = routed + limit;
    let parking = inner.registry.clone();
    let cx = CallCx {
        id,
        session,
        tool: spec.name,
        caller: user,
        door,
        view: order.view,
        deadline,
        cancel: cancel.clone(),
        progress,
        receipt: order.receipt,
        // A registry that is being restarted holds no place of this call; so below.
        slot: AdmissionPermit::new(move || drop(parking.send(Msg::Parked(id)))),
        reserved: order.reserved,
        trace: order.trace,
        client: order.client,
        effect: order.effect.filter(|_| spec.keyed).map(Arc::new),
        span,
    };
    let (caller, mut answer) = oneshot::channel();
    // Held until the work has ended, whoever waits for it: the call's place among those of its
    // session, its count among the tool's, and its slot.
    let (running, registry) = (entry.stats.begin(), inner.registry.clone());
    let reply = Responder::new(entry.spec, caller, move |outcome| {
        running.ended(routed.elapsed(), outcome.is_err());
        drop((running, live));
        let _ = registry.send(Msg::Ended(id));
    });
    let (admitted, admission) = oneshot::channel();
    trail.routed(routed, admission);
    let lane = Lane::of(spec, &args);
    let serves = if entry.serves_all() { Serves::All } else { Serves::One };
    let call = ToolCall { tool: entry.spec, cx, args, reply };
    // Gone before it was answered (cancelled, too late, client gone) the work is told to stop.
    let stop = cancel.clone().drop_guard();
    let routed = RoutedCall { target, call, lane, serves, routed, admitted };
    inner.registry.send(Msg::Route(routed)).map_err(nothing_done)?;

    tokio::select! {
        biased;
        outcome = &mut answer => {
            stop.disarm();
            outcome.unwrap_or_else(|_| Err(nothing_done(AskError::Dropped("registry".to_owned()))))
        }
        () = cancel.cancelled(), if !patient => Err(ToolError::cancelled()),
        () = over.cancelled() => {
            Err(ToolError::new(Layer::Session, codes::SESSION_ENDED, "the session ended during the call"))
        }
        () = tokio::time::sleep_until(deadline) => Err(late(trail.was_admitted(), limit)),
    }
}

/// The caller's limit, else the input's own with a margin, else the tool's.
pub(crate) fn time_limit(entry: &ToolEntry, args: &Value, timeout: Option<Duration>) -> Duration {
    let spec = entry.spec;
    let named = || Some(Duration::from_secs((spec.limit_secs)(args)?).saturating_add(MARGIN));
    let declared = Duration::from_secs(spec.timeout_secs);
    timeout.or_else(named).unwrap_or(declared).min(LONGEST)
}

fn late(admitted: bool, limit: Duration) -> ToolError {
    // Whole seconds in the error; the part of one counts as one.
    let secs = limit.as_secs() + u64::from(limit.subsec_nanos() > 0);
    if admitted {
        ToolError::deadline(Layer::Actor, secs)
            .next("it was told to stop; see what was done before you repeat it")
    } else {
        ToolError::deadline(Layer::Admission, secs)
            .next("the target had no room for it; nothing was done")
    }
}

/// The call did not reach its actor.
fn nothing_done(error: impl Into<ToolError>) -> ToolError {
    error.into().detail("outcome", "nothing_done")
}

#[cfg(test)]
mod tests {
    use schemars::json_schema;
    use serde_json::json;

    use super::*;
    use crate::catalogue::tests::catalogue_of;

    #[test]
    fn a_call_has_its_own_time_or_its_inputs_or_its_tools() {
        let input = || json_schema!({ "type": "object", "description": "x" });
        let catalogue = catalogue_of(hivekeep_kernel::Effect::Read, input);
        let entry = catalogue.entries().next().expect("one");
        let limit = |args: Value, secs: Option<u64>| {
            time_limit(entry, &args, secs.map(Duration::from_secs)).as_secs()
        };
        assert_eq!(limit(json!({}), None), 1);
        assert_eq!(limit(json!({ "timeout_secs": 5 }), None), 15);
        assert_eq!(limit(json!({ "timeout_secs": 5 }), Some(7)), 7);
        assert_eq!(limit(json!({ "timeout_secs": u64::MAX }), None), 86_400);
        assert_eq!(limit(json!({}), Some(86_401)), 86_400);
    }

    #[test]
    fn part_of_a_second_counts_as_one_and_a_call_that_waited_did_nothing() {
        let told = |admitted, ms| {
            let error = late(admitted, Duration::from_millis(ms));
            (error.layer, error.details["deadline_secs"].as_u64().expect("a number"))
        };
        assert_eq!(told(true, 2_000), (Layer::Actor, 2));
        assert_eq!(told(false, 2_001), (Layer::Admission, 3));
        assert!(
            late(false, Duration::ZERO)
                .next_step
                .is_some_and(|next| next.contains("nothing was done"))
        );
    }
}
