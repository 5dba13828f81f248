//! Tools of a model whose server has no calls of tools: they are described in words, and a call is a text of the answer.
//!
//! ````text
//! tools = "text"     I look.                                     tools = "json"    { "tool": "fs_read",
//!                    ```tool_call                                                    "arguments": { "path": "a" } }
//!                    { "tool": "fs_read", "arguments": { … } }                     { "answer": "It is done." }
//!                    ```
//! ````
//! The other form has the server hold the answer to a JSON Schema, for models that are too small to keep to a form by
//! themselves. Results come back as messages of a person. A call that cannot be read is one all the same, with the
//! reason as its arguments: whoever asked tells the model.

pub(crate) mod decoder;
#[cfg(test)]
mod fuzzing;

use std::borrow::Cow;

use hivekeep_ports::{
    ModelAnswer, ModelMessage, ModelRequest, ModelStop, ModelTool, ModelToolCall, ModelToolChoice,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use decoder::FENCE;

/// Keywords of a schema that are kept for a server: what others bound would be rules of a grammar without end.
const HELD: [&str; 6] = ["type", "properties", "required", "items", "enum", "const"];

const TEXT_FORM: &str = "To use a tool, end your answer with a block of this form. The result comes in the next \
    message; without a block your answer is your last one.";
const JSON_FORM: &str = "Answer with one JSON object and nothing else: to use a tool the first form, whose result comes \
    in the next message; when all is done the second.";

/// How a model is offered tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ModelToolForm {
    /// By the provider's API.
    #[default]
    Native,
    /// In words; a call is a block of the answer.
    Text,
    /// In words; the whole answer is a JSON object, to whose schema the server holds the model.
    Json,
}

impl ModelToolForm {
    /// The request as a model is sent it.
    pub(crate) fn written(self, request: &ModelRequest) -> Cow<'_, ModelRequest> {
        let is_result = |message: &ModelMessage| matches!(message, ModelMessage::ToolResult { .. });
        let speaks_of_tools = !request.tools.is_empty() || request.messages.iter().any(is_result);
        if self == Self::Native || !speaks_of_tools {
            return Cow::Borrowed(request);
        }
        let offered = |tool: &&ModelTool| match &request.tool_choice {
            ModelToolChoice::Never => false,
            ModelToolChoice::Named(name) => tool.name == *name,
            ModelToolChoice::Auto | ModelToolChoice::Required => true,
        };
        let tools: Vec<_> = request.tools.iter().filter(offered).collect();
        let form = if tools.is_empty() { Self::Text } else { self };
        let messages = form.messages(&request.messages);
        let mut written = ModelRequest { tools: Vec::new(), messages, ..request.clone() };
        if !tools.is_empty() {
            let has_to = request.tool_choice != ModelToolChoice::Auto;
            let system = [request.system.clone(), Some(form.described(&tools, has_to))];
            written.system = Some(system.into_iter().flatten().collect::<Vec<_>>().join("\n\n"));
            if form == Self::Json {
                written.schema = Some(held(&tools, has_to, request.schema.as_ref()));
            }
        }
        Cow::Owned(written)
    }

    /// The answer with the calls that stand in its text.
    pub(crate) fn read(self, request: &ModelRequest, answer: ModelAnswer) -> ModelAnswer {
        if request.tools.is_empty() || request.tool_choice == ModelToolChoice::Never {
            return answer;
        }
        let cut = answer.stop == ModelStop::MaxTokens;
        let (text, calls) = match self {
            Self::Native => return answer,
            Self::Text => decoder::text(&answer.text, cut),
            Self::Json => decoder::json(&answer.text, cut),
        };
        let stop = if calls.is_empty() { answer.stop } else { ModelStop::ToolCalls };
        ModelAnswer { text, calls, stop, ..answer }
    }

    fn described(self, tools: &[&ModelTool], has_to: bool) -> String {
        let call = r#"{ "tool": "NAME", "arguments": { } }"#;
        let mut text = match self {
            Self::Json => format!("{JSON_FORM}\n{call}\n{{ \"answer\": \"TEXT\" }}"),
            _ => format!("{TEXT_FORM}\n```{FENCE}\n{call}\n```"),
        };
        if has_to {
            text.push_str("\nNow use a tool.");
        }
        text.push_str("\n\nTools, each with the JSON Schema of its arguments:");
        for ModelTool { name, description, input_schema } in tools {
            text.push_str(&format!("\n\n{name}: {description}\n{input_schema}"));
        }
        text
    }

    /// A conversation without calls and results; what follows each other from one side is one message.
    fn messages(self, messages: &[ModelMessage]) -> Vec<ModelMessage> {
        let mut all = Vec::new();
        for message in messages {
            let told = match message {
                ModelMessage::Assistant { text, calls } => {
                    let text = self.said(text, calls);
                    all.push(ModelMessage::Assistant { text, calls: Vec::new() });
                    continue;
                }
                ModelMessage::User(text) => text.clone(),
                ModelMessage::ToolResult { call, content, is_error } => {
                    let did = if *is_error { "failed" } else { "returned" };
                    format!("{} {did}:\n{content}", call.name)
                }
            };
            match all.last_mut() {
                Some(ModelMessage::User(before)) => *before = format!("{before}\n\n{told}"),
                _ => all.push(ModelMessage::User(told)),
            }
        }
        all
    }

    /// An answer as the model wrote it.
    fn said(self, text: &str, calls: &[ModelToolCall]) -> String {
        // Calls that could not be read stand in the text.
        let calls = calls.iter().filter(|call| call.arguments.is_object());
        let calls = calls.map(|call| json!({ "tool": call.name, "arguments": call.arguments }));
        let mut parts: Vec<_> = match self {
            Self::Json => calls.map(|call| call.to_string()).collect(),
            _ => calls.map(|call| format!("```{FENCE}\n{call}\n```")).collect(),
        };
        match (self, parts.is_empty()) {
            (Self::Json, true) => return json!({ "answer": text }).to_string(),
            (Self::Json, false) => {}
            _ => parts.insert(0, text.to_owned()),
        }
        parts.retain(|part| !part.is_empty());
        parts.join("\n")
    }
}

/// Schema of an answer that is a call or the last one.
fn held(tools: &[&ModelTool], has_to: bool, answer: Option<&Value>) -> Value {
    let object = |properties: Value| {
        let required: Vec<_> = properties.as_object().into_iter().flat_map(Map::keys).collect();
        json!({ "type": "object", "required": required, "additionalProperties": false,
            "properties": properties })
    };
    let call = |tool: &&ModelTool| {
        let arguments = reduced(&tool.input_schema);
        object(json!({ "tool": { "const": tool.name }, "arguments": arguments }))
    };
    let mut forms: Vec<_> = tools.iter().map(call).collect();
    if !has_to {
        let answer = answer.cloned().unwrap_or_else(|| json!({ "type": "string" }));
        forms.push(object(json!({ "answer": answer })));
    }
    json!({ "anyOf": forms })
}

/// A schema without what is told in its description alone. Optional members are left out: a model that is held to a
/// grammar would be asked for each.
fn reduced(schema: &Value) -> Value {
    let Value::Object(schema) = schema else { return json!({}) };
    let required = schema.get("required").and_then(Value::as_array);
    let needs = |name: &str| required.is_some_and(|all| all.iter().any(|it| it == name));
    let kept = schema.iter().filter(|(key, _)| HELD.contains(&key.as_str()));
    let mut kept: Map<String, Value> =
        kept.map(|(key, value)| (key.clone(), value.clone())).collect();
    if let Some(Value::Object(properties)) = kept.get_mut("properties") {
        properties.retain(|name, _| needs(name));
        properties.values_mut().for_each(|member| *member = reduced(member));
        kept.insert("additionalProperties".to_owned(), json!(false));
    }
    if let Some(items) = kept.get_mut("items") {
        *items = reduced(items);
    }
    Value::Object(kept)
}
