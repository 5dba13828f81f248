//! Chats as Ollama has them: lines of JSON.

use hivekeep_ports::{ModelDelta, ModelMessage, ModelStop, ModelToolChoice};
use serde_json::{Value, json};

use super::{
    AnswerDecoder, Framing, Wire, WireAsk, WireEnd, WireRequest, WireVectors,
    calls::{MAX_CALLS, tool_call},
    parse,
};
use crate::failure::WireFailure;

pub(super) struct Ollama;

impl Wire for Ollama {
    fn framing(&self) -> Framing {
        Framing::Lines
    }

    fn ask(&self, ask: &WireAsk<'_>) -> WireRequest {
        let request = ask.request;
        let mut options = json!({ "num_predict": ask.max_tokens });
        if let Some(temperature) = request.temperature {
            options["temperature"] = json!(temperature);
        }
        if !request.stop.is_empty() {
            options["stop"] = json!(request.stop);
        }
        let mut body = json!({ "model": ask.model, "messages": messages(ask), "stream": true,
            "options": options });
        // Ollama has no tool choice: tools can only be left out.
        if !request.tools.is_empty() && request.tool_choice != ModelToolChoice::Never {
            let tools = request.tools.iter().map(|tool| {
                json!({ "type": "function", "function": { "name": tool.name,
                    "description": tool.description, "parameters": tool.input_schema } })
            });
            body["tools"] = tools.collect();
        }
        if let Some(schema) = &request.schema {
            body["format"] = schema.clone();
        }
        WireRequest::new("/api/chat", body)
    }

    fn decoder(&self) -> Box<dyn AnswerDecoder> {
        Box::<OllamaDecoder>::default()
    }

    fn embed(&self, model: &str, texts: &[String]) -> Option<WireRequest> {
        let body = json!({ "model": model, "input": texts, "truncate": false });
        Some(WireRequest::new("/api/embed", body))
    }

    fn vectors(&self, answer: &Value) -> Result<WireVectors, WireFailure> {
        let rows = answer["embeddings"].as_array().into_iter().flatten();
        Ok((super::vectors(rows)?, answer["prompt_eval_count"].as_u64()))
    }

    fn list(&self) -> &'static str {
        "/api/tags"
    }

    fn listed(&self, answer: &Value) -> Vec<String> {
        let mut names = super::names(&answer["models"], "name");
        let short = |name: &String| name.strip_suffix(":latest").map(str::to_owned);
        let short: Vec<_> = names.iter().filter_map(short).collect();
        names.extend(short);
        names
    }
}

fn messages(ask: &WireAsk<'_>) -> Vec<Value> {
    let system = ask.request.system.iter();
    let mut all: Vec<_> = system.map(|text| json!({ "role": "system", "content": text })).collect();
    all.extend(ask.request.messages.iter().map(|message| match message {
        ModelMessage::User(text) => json!({ "role": "user", "content": text }),
        ModelMessage::Assistant { text, calls } => {
            let calls = calls.iter().map(
                |call| json!({ "function": { "name": call.name, "arguments": call.arguments } }),
            );
            json!({ "role": "assistant", "content": text, "tool_calls": calls.collect::<Value>() })
        }
        ModelMessage::ToolResult { call, content, .. } => {
            json!({ "role": "tool", "tool_name": call.name, "content": content })
        }
    }));
    all
}

#[derive(Default)]
struct OllamaDecoder {
    calls: usize,
    end: WireEnd,
}

impl AnswerDecoder for OllamaDecoder {
    fn frame(&mut self, data: &str, out: &mut Vec<ModelDelta>) -> Result<bool, WireFailure> {
        let frame = parse(data)?;
        if !frame["error"].is_null() {
            return Err(WireFailure::told(&frame, None));
        }
        let message = &frame["message"];
        if let Some(text) = message["content"].as_str().filter(|text| !text.is_empty()) {
            out.push(ModelDelta::Text(text.to_owned()));
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            self.calls += 1;
            let function = &call["function"];
            let (name, arguments) = (function["name"].as_str(), function["arguments"].clone());
            if self.calls > MAX_CALLS {
                let why = format!("the model asks for more than {MAX_CALLS} tools");
                return Err(WireFailure::too_large(why));
            }
            let (Some(name), true) = (name, arguments.is_object()) else {
                return Err(WireFailure::broken("arguments of a tool are not a JSON object"));
            };
            let id = call["id"].as_str().unwrap_or_default().to_owned();
            out.push(ModelDelta::ToolCall(tool_call(id, name.to_owned(), arguments)));
        }
        if frame["done"] != true {
            return Ok(false);
        }
        self.end = WireEnd {
            stop: Some(match frame["done_reason"].as_str() {
                _ if self.calls > 0 => ModelStop::ToolCalls,
                Some("length") => ModelStop::MaxTokens,
                Some("stop") | None => ModelStop::End,
                Some(_) => ModelStop::Other,
            }),
            input_tokens: frame["prompt_eval_count"].as_u64(),
            output_tokens: frame["eval_count"].as_u64(),
        };
        Ok(true)
    }

    fn end(&self) -> WireEnd {
        self.end
    }
}
