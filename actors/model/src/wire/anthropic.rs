//! Messages as Anthropic has them.

use hivekeep_ports::{ModelDelta, ModelMessage, ModelStop, ModelToolChoice};
use serde_json::{Value, json};

use super::{
    AnswerDecoder, Wire, WireAsk, WireEnd, WireRequest, WireVectors, calls::CallAssembly, parse,
    text,
};
use crate::failure::WireFailure;

pub(super) struct Anthropic;

impl Wire for Anthropic {
    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-api-key", "")
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("anthropic-version", "2023-06-01")]
    }

    fn ask(&self, ask: &WireAsk<'_>) -> WireRequest {
        let request = ask.request;
        let mut body = json!({
            "model": ask.model,
            "max_tokens": ask.max_tokens,
            "messages": messages(&request.messages),
            "stream": true,
        });
        if let Some(system) = &request.system {
            body["system"] = json!(system);
        }
        if let Some(temperature) = request.temperature {
            body["temperature"] = json!(temperature);
        }
        if !request.stop.is_empty() {
            body["stop_sequences"] = json!(request.stop);
        }
        if !request.tools.is_empty() {
            let tools = request.tools.iter().map(|tool| {
                json!({ "name": tool.name, "description": tool.description,
                    "input_schema": tool.input_schema })
            });
            body["tools"] = tools.collect();
            body["tool_choice"] = match &request.tool_choice {
                ModelToolChoice::Auto => json!({ "type": "auto" }),
                ModelToolChoice::Never => json!({ "type": "none" }),
                ModelToolChoice::Required => json!({ "type": "any" }),
                ModelToolChoice::Named(name) => json!({ "type": "tool", "name": name }),
            };
        }
        if let Some(schema) = &request.schema {
            body["output_config"] =
                json!({ "format": { "type": "json_schema", "schema": schema } });
        }
        WireRequest::new("/messages", body)
    }

    fn decoder(&self) -> Box<dyn AnswerDecoder> {
        Box::<AnthropicDecoder>::default()
    }

    fn embed(&self, _: &str, _: &[String]) -> Option<WireRequest> {
        None
    }

    fn vectors(&self, _: &Value) -> Result<WireVectors, WireFailure> {
        Err(WireFailure::broken("there are no embeddings"))
    }
}

/// Messages in turns: results of tools that follow each other are one turn of the user.
fn messages(messages: &[ModelMessage]) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let (role, blocks) = match message {
            ModelMessage::User(text) => ("user", vec![json!({ "type": "text", "text": text })]),
            ModelMessage::Assistant { text, calls } => {
                let said = (!text.is_empty()).then(|| json!({ "type": "text", "text": text }));
                let calls = calls.iter().map(|call| {
                    json!({ "type": "tool_use", "id": call.id, "name": call.name,
                        "input": call.arguments })
                });
                ("assistant", said.into_iter().chain(calls).collect())
            }
            ModelMessage::ToolResult { call, content, is_error } => {
                let block = json!({ "type": "tool_result", "tool_use_id": call.id,
                    "content": content, "is_error": is_error });
                ("user", vec![block])
            }
        };
        match turns.last_mut() {
            Some((last, all)) if *last == role => all.extend(blocks),
            _ => turns.push((role, blocks)),
        }
    }
    turns.into_iter().map(|(role, content)| json!({ "role": role, "content": content })).collect()
}

#[derive(Default)]
struct AnthropicDecoder {
    calls: CallAssembly,
    end: WireEnd,
}

impl AnswerDecoder for AnthropicDecoder {
    fn frame(&mut self, data: &str, out: &mut Vec<ModelDelta>) -> Result<bool, WireFailure> {
        let frame = parse(data)?;
        let index = frame["index"].as_u64().unwrap_or_default();
        match frame["type"].as_str().unwrap_or_default() {
            "message_start" => self.count(&frame["message"]["usage"]),
            "content_block_start" => {
                let block = &frame["content_block"];
                match block["type"].as_str() {
                    Some("tool_use") => {
                        let (id, name) = (block["id"].as_str(), block["name"].as_str());
                        self.calls.piece(index, id, name, "")?;
                    }
                    Some("text") => text(&block["text"], out),
                    _ => {}
                }
            }
            "content_block_delta" => {
                let delta = &frame["delta"];
                match delta["type"].as_str() {
                    Some("text_delta") => text(&delta["text"], out),
                    Some("input_json_delta") => {
                        let piece = delta["partial_json"].as_str().unwrap_or_default();
                        self.calls.piece(index, None, None, piece)?;
                    }
                    _ => {}
                }
            }
            "message_delta" => {
                self.count(&frame["usage"]);
                if let Some(reason) = frame["delta"]["stop_reason"].as_str() {
                    let stop = stop(reason);
                    self.calls.finish(stop == ModelStop::MaxTokens, out)?;
                    self.end.stop = Some(stop);
                }
            }
            // An answer that is not streamed.
            "message" => {
                for (index, block) in (0..).zip(frame["content"].as_array().into_iter().flatten()) {
                    text(&block["text"], out);
                    if block["type"] == "tool_use" {
                        let (id, name) = (block["id"].as_str(), block["name"].as_str());
                        self.calls.piece(index, id, name, &block["input"].to_string())?;
                    }
                }
                self.count(&frame["usage"]);
                let stop = frame["stop_reason"].as_str().map_or(ModelStop::Other, stop);
                self.calls.finish(stop == ModelStop::MaxTokens, out)?;
                self.end.stop = Some(stop);
            }
            "message_stop" => return Ok(true),
            "error" => return Err(WireFailure::told(&frame, None)),
            _ => {}
        }
        Ok(false)
    }

    fn end(&self) -> WireEnd {
        self.end
    }
}

impl AnthropicDecoder {
    /// Counts are totals so far. What came from a cache was read, too.
    fn count(&mut self, usage: &Value) {
        let of = |key: &str| usage[key].as_u64();
        if let Some(fresh) = of("input_tokens") {
            let cached = of("cache_read_input_tokens").unwrap_or_default();
            let kept = of("cache_creation_input_tokens").unwrap_or_default();
            self.end.input_tokens = Some(fresh.saturating_add(cached).saturating_add(kept));
        }
        self.end.output_tokens = of("output_tokens").or(self.end.output_tokens);
    }
}

fn stop(reason: &str) -> ModelStop {
    match reason {
        "end_turn" => ModelStop::End,
        "max_tokens" | "model_context_window_exceeded" => ModelStop::MaxTokens,
        "stop_sequence" => ModelStop::StopSequence,
        "tool_use" => ModelStop::ToolCalls,
        "refusal" => ModelStop::Refused,
        _ => ModelStop::Other,
    }
}
