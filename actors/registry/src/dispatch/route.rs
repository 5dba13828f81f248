//! Into the target's mailbox, by way of the registry actor, and back.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{
    Address, Addressing, AdmissionPermit, AskError, CallCx, Door, Layer, Progress, Receipt,
    SessionId, ToolCall, ToolError, ports::Reservation,
};
use serde_json::Value;
use tokio::{sync::oneshot, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Inner, audit::Trail, pending::Pending};
use crate::{
    Entry, codes,
    registry::{self, Fate, Lane, RoutedCall, Serves, Ticket},
    sessions::InFlight,
};

/// Added to a time limit that the input itself names: the tool acts on that
/// limit and still has to tell what happened.
const MARGIN: Duration = Duration::from_secs(10);
/// No call waits longer than a day; keeps arithmetic on times in range.
const LONGEST: Duration = Duration::from_secs(86_400);

/// A call that may go.
pub(super) struct Order<'a> {
    pub(super) entry: &'a Entry,
    pub(super) door: Door,
    pub(super) args: Value,
    pub(super) progress: Progress,
    pub(super) cancel: CancellationToken,
    pub(super) timeout: Option<Duration>,
    pub(super) caller: Caller,
    pub(super) receipt: Receipt,
    pub(super) reserved: Option<Reservation>,
}

/// Whose call it is.
pub(super) enum Caller {
    /// A session at a door: the call ends with it.
    Client(InFlight),
    /// The daemon for a session, which counts as busy if it still is one. The call ends when its
    /// work has ended, also after a cancellation.
    Daemon(SessionId, Option<InFlight>),
}

pub(super) async fn pass(
    inner: &Inner,
    order: Order<'_>,
    trail: &mut Trail,
) -> Result<Value, ToolError> {
    let Order { entry, door, args, progress, cancel, timeout, caller, receipt, reserved } = order;
    let target = inner.routes.find(entry, &args)?;
    let limit = time_limit(entry, &args, timeout);
    let spec = &entry.info.spec;
    let id = trail.call();
    // What nobody fires, for a call that does not end before its work.
    let never = CancellationToken::new();
    let (session, over, patient, live) = match caller {
        Caller::Client(live) => (live.face().id, live.face().over.clone(), false, Some(live)),
        Caller::Daemon(session, live) => (session, never, true, live),
    };
    // The caller's own token stays its own: only this call's is fired here.
    let cancel = cancel.child_token();
    let span = tracing::info_span!(
        "call", %id, tool = spec.name, family = spec.family, %session, ?door, actor = target.key()
    );
    let deadline = Instant::now() + limit;
    let admission = inner.registry.clone();
    let cx = CallCx {
        id,
        session,
        tool: spec.name,
        door,
        deadline,
        cancel: cancel.clone(),
        progress,
        receipt,
        // A registry that is being restarted holds no place of this call.
        slot: AdmissionPermit::new(move || drop(admission.send(registry::Msg::Parked(id)))),
        reserved,
        span,
    };
    let (reply, answer) = oneshot::channel();
    let call = ToolCall { tool: entry.info, cx, args, reply };
    let ticket = Arc::new(Ticket::new());
    trail.ticket(ticket.clone());
    let lane = Lane::from(spec.class(&call.args));
    let serves = match spec.addressing {
        Addressing::Singleton(_) => Serves::All,
        Addressing::Field { .. } => Serves::One,
    };
    let journey = RoutedCall { target, call, lane, serves, ticket: ticket.clone() };
    inner.registry.send(registry::Msg::Route(journey)).map_err(nothing_done)?;
    let running = inner.stats[entry.index].begin();
    let mut pending =
        Pending::new(id, answer, inner.registry.clone(), cancel.clone(), live, running);

    tokio::select! {
        biased;
        answer = pending.answer() => match answer {
            Some(result) => result,
            None => Err(lost(&inner.registry, &ticket, entry).await),
        },
        () = cancel.cancelled(), if !patient => Err(ToolError::cancelled()),
        () = over.cancelled() => {
            Err(ToolError::new(Layer::Session, codes::SESSION_ENDED, "the session ended during the call"))
        }
        () = tokio::time::sleep_until(deadline) => Err(late(&ticket, limit)),
    }
}

/// The caller's limit, else the input's own with a margin, else the tool's.
fn time_limit(entry: &Entry, args: &Value, timeout: Option<Duration>) -> Duration {
    let spec = &entry.info.spec;
    let named = || Some(Duration::from_secs((spec.limit_secs)(args)?).saturating_add(MARGIN));
    let declared = Duration::from_secs(spec.timeout_secs);
    timeout.or_else(named).unwrap_or(declared).min(LONGEST)
}

fn late(ticket: &Ticket, limit: Duration) -> ToolError {
    // Whole seconds in the error; the part of one counts as one.
    let secs = limit.as_secs() + u64::from(limit.subsec_nanos() > 0);
    match ticket.fate() {
        Fate::Waiting => ToolError::deadline(Layer::Admission, secs)
            .next("the target had no room for it; nothing was done"),
        _ => ToolError::deadline(Layer::Actor, secs)
            .next("it was told to stop; see what was done before you repeat it"),
    }
}

/// The answer will not come: tells whether anything can have been done.
async fn lost(registry: &Address<registry::Msg>, ticket: &Ticket, entry: &Entry) -> ToolError {
    // When this is answered, the registry has written down whether the mailbox
    // took the call. A registry that is gone leaves that unknown.
    let _ = registry.ask(Duration::from_secs(1), registry::Msg::Settle).await;
    let path = match entry.info.spec.addressing {
        Addressing::Singleton(name) => name,
        Addressing::Field { kind, .. } => kind,
    };
    match ticket.fate() {
        Fate::Unreached => nothing_done(AskError::Dropped(path.to_owned())),
        Fate::Waiting | Fate::Refused => nothing_done(AskError::Dropped("registry".to_owned())),
        Fate::HandedOver => ToolError::from(AskError::Dropped(path.to_owned()))
            .next("its actor ended before it answered; see what was done before you repeat it")
            .detail("outcome", "unknown"),
    }
}

/// The call did not reach its actor.
fn nothing_done(error: impl Into<ToolError>) -> ToolError {
    error.into().detail("outcome", "nothing_done")
}
