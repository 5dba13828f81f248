//! Digest of a request to a model, by which a replay compares it.

use std::fmt::Write as _;

use hivekeep_ports::{ModelMessage, ModelRequest};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Bytes of a hash that are kept.
const BYTES: usize = 12;

/// Hashes of the parts of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestDigest {
    conversation: String,
    tools: String,
    parameters: String,
}

impl RequestDigest {
    pub(super) fn of(request: &ModelRequest) -> Self {
        let message = |message: &ModelMessage| match message {
            ModelMessage::User(text) => json!(["user", text]),
            ModelMessage::Assistant { text, calls } => {
                let calls = calls.iter().map(|it| json!([it.id, it.name, it.arguments]));
                json!(["assistant", text, calls.collect::<Value>()])
            }
            ModelMessage::ToolResult { call, content, is_error } => {
                json!(["result", call.id, content, is_error])
            }
        };
        let tools =
            request.tools.iter().map(|it| json!([it.name, it.description, it.input_schema]));
        let ModelRequest { model, system, schema, temperature, max_output_tokens, stop, .. } =
            request;
        Self {
            conversation: hash(request.messages.iter().map(message)),
            tools: hash(tools),
            parameters: hash([json!([
                model,
                system,
                schema,
                temperature,
                max_output_tokens,
                stop
            ])]),
        }
    }

    pub(super) fn difference(&self, now: &Self) -> Option<&'static str> {
        let parts = [
            ("conversation", &self.conversation, &now.conversation),
            ("tools", &self.tools, &now.tools),
            ("parameters", &self.parameters, &now.parameters),
        ];
        parts.into_iter().find(|(_, was, is)| was != is).map(|(what, ..)| what)
    }
}

fn hash(values: impl IntoIterator<Item = Value>) -> String {
    let mut hash = Sha256::new();
    for value in values {
        hash.update(value.to_string());
        hash.update([0]);
    }
    hash.finalize().iter().take(BYTES).fold(String::new(), |mut hex, byte| {
        let _never_fails = write!(hex, "{byte:02x}");
        hex
    })
}
