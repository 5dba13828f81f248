//! Conversion of a call's outcome into MCP's result.
//!
//! A success is structured content, and the same as compact JSON text, since clients from before 2025-06-18
//! read the text alone. For later clients the text of a long result is an excerpt, so that the whole is there
//! once: it keeps every key and says of each long string how it begins, how it ends and how much is left out.
//! A tool that shows images makes the blocks of its results itself (`doors/result_form.rs`).
//! A refusal or failure is a tool result that the model reads: message and next step as text, then the whole
//! error as JSON text. The error is not structured content: the official TypeScript client checks that
//! against the tool's output schema in errors, too, and would show its user a complaint about the schema
//! instead. Where a result is kept, the error has a link to it.
//! Messages that wait in the session's inboxes are announced behind a success, refusal or failure
//! (`doors/result_form.rs`).
//! The only protocol error is an unknown tool, as the specification wants.

use chrono::Utc;
use hivekeep_kernel::{Layer, ToolError};
use hivekeep_registry::CallOutcome;
use rmcp::{
    ErrorData,
    model::{CallToolResult, ContentBlock, Implementation, ProtocolVersion, Resource, ResultType},
};
use serde_json::{Value, json};

use crate::{
    codes,
    doors::{
        plain,
        result_form::{
            ANNOUNCEMENT_FIELD, ContentOf, ResultForm, announcement, announcement_field,
        },
    },
};

/// The answer to a `tools/call` of a client of this revision.
pub(super) fn of(
    outcome: CallOutcome,
    revision: Option<ProtocolVersion>,
    content: ContentOf,
) -> Result<CallToolResult, ErrorData> {
    // The first revision with structured content, and with links to resources.
    let is_read = revision.is_some_and(|it| it >= ProtocolVersion::V_2025_06_18);
    let from_source = outcome.from_source;
    let mut answer = match outcome.result {
        Ok(value) => success(ResultForm::of(value, from_source, content), is_read)?,
        Err(error) if error.layer == Layer::Resolve && error.is(codes::UNKNOWN_TOOL) => {
            return Err(protocol(error));
        }
        Err(error) => {
            let mut answer = refused(&error);
            let link = kept(&error).filter(|_| is_read).map(ContentBlock::resource_link);
            answer.content.extend(link);
            answer
        }
    };
    answer.content.extend(outcome.notices.into_iter().map(ContentBlock::text));
    if let Some(waits) = &outcome.waiting {
        let now = Utc::now();
        answer.content.push(ContentBlock::text(announcement(waits, now)));
        let meta = answer.meta.get_or_insert_default();
        meta.0.insert(ANNOUNCEMENT_FIELD.to_owned(), announcement_field(waits, now));
    }
    Ok(answer)
}

fn success(result: ResultForm, is_read: bool) -> Result<CallToolResult, ErrorData> {
    match result {
        // Blocks as the server or the tool gave them: text, images, audio, resources and the structured part.
        ResultForm::Blocks(value) => {
            let mut answer: CallToolResult = serde_json::from_value(value).map_err(|error| {
                protocol(ToolError::internal(format!("blocks of a result: {error}")))
            })?;
            // Servers of earlier revisions leave the type out, and clients of 2026-07-28 want it.
            answer.result_type = Some(ResultType::COMPLETE);
            Ok(answer)
        }
        ResultForm::Json(value) => {
            let text = excerpt_text(&value, is_read);
            let mut answer = CallToolResult::success(vec![ContentBlock::text(text)]);
            answer.structured_content = Some(value);
            Ok(answer)
        }
    }
}

/// The answer to a call that was refused or failed.
pub(super) fn refused(error: &ToolError) -> CallToolResult {
    let whole = json!({ "error": error }).to_string();
    CallToolResult::error(vec![ContentBlock::text(error.to_text()), ContentBlock::text(whole)])
}

/// The result that the error says is kept.
fn kept(error: &ToolError) -> Option<Resource> {
    let kept = error.details.get("artifact").filter(|_| error.is(codes::RESULT_TOO_LARGE))?;
    let resource = Resource::new(kept["uri"].as_str()?, "the whole result");
    Some(resource.with_mime_type(kept["mime_type"].as_str()?).with_size(kept["bytes"].as_u64()?))
}

/// An error outside any tool: of the request, or of the daemon.
pub(super) fn protocol(error: ToolError) -> ErrorData {
    let (text, layer) = (error.to_text(), error.layer);
    let data = Some(json!({ "error": error }));
    match layer {
        Layer::Resolve => ErrorData::invalid_params(text, data),
        _ => ErrorData::internal_error(text, data),
    }
}

/// A client's name for itself, in characters that can be shown.
pub(super) fn client_name(client: Option<Implementation>) -> String {
    let named = client.map(|client| format!("{} {}", client.name, client.version));
    plain::name(&named.unwrap_or_else(|| "unknown".to_owned()), 120)
}

/// Bytes of JSON up to which the text is the whole result: as much as a model reads in one piece.
const WHOLE_BYTES: usize = 64 * 1024;
/// Bytes that an excerpt shows of each end of a long string.
const SHOWN_BYTES: usize = 4 * 1024;
/// Items that an excerpt shows of a long list, and names of a large object.
const SHOWN_ITEMS: usize = 64;
/// All that an excerpt shows, whatever its shape.
const EXCERPT_BYTES: usize = 48 * 1024;

/// The result as text: whole where it is short, or where nobody reads the structured content.
fn excerpt_text(value: &Value, structured_is_read: bool) -> String {
    let long = structured_is_read.then(|| excerpt_if_long(value)).flatten();
    long.unwrap_or_else(|| value.to_string())
}

/// The excerpt of a value that is long.
pub(in crate::doors) fn excerpt_if_long(value: &Value) -> Option<String> {
    match fits(value, WHOLE_BYTES) {
        Some(_) => None,
        None => Some(shown(value, &mut { EXCERPT_BYTES }).to_string()),
    }
}

/// The rest of `room` after the value's JSON, or a little less; `None` if it does not fit. Looks at
/// no more of the value than that.
fn fits(value: &Value, room: usize) -> Option<usize> {
    const BESIDE: usize = 8;
    match value {
        Value::String(text) => room.checked_sub(text.len() + BESIDE),
        Value::Array(items) => {
            items.iter().try_fold(room.checked_sub(BESIDE)?, |room, item| fits(item, room))
        }
        Value::Object(map) => {
            map.iter().try_fold(room.checked_sub(BESIDE)?, |room, (name, item)| {
                fits(item, room.checked_sub(name.len() + BESIDE)?)
            })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => room.checked_sub(BESIDE),
    }
}

fn shown(value: &Value, room: &mut usize) -> Value {
    match value {
        Value::String(text) => excerpt(text, room).into(),
        Value::Array(items) => {
            let mut list: Vec<_> =
                items.iter().take(SHOWN_ITEMS).map(|item| shown(item, room)).collect();
            if let Some(more) = more(items.len()) {
                list.push(more.into());
            }
            list.into()
        }
        Value::Object(map) => {
            let items = map.iter().take(SHOWN_ITEMS);
            let mut object: serde_json::Map<_, _> =
                items.map(|(name, item)| (excerpt(name, room), shown(item, room))).collect();
            if let Some(more) = more(map.len()) {
                object.insert("...".to_owned(), more.into());
            }
            object.into()
        }
        other => other.clone(),
    }
}

fn more(items: usize) -> Option<String> {
    let more = items.checked_sub(SHOWN_ITEMS).filter(|more| *more > 0)?;
    Some(format!("[{more} more in structuredContent]"))
}

/// A string, or how it begins and ends.
fn excerpt(text: &str, room: &mut usize) -> String {
    let each = SHOWN_BYTES.min(*room / 2);
    if text.len() <= 2 * each {
        *room -= text.len();
        return text.to_owned();
    }
    let head = text.floor_char_boundary(each);
    let tail = text.ceil_char_boundary(text.len() - each);
    *room -= head + (text.len() - tail);
    let left_out = tail - head;
    format!("{}\n[{left_out} bytes more in structuredContent]\n{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_a_screen_or_two_is_whole() {
        let value = json!({"exit_code": 0, "stdout": "x".repeat(60_000)});
        assert_eq!(excerpt_text(&value, true), value.to_string());
    }

    #[test]
    fn a_long_text_is_shown_by_its_ends() {
        let long = format!("begins{}ends", "ä".repeat(100_000));
        let value = json!({"exit_code": 3, "stdout": long, "stderr": "short"});
        let shown: Value = serde_json::from_str(&excerpt_text(&value, true)).expect("JSON");
        assert_eq!((&shown["exit_code"], &shown["stderr"]), (&json!(3), &json!("short")));
        let stdout = shown["stdout"].as_str().expect("text");
        assert!(stdout.starts_with("begins") && stdout.ends_with("ends") && stdout.len() < 9_000);
        assert!(stdout.contains("bytes more in structuredContent"), "{stdout}");
        assert_eq!(excerpt_text(&value, false), value.to_string());
    }

    #[test]
    fn no_shape_is_shown_at_length() {
        let rows: Vec<_> = (0..5_000).map(|n| json!({"n": n, "text": "y".repeat(400)})).collect();
        let wide: serde_json::Map<_, _> =
            (0..9_000).map(|n| (format!("{n}{}", "k".repeat(90)), json!("z".repeat(90)))).collect();
        let deep = json!([["d".repeat(70_000)], vec!["e".repeat(20_000); 60]]);
        for value in [json!({ "rows": rows }), wide.into(), deep] {
            let shown = excerpt_text(&value, true);
            assert!(shown.len() < WHOLE_BYTES, "{}", shown.len());
            assert!(shown.contains("more in structuredContent"));
        }
    }
}
