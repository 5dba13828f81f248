//! Checks of requests before they are made, and of answers before they are handed on.

use hivekeep_kernel::{
    Layer, ToolError,
    ports::{ModelMessage, ModelRequest, ModelSource, ModelToolCall},
};
use serde_json::Value;

use super::spend::request_bytes;
use crate::{codes, wire::WireEnd};

/// Most tokens of an answer where the model has no bound of its own.
pub(super) const MAX_TOKENS: u32 = 2_048;
/// Largest request.
const REQUEST_BYTES: usize = 4 * 1024 * 1024;
/// Most messages of a conversation.
const MAX_MESSAGES: usize = 4_096;
/// Most tools of a request.
const MAX_TOOLS: usize = 256;
/// Most texts that are embedded at a time.
const MAX_TEXTS: usize = 2_048;

/// Checks a request.
///
/// # Errors
/// `invalid_input`, with what is wrong.
pub(super) fn request(request: &ModelRequest) -> Result<(), ToolError> {
    let wrong = if !(1..=MAX_MESSAGES).contains(&request.messages.len()) {
        format!("a request has 1 to {MAX_MESSAGES} messages")
    } else if matches!(request.messages.last(), Some(ModelMessage::Assistant { .. })) {
        "the last message of a request is not the model's".to_owned()
    } else if request_bytes(request) > REQUEST_BYTES {
        format!("a request is at most {REQUEST_BYTES} bytes")
    } else if request.tools.len() > MAX_TOOLS {
        format!("a request has at most {MAX_TOOLS} tools")
    } else if request.temperature.is_some_and(|it| !(0.0..=2.0).contains(&it)) {
        "a temperature is between 0 and 2".to_owned()
    } else if request.max_output_tokens == Some(0) {
        "an answer has at least one token".to_owned()
    } else if let Some(Err(why)) = request.schema.as_ref().map(validator) {
        format!("the schema is not valid: {why:.200}")
    } else {
        return Ok(());
    };
    Err(ToolError::invalid(wrong))
}

/// Checks texts to embed.
///
/// # Errors
/// `invalid_input`, with what is wrong.
pub(super) fn texts(texts: &[String]) -> Result<(), ToolError> {
    let bytes = texts.iter().map(String::len).sum::<usize>();
    match (1..=MAX_TEXTS).contains(&texts.len()) && bytes <= REQUEST_BYTES {
        true => Ok(()),
        false => {
            let bound =
                format!("1 to {MAX_TEXTS} texts of {REQUEST_BYTES} bytes in all are embedded");
            Err(ToolError::invalid(bound))
        }
    }
}

/// The text as JSON that matches the request's schema, if it has one. An answer that asks for tools has none.
///
/// # Errors
/// `llm_schema_mismatch`.
pub(super) fn structured(
    request: &ModelRequest,
    source: &ModelSource,
    text: &str,
    calls: &[ModelToolCall],
    end: &WireEnd,
) -> Result<Option<Value>, ToolError> {
    let Some(schema) = request.schema.as_ref().filter(|_| calls.is_empty()) else {
        return Ok(None);
    };
    let mismatch = |why: String| {
        let message = format!("the answer of {source} does not match the schema: {why:.300}");
        ToolError::new(Layer::Result, codes::LLM_SCHEMA_MISMATCH, message)
            .next("allow more tokens, ask again, or use a model that keeps to schemas")
            .detail("answer", text.chars().take(400).collect::<String>())
            .detail("stop", end.stop.map(|stop| stop.word()).unwrap_or_default())
    };
    let value: Value = hivekeep_runtime::json_text::from_str(text.trim())
        .map_err(|error| mismatch(format!("it is not JSON: {error}")))?;
    let validator = validator(schema).map_err(mismatch)?;
    let wrong = validator.iter_errors(&value).next().map(|error| error.to_string());
    wrong.map_or(Ok(Some(value)), |why| Err(mismatch(why)))
}

/// Compiles a schema: patterns are matched in linear time, and nothing is fetched.
fn validator(schema: &Value) -> Result<jsonschema::Validator, String> {
    let options = jsonschema::options()
        .with_draft(jsonschema::Draft::Draft202012)
        .with_pattern_options(jsonschema::PatternOptions::regex());
    options.build(schema).map_err(|error| error.to_string())
}
