//! Records of calls: an event and an entry of the audit log for each, whatever its outcome, as long as
//! refused calls are few.

use std::{borrow::Cow, time::Duration};

use hivekeep_audit::AuditLog;
use hivekeep_kernel::{CallId, Door, Layer, SessionId, ToolError, TraceContext, User};
use hivekeep_policy::{Ruling, Verdict};
use hivekeep_store::{Events, MadeEvent};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use tokio::{sync::oneshot, time::Instant};

use super::{CallOutcome, CallRequest};
use crate::{ToolEntry, codes};

/// A wait in the queue that a person should know of.
const LONG_WAIT: Duration = Duration::from_secs(1);
/// Names from outside are kept up to this many characters.
const NAME_CHARS: usize = 80;
/// Size that an event is counted with while it waits to be written.
const EVENT_BYTES: usize = 1024;

/// The two places where calls are recorded.
#[derive(Debug, Clone)]
pub(super) struct Records {
    pub(super) events: Events,
    /// None where the operator keeps no audit log.
    pub(super) audit: Option<AuditLog>,
}

impl Records {
    /// Refuses what could not be recorded, before anything of it is done.
    pub(super) fn ready(&self) -> Result<(), ToolError> {
        let ready = self.audit.as_ref().map_or(Ok(()), AuditLog::ready);
        ready.map_err(|error| {
            let why = format!("calls cannot be recorded: {error}");
            ToolError::new(Layer::Store, codes::AUDIT_UNAVAILABLE, why)
                .retry_after(Duration::from_secs(5))
        })
    }
}

/// Audit record of a call as it passes. Written when the call is finished, or when this is dropped:
/// a call whose client vanished is recorded as `abandoned`.
#[derive(Debug)]
pub(super) struct Trail {
    records: Records,
    started: Instant,
    call: CallId,
    session: SessionId,
    user: Option<User>,
    door: Door,
    /// Name that the caller gave, until the tool is found.
    tool: String,
    family: Option<&'static str>,
    /// True for a tool of another MCP server.
    from_source: bool,
    digest: Option<blake3::Hash>,
    verdicts: Vec<Verdict>,
    admission: Option<Admission>,
    trace: Option<TraceContext>,
    told: bool,
}

impl Trail {
    pub(super) fn begin(records: Records, request: &CallRequest) -> Self {
        let mut trail = Self::of(records, request.session, request.door, &request.tool);
        trail.trace = request.trace.clone();
        trail
    }

    pub(super) fn of(records: Records, session: SessionId, door: Door, tool: &str) -> Self {
        Self {
            records,
            started: Instant::now(),
            call: CallId::new(),
            session,
            user: None,
            door,
            tool: tool.chars().take(NAME_CHARS).collect(),
            family: None,
            from_source: false,
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

    pub(super) fn user(&mut self, user: User) {
        self.user = Some(user);
    }

    pub(super) fn input(&mut self, args: &Map<String, Value>) {
        self.digest = Some(digest(args));
    }

    pub(super) fn tool(&mut self, entry: &ToolEntry) {
        self.tool = entry.name().to_owned();
        self.family = Some(entry.spec.family);
        self.from_source = entry.origin.is_some();
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
        let mut notices = Vec::new();
        if !self.told && !self.tell(&result, duration) {
            notices.push("this call could not be written to the audit log".to_owned());
        }
        if waited >= LONG_WAIT {
            notices.push(format!("the call waited {} ms for its turn", waited.as_millis()));
        }
        let (call, from_source) = (self.call, self.from_source);
        CallOutcome { call, result, from_source, duration, notices, waiting: None, receipt: None }
    }

    fn queue_wait(&mut self) -> Duration {
        let Some(admission) = &mut self.admission else { return Duration::ZERO };
        admission.settle().unwrap_or_else(|| admission.at.elapsed())
    }

    fn tell(&mut self, result: &Result<Value, ToolError>, duration: Duration) -> bool {
        let (outcome, layer) = match result {
            Ok(_) => (Cow::Borrowed("ok"), None),
            Err(error) => (error.code.clone(), Some(error.layer)),
        };
        self.publish(outcome, layer, duration)
    }

    /// Writes the entry, and queues the event: a full queue loses it and says so in `events.lost`. False
    /// when the entry could not be written.
    fn publish(
        &mut self,
        outcome: Cow<'static, str>,
        layer: Option<Layer>,
        duration: Duration,
    ) -> bool {
        self.told = true;
        let finished = Finished {
            call: self.call,
            session: self.session,
            user: self.user,
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
        let written = self.records.audit.as_ref().map(|log| log.append("call", &finished.entry()));
        if let Some(Err(error)) = &written {
            tracing::error!(%error, call = %self.call, "not in the audit log");
        }
        // Every call waits for this: the event is put together by its writer.
        let made = move || finished.into_event();
        let _lost_is_counted = self.records.events.publish_made_later(EVENT_BYTES, made);
        !matches!(written, Some(Err(_)))
    }
}

/// A finished call, as events and the audit log record it.
struct Finished {
    call: CallId,
    session: SessionId,
    user: Option<User>,
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

/// Data of the event `call.finished`.
#[derive(Serialize)]
struct CallEvent {
    call: CallId,
    session: SessionId,
    door: Door,
    tool: String,
    family: Option<&'static str>,
    #[serde(serialize_with = "hexadecimal")]
    args_digest: Option<blake3::Hash>,
    /// The ruling of each layer.
    #[serde(serialize_with = "rulings")]
    layers: Vec<Verdict>,
    verdicts: Vec<Verdict>,
    outcome: Cow<'static, str>,
    layer: Option<Layer>,
    duration_ms: f64,
    queue_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
}

fn rulings<S: Serializer>(verdicts: &[Verdict], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(verdicts.iter().map(|verdict| (verdict.layer, verdict.ruling)))
}

impl Finished {
    fn into_event(self) -> MadeEvent<CallEvent> {
        let verdicts = self.verdicts.iter().filter(|verdict| verdict.notable()).cloned().collect();
        let data = CallEvent {
            call: self.call,
            session: self.session,
            door: self.door,
            tool: self.tool,
            family: self.family,
            args_digest: self.digest,
            layers: self.verdicts,
            verdicts,
            outcome: self.outcome,
            layer: self.layer,
            duration_ms: millis(self.duration),
            queue_ms: millis(self.waited),
            trace_id: self.trace.map(|trace| trace.trace_id().to_owned()),
        };
        MadeEvent { kind: "call.finished", subject: self.call.to_string(), data }
    }
}

/// A call's entry in the audit log.
#[derive(Serialize)]
struct CallEntry<'a> {
    call: CallId,
    session: SessionId,
    user: Option<User>,
    door: Door,
    tool: &'a str,
    /// BLAKE3 of the input in a canonical form; the input itself is nowhere.
    #[serde(serialize_with = "hexadecimal")]
    args_digest: Option<blake3::Hash>,
    /// `allow`, or `deny` by the layer `decided_by`; null before there was a decision.
    decision: Option<Ruling>,
    decided_by: Option<&'static str>,
    outcome: &'a str,
    layer: Option<Layer>,
    duration_ms: f64,
}

fn hexadecimal<S: Serializer>(digest: &Option<blake3::Hash>, to: S) -> Result<S::Ok, S::Error> {
    digest.map(|digest| digest.to_hex()).as_deref().serialize(to)
}

impl Finished {
    fn entry(&self) -> CallEntry<'_> {
        let denial = self.verdicts.iter().find(|verdict| verdict.ruling == Ruling::Deny);
        let last = denial.or(self.verdicts.last());
        CallEntry {
            call: self.call,
            session: self.session,
            user: self.user,
            door: self.door,
            tool: &self.tool,
            args_digest: self.digest,
            decision: last.map(|verdict| verdict.ruling),
            decided_by: denial.map(|verdict| verdict.layer),
            outcome: &self.outcome,
            layer: self.layer,
            duration_ms: millis(self.duration),
        }
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
            let _logged = self.publish(Cow::Borrowed("abandoned"), None, duration);
        }
    }
}

/// Milliseconds with three digits after the point.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1_000_000.0).round() / 1_000.0
}

/// Digest of an input, which tells inputs apart without showing them.
///
/// BLAKE3 over a canonical form: the order of an object's keys does not count,
/// everything else does. Each value is tagged and each text led by its length,
/// so that no two values have one form.
fn digest(args: &Map<String, Value>) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hash_object(&mut hasher, args);
    hasher.finalize()
}

fn hash_value(hasher: &mut blake3::Hasher, value: &Value) {
    match value {
        Value::Null => hash_tag(hasher, b'n', 0),
        Value::Bool(truth) => hash_tag(hasher, b'b', usize::from(*truth)),
        Value::Number(number) => hash_text(hasher, b'd', &number.to_string()),
        Value::String(string) => hash_text(hasher, b's', string),
        Value::Array(items) => {
            hash_tag(hasher, b'a', items.len());
            items.iter().for_each(|item| hash_value(hasher, item));
        }
        Value::Object(map) => hash_object(hasher, map),
    }
}

fn hash_object(hasher: &mut blake3::Hasher, map: &Map<String, Value>) {
    hash_tag(hasher, b'o', map.len());
    let mut pairs: Vec<_> = map.iter().collect();
    pairs.sort_unstable_by_key(|(key, _)| key.as_str());
    for (key, item) in pairs {
        hash_text(hasher, b'k', key);
        hash_value(hasher, item);
    }
}

fn hash_text(hasher: &mut blake3::Hasher, kind: u8, text: &str) {
    hash_tag(hasher, kind, text.len());
    hasher.update(text.as_bytes());
}

fn hash_tag(hasher: &mut blake3::Hasher, kind: u8, len: usize) {
    hasher.update(&[kind]);
    hasher.update(&(len as u64).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digested(json: &str) -> blake3::Hash {
        digest(&serde_json::from_str(json).expect("an object"))
    }

    #[test]
    fn the_order_of_keys_does_not_count() {
        let (a, b) = (r#"{"a": 1, "b": {"c": 2, "d": 3}}"#, r#"{"b": {"d": 3, "c": 2}, "a": 1}"#);
        assert_eq!(digested(a), digested(b));
    }

    #[test]
    fn everything_else_does() {
        let different = [
            r#"{}"#,
            r#"{"a": 1}"#,
            r#"{"a": 1.0}"#,
            r#"{"a": "1"}"#,
            r#"{"a": true}"#,
            r#"{"a": null}"#,
            r#"{"a": [1]}"#,
            r#"{"a": [[1]]}"#,
            r#"{"a": {"b": 1}}"#,
            r#"{"ab": "c"}"#,
            r#"{"a": "bc"}"#,
            r#"{"a": ["b", "c"]}"#,
            r#"{"a": ["c", "b"]}"#,
        ];
        let digests: std::collections::HashSet<_> =
            different.iter().map(|json| digested(json)).collect();
        assert_eq!(digests.len(), different.len());
    }
}
