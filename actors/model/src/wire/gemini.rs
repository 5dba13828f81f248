//! Contents as Google's Gemini API has them.

use hivekeep_ports::{ModelDelta, ModelMessage, ModelStop, ModelToolCall, ModelToolChoice};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::{
    AnswerDecoder, Wire, WireAsk, WireEnd, WireRequest, WireVectors,
    calls::{MAX_CALLS, tool_call},
    parse,
};
use crate::failure::WireFailure;

pub(super) struct Gemini;

impl Wire for Gemini {
    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-goog-api-key", "")
    }

    fn ask(&self, ask: &WireAsk<'_>) -> WireRequest {
        let request = ask.request;
        let mut settings = json!({ "maxOutputTokens": ask.max_tokens });
        if let Some(temperature) = request.temperature {
            settings["temperature"] = json!(temperature);
        }
        if !request.stop.is_empty() {
            settings["stopSequences"] = json!(request.stop);
        }
        if let Some(schema) = &request.schema {
            settings["responseMimeType"] = json!("application/json");
            settings["responseJsonSchema"] = schema.clone();
        }
        let mut body =
            json!({ "contents": contents(&request.messages), "generationConfig": settings });
        if let Some(system) = &request.system {
            body["systemInstruction"] = json!({ "parts": [{ "text": system }] });
        }
        if !request.tools.is_empty() {
            let tools = request.tools.iter().map(|tool| {
                json!({ "name": tool.name, "description": tool.description,
                    "parametersJsonSchema": tool.input_schema })
            });
            body["tools"] = json!([{ "functionDeclarations": tools.collect::<Value>() }]);
            let choice = match &request.tool_choice {
                ModelToolChoice::Auto => json!({ "mode": "AUTO" }),
                ModelToolChoice::Never => json!({ "mode": "NONE" }),
                ModelToolChoice::Required => json!({ "mode": "ANY" }),
                ModelToolChoice::Named(name) => {
                    json!({ "mode": "ANY", "allowedFunctionNames": [name] })
                }
            };
            body["toolConfig"] = json!({ "functionCallingConfig": choice });
        }
        let path = format!("/models/{}:streamGenerateContent?alt=sse", segment(ask.model));
        WireRequest::new(path, body)
    }

    fn decoder(&self) -> Box<dyn AnswerDecoder> {
        Box::<GeminiDecoder>::default()
    }

    fn embed(&self, model: &str, texts: &[String]) -> Option<WireRequest> {
        let requests = texts.iter().map(|text| {
            json!({ "model": format!("models/{model}"), "content": { "parts": [{ "text": text }] } })
        });
        let body = json!({ "requests": requests.collect::<Value>() });
        Some(WireRequest::new(format!("/models/{}:batchEmbedContents", segment(model)), body))
    }

    fn vectors(&self, answer: &Value) -> Result<WireVectors, WireFailure> {
        let rows = answer["embeddings"].as_array().into_iter().flatten();
        Ok((super::vectors(rows.map(|row| &row["values"]))?, None))
    }

    fn listed(&self, answer: &Value) -> Vec<String> {
        let plain = |name: String| name.trim_start_matches("models/").to_owned();
        super::names(&answer["models"], "name").into_iter().map(plain).collect()
    }
}

/// A model's name as a part of a path.
pub(crate) fn segment(model: &str) -> String {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');
    utf8_percent_encode(model, RESERVED).to_string()
}

/// Contents in turns: what follows each other of one role is one turn.
fn contents(messages: &[ModelMessage]) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let (role, parts) = match message {
            ModelMessage::User(text) => ("user", vec![json!({ "text": text })]),
            ModelMessage::Assistant { text, calls } => {
                let said = (!text.is_empty()).then(|| json!({ "text": text }));
                ("model", said.into_iter().chain(calls.iter().map(asked)).collect())
            }
            ModelMessage::ToolResult { call, content, is_error } => {
                let key = if *is_error { "error" } else { "result" };
                let part = json!({ "functionResponse": { "name": call.name,
                    "response": { key: content } } });
                ("user", vec![part])
            }
        };
        match turns.last_mut() {
            Some((last, all)) if *last == role => all.extend(parts),
            _ => turns.push((role, parts)),
        }
    }
    turns.into_iter().map(|(role, parts)| json!({ "role": role, "parts": parts })).collect()
}

fn asked(call: &ModelToolCall) -> Value {
    let mut part = json!({ "functionCall": { "name": call.name, "args": call.arguments } });
    if let Some(signature) = &call.signature {
        part["thoughtSignature"] = json!(signature);
    }
    part
}

#[derive(Default)]
struct GeminiDecoder {
    calls: usize,
    end: WireEnd,
}

impl AnswerDecoder for GeminiDecoder {
    fn frame(&mut self, data: &str, out: &mut Vec<ModelDelta>) -> Result<bool, WireFailure> {
        let frame = parse(data)?;
        if !frame["error"].is_null() {
            return Err(WireFailure::told(&frame, None));
        }
        let candidate = &frame["candidates"][0];
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            self.part(part, out)?;
        }
        let usage = &frame["usageMetadata"];
        self.end.input_tokens = usage["promptTokenCount"].as_u64().or(self.end.input_tokens);
        if let Some(said) = usage["candidatesTokenCount"].as_u64() {
            let thought = usage["thoughtsTokenCount"].as_u64().unwrap_or_default();
            self.end.output_tokens = Some(said.saturating_add(thought));
        }
        if let Some(reason) = candidate["finishReason"].as_str() {
            self.end.stop = Some(stop(reason, self.calls > 0));
        } else if frame["promptFeedback"]["blockReason"].is_string() {
            self.end.stop = Some(ModelStop::Refused);
        }
        Ok(false)
    }

    fn end(&self) -> WireEnd {
        self.end
    }
}

impl GeminiDecoder {
    fn part(&mut self, part: &Value, out: &mut Vec<ModelDelta>) -> Result<(), WireFailure> {
        let call = &part["functionCall"];
        if let Some(name) = call["name"].as_str() {
            self.calls += 1;
            if self.calls > MAX_CALLS {
                let why = format!("the model asks for more than {MAX_CALLS} tools");
                return Err(WireFailure::too_large(why));
            }
            let arguments = match &call["args"] {
                Value::Null => json!({}),
                arguments @ Value::Object(_) => arguments.clone(),
                _ => return Err(WireFailure::broken("arguments of a tool are not a JSON object")),
            };
            let id = call["id"].as_str().unwrap_or_default().to_owned();
            let mut call = tool_call(id, name.to_owned(), arguments);
            call.signature = part["thoughtSignature"].as_str().map(str::to_owned);
            out.push(ModelDelta::ToolCall(call));
        } else if part["thought"] != true
            && let Some(text) = part["text"].as_str().filter(|text| !text.is_empty())
        {
            out.push(ModelDelta::Text(text.to_owned()));
        }
        Ok(())
    }
}

fn stop(reason: &str, calls: bool) -> ModelStop {
    match reason {
        "STOP" if calls => ModelStop::ToolCalls,
        "STOP" => ModelStop::End,
        "MAX_TOKENS" => ModelStop::MaxTokens,
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" => ModelStop::Refused,
        _ => ModelStop::Other,
    }
}
