//! One event per call, whatever became of it, as long as refused ones are few.

use std::{borrow::Cow, time::Duration};

use hivekeep_kernel::{CallId, Door, Layer, SessionId, ToolError, TraceContext};
use hivekeep_store::{Events, NewEvent};
use serde_json::{Map, Value, json};
use tokio::{sync::oneshot, time::Instant};

use super::{CallOutcome, CallRequest, Verdict, decide::json as verdicts_json, digest};
use crate::ToolEntry;

/// A wait in the queue that a person should know of.
const LONG_WAIT: Duration = Duration::from_secs(1);
/// Names from outside are kept up to this many characters.
const NAME_CHARS: usize = 80;
/// Size that an event is counted with while it waits to be written.
const EVENT_BYTES: usize = 1024;

/// Audit record of a call as it passes. Written when the call is finished, or when this is dropped:
/// a call whose client vanished is recorded as `abandoned`.
#[derive(Debug)]
pub(super) struct Trail {
    events: Events,
    started: Instant,
    call: CallId,
    session: SessionId,
    door: Door,
    /// As it was asked for, until it is found.
    tool: String,
    family: Option<&'static str>,
    digest: Option<blake3::Hash>,
    verdicts: Vec<Verdict>,
    admission: Option<Admission>,
    trace: Option<TraceContext>,
    told: bool,
}

impl Trail {
    pub(super) fn begin(events: Events, request: &CallRequest) -> Self {
        let mut trail = Self::of(events, request.session, request.door, &request.tool);
        trail.trace = request.trace.clone();
        trail
    }

    pub(super) fn of(events: Events, session: SessionId, door: Door, tool: &str) -> Self {
        Self {
            events,
            started: Instant::now(),
            call: CallId::new(),
            session,
            door,
            tool: tool.chars().take(NAME_CHARS).collect(),
            family: None,
            digest: None,
            verdicts: Vec::new(),
            admission: None,
            trace: None,
            told: false,
        }
    }

    pub(super) fn call(&self) -> CallId {
        self.call
    }

    pub(super) fn input(&mut self, args: &Map<String, Value>) {
        self.digest = Some(digest::of(args));
    }

    pub(super) fn tool(&mut self, entry: &ToolEntry) {
        self.tool = entry.name().to_owned();
        self.family = Some(entry.info.spec.family);
    }

    pub(super) fn verdicts(&mut self) -> &mut Vec<Verdict> {
        &mut self.verdicts
    }

    /// Notes that the call goes to the registry now, which sends on `admitted` how long it waited.
    pub(super) fn routed(&mut self, at: Instant, admitted: oneshot::Receiver<Duration>) {
        self.admission = Some(Admission { at, admitted, waited: None });
    }

    /// True when the call was handed to its target. If it was not, it never will be.
    pub(super) fn was_admitted(&mut self) -> bool {
        self.admission.as_mut().is_some_and(|admission| admission.settle().is_some())
    }

    /// True when the call got no further than the steps that cost nothing.
    pub(super) fn refused(&self) -> bool {
        self.admission.is_none()
    }

    /// Leaves this call to a summary: no event of its own is written.
    pub(super) fn hush(&mut self) {
        self.told = true;
    }

    pub(super) fn finish(mut self, result: Result<Value, ToolError>) -> CallOutcome {
        let duration = self.started.elapsed();
        let waited = self.queue_wait();
        if !self.told {
            self.tell(&result, duration);
        }
        let mut notices = Vec::new();
        if waited >= LONG_WAIT {
            notices.push(format!("the call waited {} ms for its turn", waited.as_millis()));
        }
        CallOutcome { call: self.call, result, duration, notices, waiting: None, receipt: None }
    }

    fn queue_wait(&mut self) -> Duration {
        let Some(admission) = &mut self.admission else { return Duration::ZERO };
        admission.settle().unwrap_or_else(|| admission.at.elapsed())
    }

    fn tell(&mut self, result: &Result<Value, ToolError>, duration: Duration) {
        let (outcome, layer) = match result {
            Ok(_) => (Cow::Borrowed("ok"), None),
            Err(error) => (error.code.clone(), Some(error.layer)),
        };
        self.publish(outcome, layer, duration);
    }

    /// Queues the event; a full queue loses it and says so in `events.lost`.
    fn publish(&mut self, outcome: Cow<'static, str>, layer: Option<Layer>, duration: Duration) {
        self.told = true;
        let finished = Finished {
            call: self.call,
            session: self.session,
            door: self.door,
            tool: std::mem::take(&mut self.tool),
            family: self.family,
            digest: self.digest.take(),
            verdicts: std::mem::take(&mut self.verdicts),
            outcome,
            layer,
            duration,
            waited: self.queue_wait(),
            trace: self.trace.take(),
        };
        // Every call waits for this: the event is put together by its writer.
        let made = move || finished.into_event();
        let _lost_is_counted = self.events.publish_made_later(EVENT_BYTES, made);
    }
}

/// Contents of `call.finished`.
struct Finished {
    call: CallId,
    session: SessionId,
    door: Door,
    tool: String,
    family: Option<&'static str>,
    digest: Option<blake3::Hash>,
    verdicts: Vec<Verdict>,
    outcome: Cow<'static, str>,
    layer: Option<Layer>,
    duration: Duration,
    waited: Duration,
    trace: Option<TraceContext>,
}

impl Finished {
    fn into_event(self) -> NewEvent {
        let call = self.call.to_string();
        let mut data = json!({
            "call": call,
            "session": self.session,
            "door": self.door,
            "tool": self.tool,
            "family": self.family,
            "args_digest": self.digest.map(|digest| digest.to_hex().to_string()),
            "verdicts": verdicts_json(&self.verdicts),
            "outcome": self.outcome,
            "layer": self.layer,
            "duration_ms": millis(self.duration),
            "queue_ms": millis(self.waited),
        });
        if let Some(trace) = &self.trace {
            data["trace_id"] = json!(trace.trace_id());
        }
        NewEvent { kind: "call.finished".to_owned(), subject: call, data }
    }
}

/// A routed call's admission, as its caller's end sees it.
#[derive(Debug)]
struct Admission {
    at: Instant,
    admitted: oneshot::Receiver<Duration>,
    waited: Option<Duration>,
}

impl Admission {
    /// The time that the call waited, if it was admitted; if not, it cannot be any more.
    fn settle(&mut self) -> Option<Duration> {
        self.admitted.close();
        self.waited = self.waited.or_else(|| self.admitted.try_recv().ok());
        self.waited
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        if !self.told {
            let duration = self.started.elapsed();
            self.publish(Cow::Borrowed("abandoned"), None, duration);
        }
    }
}

/// Milliseconds with three digits after the point.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1_000_000.0).round() / 1_000.0
}
