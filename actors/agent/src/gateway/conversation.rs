//! Conversations in requests of programs, in the form of each API: where one stands, and words that a fork puts into it.
//!
//! A program sends its whole conversation with each request, and knows nothing of the words. So they are put into each of
//! its requests, behind the message that was the last one when the machine was kept.

use bytes::Bytes;
use hivekeep_kernel::ToolError;
use hivekeep_ports::ModelApi;
use hivekeep_runtime::json_text;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Mark of a provider's cache, which programs move from message to message.
const CACHE_MARK: &str = "cache_control";

/// Place in a conversation, behind its last message then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConversationPlace {
    /// Number of messages.
    messages: usize,
    /// Hash of the last.
    last: String,
}

/// Words that are put into a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConversationWords {
    pub(crate) at: ConversationPlace,
    pub(crate) text: String,
}

impl ConversationPlace {
    /// Place that a request stands at; `None` for one without a conversation.
    pub(super) fn of(api: ModelApi, body: &[u8]) -> Option<Self> {
        let mut body = json_text::from_slice(body).ok()?;
        let messages = messages(api, &mut body)?;
        Some(Self { messages: messages.len(), last: hash(messages.last()?) })
    }

    fn is_in(&self, messages: &[Value]) -> bool {
        let last = self.messages.checked_sub(1).and_then(|at| messages.get(at));
        last.is_some_and(|last| hash(last) == self.last)
    }
}

/// Body of a request with the words that belong to its conversation, in the order in which they were said, and with
/// another model where one is given; and how many of them are in it. A body to which nothing of it applies stays as its
/// program wrote it.
///
/// # Errors
/// `invalid_input` for a body that is not readable: a provider might read it, without the words and with its own model.
pub(super) fn changed(
    api: ModelApi,
    body: &Bytes,
    words: &[ConversationWords],
    model: Option<&str>,
) -> Result<(Bytes, usize), ToolError> {
    if words.is_empty() && model.is_none() {
        return Ok((body.clone(), 0));
    }
    let mut changed: Value = json_text::from_slice(body).map_err(|error| {
        let message = format!("the fork's words and model cannot be put in: {error:.200}");
        ToolError::invalid(message).next("send JSON of at most 127 levels")
    })?;
    let mut is_other = false;
    if let (Some(model), Some(asked)) = (model, changed.get_mut("model")) {
        (*asked, is_other) = (json!(model), true);
    }
    let put_in = messages(api, &mut changed).map_or(0, |all| {
        // The last first: places are counted without the words.
        let mut said: Vec<_> = words.iter().filter(|words| words.at.is_in(all)).collect();
        said.sort_by_key(|words| words.at.messages);
        for words in said.iter().rev() {
            all.insert(words.at.messages, message(api, &words.text));
        }
        said.len()
    });
    let body = match is_other || put_in > 0 {
        true => changed.to_string().into(),
        false => body.clone(),
    };
    Ok((body, put_in))
}

fn messages(api: ModelApi, body: &mut Value) -> Option<&mut Vec<Value>> {
    let all = body.get_mut(match api {
        ModelApi::Chat | ModelApi::Messages => "messages",
        ModelApi::Responses => "input",
        ModelApi::Gemini => "contents",
    })?;
    if let (ModelApi::Responses, Value::String(text)) = (api, &*all) {
        *all = json!([message(api, text)]);
    }
    all.as_array_mut()
}

/// Message of a person.
fn message(api: ModelApi, text: &str) -> Value {
    match api {
        ModelApi::Chat | ModelApi::Messages => json!({ "role": "user", "content": text }),
        ModelApi::Responses => {
            let content = json!([{ "type": "input_text", "text": text }]);
            json!({ "type": "message", "role": "user", "content": content })
        }
        ModelApi::Gemini => json!({ "role": "user", "parts": [{ "text": text }] }),
    }
}

/// Hash of a message, whichever way its program writes it the next time.
fn hash(message: &Value) -> String {
    let mut message = message.clone();
    if let Some(Value::String(text)) = message.get("content") {
        message["content"] = json!([{ "type": "text", "text": text }]);
    }
    let parts = message.get_mut("content").and_then(Value::as_array_mut);
    for part in parts.into_iter().flatten().filter_map(Value::as_object_mut) {
        part.remove(CACHE_MARK);
        if part.get("type").is_some_and(|kind| *kind == "input_text") {
            part["type"] = json!("text");
        }
    }
    if let Some(message) = message.as_object_mut() {
        message
            .retain(|name, value| name != CACHE_MARK && !(name == "type" && *value == "message"));
    }
    message.sort_all_objects();
    Sha256::digest(message.to_string()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(body: &Value) -> Bytes {
        body.to_string().into()
    }

    #[test]
    fn words_stay_behind_the_message_that_they_followed_in_each_api() {
        let user = |text: &str| json!({ "role": "user", "content": text });
        let said = |text: &str| json!({ "role": "user", "parts": [{ "text": text }] });
        let input = |text: &str| {
            let content = json!([{ "type": "input_text", "text": text }]);
            json!({ "type": "message", "role": "user", "content": content })
        };
        for (api, name, one) in [
            (ModelApi::Chat, "messages", &user as &dyn Fn(&str) -> Value),
            (ModelApi::Messages, "messages", &user),
            (ModelApi::Responses, "input", &input),
            (ModelApi::Gemini, "contents", &said),
        ] {
            let body = |texts: &[&str]| {
                let all: Vec<_> = texts.iter().map(|text| one(text)).collect();
                json!({ "model": "m", "z": 1.5, "a": { "y": 1, "x": 2 }, name: all })
            };
            let place = |texts: &[&str]| ConversationPlace::of(api, &bytes(&body(texts)));
            let words = |texts: &[&str], text: &str| {
                let at = place(texts).expect("a conversation");
                ConversationWords { at, text: text.to_owned() }
            };
            let all = [words(&["a", "b"], "W"), words(&["a", "b"], "X"), words(&["a"], "V")];
            for (asked, sent, put_in) in [
                (&["a", "b"][..], &["a", "V", "b", "W", "X"][..], 3),
                (&["a", "b", "c"], &["a", "V", "b", "W", "X", "c"], 3),
                (&["a", "c", "d"], &["a", "V", "c", "d"], 1),
            ] {
                let became = changed(api, &bytes(&body(asked)), &all, None).expect("readable");
                assert_eq!(became, (bytes(&body(sent)), put_in), "{name}: {asked:?}");
            }
            let other = bytes(&body(&["c", "a"]));
            let became = changed(api, &other, &all, None).expect("readable");
            assert_eq!(became, (other.clone(), 0), "another conversation");
            assert_eq!(place(&[]), None);
            let (model, _) = changed(api, &other, &all, Some("n")).expect("readable");
            assert_eq!(model, String::from_utf8_lossy(&other).replace("\"m\"", "\"n\""));
        }
        let short = bytes(&json!({ "input": "a" }));
        let at = ConversationPlace::of(ModelApi::Responses, &short).expect("one message");
        let all = [ConversationWords { at, text: "W".to_owned() }];
        let became = changed(ModelApi::Responses, &short, &all, None).expect("readable");
        assert_eq!(became, (bytes(&json!({ "input": [input("a"), input("W")] })), 1));
    }

    #[test]
    fn a_body_that_a_provider_might_read_never_passes_without_the_words_and_the_model() {
        let half: Bytes =
            r#"{"model":"m","messages":[{"role":"user","content":"a\ud83d"}]}"#.into();
        let at = ConversationPlace::of(ModelApi::Chat, &half).expect("a conversation");
        let all = [ConversationWords { at, text: "W".to_owned() }];
        let (became, _) = changed(ModelApi::Chat, &half, &all, Some("n")).expect("readable");
        let became: Value = serde_json::from_slice(&became).expect("JSON");
        assert_eq!(
            (&became["model"], &became["messages"][1]["content"]),
            (&json!("n"), &json!("W"))
        );
        let deep = format!(r#"{{"model":"m","x":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        for body in ["{", deep.as_str()] {
            let body = Bytes::copy_from_slice(body.as_bytes());
            let refused = changed(ModelApi::Chat, &body, &all, Some("n")).expect_err("unreadable");
            assert_eq!(refused.code, "invalid_input");
            let untouched = changed(ModelApi::Chat, &body, &[], None).expect("nothing to do");
            assert_eq!(untouched, (body, 0));
        }
    }

    #[test]
    fn a_message_is_known_again_without_its_mark_of_a_cache() {
        let marked = json!({ "role": "user", "content": [
            { "type": "text", "text": "a", "cache_control": { "type": "ephemeral" } }] });
        assert_eq!(hash(&marked), hash(&json!({ "content": "a", "role": "user" })));
        assert_ne!(hash(&marked), hash(&json!({ "content": "b", "role": "user" })));
        let item = message(ModelApi::Responses, "a");
        assert_eq!(
            hash(&item),
            hash(&json!({ "role": "user", "content": "a" })),
            "of an API's own"
        );
    }
}
