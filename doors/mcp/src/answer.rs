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
use hivekeep_door_server::{
    codes,
    excerpt::excerpt_text,
    plain,
    result_form::{ANNOUNCEMENT_FIELD, ContentOf, ResultForm, announcement, announcement_field},
};
use hivekeep_kernel::{Layer, ToolError};
use hivekeep_registry::CallOutcome;
use rmcp::{
    ErrorData,
    model::{CallToolResult, ContentBlock, Implementation, ProtocolVersion, Resource, ResultType},
};
use serde_json::json;

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
