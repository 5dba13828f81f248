//! Conversion of a call's outcome into an answer, with the events of the call and digests of its input and result.
//! Another MCP server's result is converted block by block, nothing left out.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use chrono::Utc;
use hivekeep_door_server::{
    excerpt::excerpt_if_long,
    result_form::{ANNOUNCEMENT_FIELD, ResultForm, announcement, announcement_field},
};
use hivekeep_kernel::{Effect, Layer, SessionId, ToolError};
use hivekeep_policy::{hexadecimal, input_digest};
use hivekeep_ports::WaitingSummary;
use hivekeep_registry::CallOutcome;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{InvokeBody, ToolRun};
use crate::{
    descriptor::{OWNER, read_only, risk, tool_id},
    error::ApiError,
    published::{
        PolicyResult, ResultContent, SourceKind, ToolErrorCode, ToolEventKind, ToolEventPayload,
        ToolInvokeResponse, ToolResultPayload,
    },
};

/// Fields that all events of a call have.
pub(super) struct CallNote {
    pub(super) common: ToolEventPayload,
    pub(super) duration_ms: u64,
}

impl CallNote {
    pub(super) fn new(run: &ToolRun, session: SessionId, outcome: &CallOutcome) -> Self {
        let (spec, body) = (run.tool, &run.body);
        let (shown, redacted) = without_fields(&run.input, &body.sensitive_input_fields);
        let named = body.correlation_id.clone().filter(|id| !id.is_empty());
        let common = ToolEventPayload {
            kind: ToolEventKind::CallStarted,
            tool_id: tool_id(spec),
            display_title: spec.title,
            read_only: read_only(spec),
            destructive: spec.effect == Effect::Destroy,
            open_world: spec.open_world,
            risk: risk(spec),
            source_kind: if outcome.from_source { SourceKind::Mcp } else { SourceKind::Builtin },
            source_owner: spec.source.unwrap_or(OWNER),
            workspace_id: run.scope.workspace.clone(),
            session_id: session.to_string(),
            agent_name: run.scope.agent(),
            approval_mode: None,
            decision: PolicyResult::Allowed,
            reason_codes: Vec::new(),
            duration_ms: None,
            result_bytes: None,
            correlation_id: named.unwrap_or_else(|| outcome.call.to_string()),
            error_code: None,
            input_digest: input_digest(&shown),
            redacted_input_fields: redacted,
            result_digest: None,
            truncated: false,
        };
        // Rounded up: a quick call took some time all the same.
        let duration_ms = outcome.duration.as_micros().div_ceil(1_000);
        Self { common, duration_ms: u64::try_from(duration_ms).unwrap_or(u64::MAX) }
    }

    pub(super) fn ended(&self, kind: ToolEventKind) -> ToolEventPayload {
        let duration_ms = Some(self.duration_ms);
        ToolEventPayload { kind, duration_ms, ..self.common.clone() }
    }
}

pub(super) fn text(text: String) -> ResultContent {
    ResultContent { kind: "text", text: Some(text), data: None, mime_type: None }
}

/// Parts of an answer beside the result.
pub(super) struct Beside {
    notices: Vec<String>,
    waiting: Option<WaitingSummary>,
}

impl Beside {
    pub(super) fn of(outcome: &mut CallOutcome) -> Self {
        Self { notices: std::mem::take(&mut outcome.notices), waiting: outcome.waiting.take() }
    }

    /// Content that begins with the result's, and metadata.
    pub(super) fn with(
        self,
        mut content: Vec<ResultContent>,
        body: &InvokeBody,
    ) -> (Vec<ResultContent>, Map<String, Value>) {
        let mut metadata = Map::new();
        content.extend(self.notices.into_iter().map(text));
        for (key, value) in [("tool_call_id", &body.tool_call_id), ("turn_id", &body.turn_id)] {
            if let Some(value) = value {
                metadata.insert(key.to_owned(), json!(value));
            }
        }
        if let Some(waits) = &self.waiting {
            let now = Utc::now();
            content.push(text(announcement(waits, now)));
            metadata.insert(ANNOUNCEMENT_FIELD.to_owned(), announcement_field(waits, now));
        }
        (content, metadata)
    }
}

/// The answer to a call that succeeded. `json` is the result's, which is made once.
pub(super) fn success(
    note: CallNote,
    result: ResultForm,
    json: String,
    beside: Beside,
    body: &InvokeBody,
) -> Response {
    let (bytes, result_digest) = (json.len(), result_digest(&json));
    let (content, structured) = match result {
        ResultForm::Blocks(result) => foreign_parts(result),
        ResultForm::Json(result) => {
            (vec![text(excerpt_if_long(&result).unwrap_or(json))], Some(result))
        }
    };
    let (content, metadata) = beside.with(content, body);
    let completed = ToolEventPayload {
        result_bytes: Some(bytes),
        result_digest: Some(result_digest),
        ..note.ended(ToolEventKind::CallCompleted)
    };
    let duration_ms = note.duration_ms;
    written(&ToolInvokeResponse {
        tool_id: note.common.tool_id.clone(),
        status: "completed",
        result: ToolResultPayload {
            content,
            structured,
            preview: None,
            artifacts: Vec::new(),
            metadata,
            redactions: Vec::new(),
            truncated: false,
            bytes,
            duration_ms,
        },
        truncated: false,
        duration_ms,
        events: vec![note.common, completed],
    })
}

/// An answer as it is sent, for which as much room is made at once as it likely takes.
pub(super) fn written(answer: &ToolInvokeResponse) -> Response {
    /// Bytes of an answer without its result.
    const BESIDE_BYTES: usize = 2_048;
    // The result is in the answer twice: as JSON and, escaped, as text.
    let result = answer.result.structured.as_ref().map_or(0, |_| answer.result.bytes);
    let mut bytes = Vec::with_capacity(BESIDE_BYTES + 5 * result / 2);
    // Strings, numbers and JSON values serialise, and a vector takes all.
    let _written = serde_json::to_writer(&mut bytes, answer);
    ([(header::CONTENT_TYPE, "application/json")], bytes).into_response()
}

/// The answer to a call that was refused or failed. Its events are in the details.
pub(super) fn failure(note: CallNote, error: ToolError, id: &str) -> ApiError {
    // A call that was refused before it was let in did not begin.
    let denied = matches!(error.layer, Layer::Policy | Layer::Approval);
    let began = !matches!(error.layer, Layer::Policy | Layer::Resolve | Layer::Session);
    let mut answer = ApiError::of_call(error, id);
    let ApiError::Tool(_, payload) = &mut answer else { return answer };
    let kind = if denied { ToolEventKind::CallDenied } else { ToolEventKind::CallFailed };
    let decision = match payload.code {
        ToolErrorCode::ToolApprovalRequired => PolicyResult::ApprovalRequired,
        ToolErrorCode::ToolUnavailable => PolicyResult::Unavailable,
        _ if denied => PolicyResult::Denied,
        _ => PolicyResult::Allowed,
    };
    let ended = ToolEventPayload {
        decision,
        reason_codes: payload.reason_codes.clone(),
        error_code: Some(payload.code),
        ..note.ended(kind)
    };
    let mut events = Vec::new();
    if began {
        events.push(note.common);
    }
    events.push(ended);
    let events: Vec<Value> = events.iter().map(|event| json!(event)).collect();
    payload.details.insert("events".to_owned(), events.into());
    answer
}

/// Content and structured part of an MCP result.
fn foreign_parts(mut result: Value) -> (Vec<ResultContent>, Option<Value>) {
    let structured = result.get_mut("structuredContent").map(Value::take);
    let blocks = match result.get_mut("content").map(Value::take) {
        Some(Value::Array(blocks)) => blocks,
        _ => Vec::new(),
    };
    (blocks.into_iter().map(content).collect(), structured)
}

fn content(mut block: Value) -> ResultContent {
    let kind = match block["type"].as_str() {
        Some("text") => "text",
        Some("image") => "image",
        Some("audio") => "audio",
        _ => "mcp",
    };
    let mut text = |key: &str| match block.get_mut(key).map(Value::take) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    match kind {
        "text" => ResultContent { kind, text: text("text"), data: None, mime_type: None },
        "image" | "audio" => {
            let (data, mime_type) = (text("data").map(Value::from), text("mimeType"));
            ResultContent { kind, text: None, data, mime_type }
        }
        _ => ResultContent { kind, text: None, data: Some(block), mime_type: None },
    }
}

/// Text in place of a value that is left out of a digest.
const REDACTED: &str = "[REDACTED]";

/// Digest of a result, of its JSON.
pub(super) fn result_digest(json: &str) -> String {
    format!("sha256:{}", hexadecimal(&Sha256::digest(json)))
}

/// The input without the values of these fields, at any depth, and which of them it had.
fn without_fields(
    input: &Map<String, Value>,
    fields: &[String],
) -> (Map<String, Value>, Vec<String>) {
    let (mut input, mut found) = (input.clone(), Vec::new());
    if !fields.is_empty() {
        hide(&mut input, fields, &mut found);
    }
    (input, found)
}

fn hide(object: &mut Map<String, Value>, fields: &[String], found: &mut Vec<String>) {
    for (key, value) in object {
        if fields.iter().any(|field| field == key) {
            *value = REDACTED.into();
            if !found.contains(key) {
                found.push(key.clone());
            }
        } else {
            hide_in(value, fields, found);
        }
    }
}

fn hide_in(value: &mut Value, fields: &[String], found: &mut Vec<String>) {
    match value {
        Value::Object(object) => hide(object, fields, found),
        Value::Array(list) => list.iter_mut().for_each(|item| hide_in(item, fields, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_arrives() {
        let result = json!({
            "content": [
                { "type": "text", "text": "hello" },
                { "type": "image", "data": "AAAA", "mimeType": "image/png" },
                { "type": "resource", "resource": { "uri": "x://y", "text": "whole" } },
            ],
            "structuredContent": { "count": 1 },
        });
        let (content, structured) = foreign_parts(result);
        assert_eq!(structured, Some(json!({ "count": 1 })));
        let [text, image, other] = content.try_into().expect("three");
        assert_eq!((text.kind, text.text.as_deref()), ("text", Some("hello")));
        assert_eq!((image.kind, image.data), ("image", Some(json!("AAAA"))));
        assert_eq!(image.mime_type.as_deref(), Some("image/png"));
        assert_eq!(other.kind, "mcp");
        let block = other.data.expect("the block");
        assert_eq!(
            (&block["type"], &block["resource"]["text"]),
            (&json!("resource"), &json!("whole"))
        );
    }

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    #[test]
    fn an_input_is_known_by_its_content_and_a_secret_is_left_out() {
        let one = object(json!({ "a": 1, "b": { "c": [1.0, "x"] } }));
        let same = object(json!({ "b": { "c": [1, "x"] }, "a": 1 }));
        assert_eq!(input_digest(&one), input_digest(&same));
        assert_ne!(input_digest(&one), input_digest(&object(json!({ "a": 2 }))));
        let secret = |text: &str| object(json!({ "list": [{ "password": text }], "a": 1 }));
        let fields = ["password".to_owned(), "other".to_owned()];
        let (hidden, found) = without_fields(&secret("x"), &fields);
        assert_eq!(found, ["password"]);
        assert_eq!(input_digest(&hidden), input_digest(&without_fields(&secret("y"), &fields).0));
        assert_ne!(input_digest(&secret("x")), input_digest(&secret("y")));
        // The digest of the empty text, as published.
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(result_digest(""), empty);
    }
}
