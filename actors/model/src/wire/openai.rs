//! Chat completions as OpenAI has them, and llama.cpp, vLLM and many others after it.

use hivekeep_ports::{ModelDelta, ModelMessage, ModelStop, ModelToolChoice};
use serde_json::{Value, json};

use super::{
    AnswerDecoder, Wire, WireAsk, WireEnd, WireRequest, WireVectors, calls::CallAssembly, parse,
    text,
};
use crate::failure::WireFailure;

pub(super) struct OpenAi {
    /// Whether it is OpenAI's own, whose newer models know `max_completion_tokens` alone.
    pub(super) newer: bool,
}

impl Wire for OpenAi {
    fn ask(&self, ask: &WireAsk<'_>) -> WireRequest {
        let request = ask.request;
        let bound = if self.newer { "max_completion_tokens" } else { "max_tokens" };
        let mut body = json!({
            "model": ask.model,
            "messages": messages(ask),
            "stream": true,
            "stream_options": { "include_usage": true },
            bound: ask.max_tokens,
        });
        if let Some(temperature) = request.temperature {
            body["temperature"] = json!(temperature);
        }
        if !request.stop.is_empty() {
            body["stop"] = json!(request.stop);
        }
        if !request.tools.is_empty() {
            let tools = request.tools.iter().map(|tool| {
                json!({ "type": "function", "function": {
                    "name": tool.name, "description": tool.description,
                    "parameters": tool.input_schema,
                } })
            });
            body["tools"] = tools.collect();
            body["tool_choice"] = match &request.tool_choice {
                ModelToolChoice::Auto => json!("auto"),
                ModelToolChoice::Never => json!("none"),
                ModelToolChoice::Required => json!("required"),
                ModelToolChoice::Named(name) => {
                    json!({ "type": "function", "function": { "name": name } })
                }
            };
        }
        if let Some(schema) = &request.schema {
            body["response_format"] = json!({ "type": "json_schema",
                "json_schema": { "name": "answer", "schema": schema } });
        }
        WireRequest::new("/chat/completions", body)
    }

    fn decoder(&self) -> Box<dyn AnswerDecoder> {
        Box::<OpenAiDecoder>::default()
    }

    fn embed(&self, model: &str, texts: &[String]) -> Option<WireRequest> {
        let body = json!({ "model": model, "input": texts, "encoding_format": "float" });
        Some(WireRequest::new("/embeddings", body))
    }

    fn vectors(&self, answer: &Value) -> Result<WireVectors, WireFailure> {
        let mut rows: Vec<_> = answer["data"].as_array().into_iter().flatten().collect();
        rows.sort_by_key(|row| row["index"].as_u64());
        let vectors = super::vectors(rows.into_iter().map(|row| &row["embedding"]))?;
        Ok((vectors, answer["usage"]["prompt_tokens"].as_u64()))
    }
}

fn messages(ask: &WireAsk<'_>) -> Vec<Value> {
    let system = ask.request.system.iter();
    let mut all: Vec<_> = system.map(|text| json!({ "role": "system", "content": text })).collect();
    all.extend(ask.request.messages.iter().map(|message| match message {
        ModelMessage::User(text) => json!({ "role": "user", "content": text }),
        ModelMessage::Assistant { text, calls } if calls.is_empty() => {
            json!({ "role": "assistant", "content": text })
        }
        ModelMessage::Assistant { text, calls } => {
            let calls = calls.iter().map(|call| {
                json!({ "id": call.id, "type": "function", "function": {
                    "name": call.name, "arguments": call.arguments.to_string(),
                } })
            });
            let content = if text.is_empty() { Value::Null } else { json!(text) };
            json!({ "role": "assistant", "content": content, "tool_calls": calls.collect::<Value>() })
        }
        ModelMessage::ToolResult { call, content, .. } => {
            json!({ "role": "tool", "tool_call_id": call.id, "content": content })
        }
    }));
    all
}

#[derive(Default)]
struct OpenAiDecoder {
    calls: CallAssembly,
    end: WireEnd,
    /// A part of the answer says why there is none.
    refused: bool,
}

impl OpenAiDecoder {
    /// A text, or parts of one.
    fn content(&mut self, content: &Value, out: &mut Vec<ModelDelta>) {
        text(content, out);
        for part in content.as_array().into_iter().flatten() {
            text(&part["text"], out);
            self.refusal(&part["refusal"], out);
        }
    }

    fn refusal(&mut self, refusal: &Value, out: &mut Vec<ModelDelta>) {
        self.refused |= refusal.as_str().is_some_and(|why| !why.is_empty());
        text(refusal, out);
    }
}

impl AnswerDecoder for OpenAiDecoder {
    fn frame(&mut self, data: &str, out: &mut Vec<ModelDelta>) -> Result<bool, WireFailure> {
        if data.trim() == "[DONE]" {
            return Ok(true);
        }
        let frame = parse(data)?;
        if !frame["error"].is_null() {
            return Err(WireFailure::told(&frame, None));
        }
        if frame["object"] == "error" {
            return Err(WireFailure::told(&frame, None));
        }
        let choice = &frame["choices"][0];
        // An answer that is not streamed is a message.
        let delta = if choice["delta"].is_object() { &choice["delta"] } else { &choice["message"] };
        self.content(&delta["content"], out);
        self.refusal(&delta["refusal"], out);
        for (nth, call) in (0..).zip(delta["tool_calls"].as_array().into_iter().flatten()) {
            let function = &call["function"];
            self.calls.piece(
                call["index"].as_u64().unwrap_or(nth),
                call["id"].as_str(),
                function["name"].as_str(),
                function["arguments"].as_str().unwrap_or_default(),
            )?;
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            let stop = match stop(reason, !self.calls.is_empty()) {
                ModelStop::End | ModelStop::Other if self.refused => ModelStop::Refused,
                stop => stop,
            };
            self.calls.finish(stop == ModelStop::MaxTokens, out)?;
            self.end.stop = Some(stop);
        }
        if let Some(usage) = frame["usage"].as_object() {
            let count = |key| usage.get(key).and_then(Value::as_u64);
            self.end.input_tokens = count("prompt_tokens").or(self.end.input_tokens);
            self.end.output_tokens = count("completion_tokens").or(self.end.output_tokens);
        }
        Ok(false)
    }

    fn end(&self) -> WireEnd {
        self.end
    }
}

fn stop(reason: &str, calls: bool) -> ModelStop {
    match reason {
        // Some servers end calls with `stop`.
        "stop" | "tool_calls" | "function_call" if calls => ModelStop::ToolCalls,
        "stop" => ModelStop::End,
        "length" => ModelStop::MaxTokens,
        "content_filter" => ModelStop::Refused,
        _ => ModelStop::Other,
    }
}
