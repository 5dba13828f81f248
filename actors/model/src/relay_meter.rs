//! Meter of an answer that is passed on: its tokens, and whether it came to the end that its API gives it. Pure; what
//! it does not understand means nothing.

use hivekeep_ports::ModelApi;
use hivekeep_runtime::json_text;
use serde_json::Value;

use crate::failure::WireFailure;

/// See the module.
#[derive(Debug)]
pub(crate) struct RelayMeter {
    api: ModelApi,
    /// The model has said why it stopped; tokens may follow.
    stopped: bool,
    /// Nothing follows.
    ended: bool,
    failed: Option<WireFailure>,
    pub(crate) input_tokens: Option<u64>,
    pub(crate) output_tokens: Option<u64>,
}

impl RelayMeter {
    pub(crate) fn new(api: ModelApi) -> Self {
        Self {
            api,
            stopped: false,
            ended: false,
            failed: None,
            input_tokens: None,
            output_tokens: None,
        }
    }

    /// Takes the data of an event of a stream.
    pub(crate) fn event(&mut self, data: &str) {
        if data.trim() == "[DONE]" {
            self.ended |= self.api == ModelApi::Chat;
        } else if let Ok(value) = json_text::from_str::<Value>(data) {
            self.value(&value);
        }
    }

    /// Takes an answer that is no stream.
    pub(crate) fn document(&mut self, body: &[u8]) {
        let Ok(document) = json_text::from_slice::<Value>(body) else { return };
        let parts = document.as_array().map_or(std::slice::from_ref(&document), Vec::as_slice);
        parts.iter().for_each(|part| self.value(part));
    }

    /// Whether the end of the answer has come, or what comes right before it.
    pub(crate) fn stops(&self) -> bool {
        self.stopped || self.ended
    }

    /// Whether nothing of the answer can follow.
    pub(crate) fn is_over(&self) -> bool {
        self.ended
    }

    /// Checks an answer whose bytes came to an end in order.
    ///
    /// # Errors
    /// When it is not whole.
    pub(crate) fn whole(&self) -> Result<(), WireFailure> {
        match &self.failed {
            Some(failure) => Err(failure.clone()),
            None if self.stops() => Ok(()),
            None => Err(WireFailure::broken("the answer was cut before its end")),
        }
    }

    fn value(&mut self, value: &Value) {
        if !value["error"].is_null() {
            self.failed = Some(WireFailure::told(value, None));
        }
        match self.api {
            ModelApi::Chat => self.chat(value),
            ModelApi::Responses => self.responses(value),
            ModelApi::Messages => self.messages(value),
            ModelApi::Gemini => self.gemini(value),
        }
    }

    fn chat(&mut self, value: &Value) {
        let choices = value["choices"].as_array();
        self.stopped |=
            choices.into_iter().flatten().any(|choice| choice["finish_reason"].is_string());
        let usage = &value["usage"];
        self.count(usage["prompt_tokens"].as_u64(), usage["completion_tokens"].as_u64());
    }

    fn responses(&mut self, value: &Value) {
        let event = value["type"].as_str().unwrap_or_default();
        let response = if value["object"] == "response" { value } else { &value["response"] };
        match (event, response["status"].as_str().unwrap_or_default()) {
            ("response.completed" | "response.incomplete", _)
            | ("", "completed" | "incomplete") => self.ended = true,
            ("response.failed", _) | ("", "failed" | "cancelled") => {
                self.failed = Some(WireFailure::told(response, None));
            }
            ("error", _) => self.failed = Some(WireFailure::told(value, None)),
            _ => {}
        }
        let usage = &response["usage"];
        self.count(usage["input_tokens"].as_u64(), usage["output_tokens"].as_u64());
    }

    fn messages(&mut self, value: &Value) {
        let usage = match value["type"].as_str().unwrap_or_default() {
            "message_start" => &value["message"]["usage"],
            "message_stop" => {
                self.ended = true;
                return;
            }
            "message" => {
                self.ended |= value["stop_reason"].is_string();
                &value["usage"]
            }
            _ => &value["usage"],
        };
        let of = |key: &str| usage[key].as_u64();
        let cached = ["cache_read_input_tokens", "cache_creation_input_tokens"];
        let cached = cached.iter().filter_map(|key| of(key)).fold(0, u64::saturating_add);
        self.count(of("input_tokens").map(|it| it.saturating_add(cached)), of("output_tokens"));
    }

    fn gemini(&mut self, value: &Value) {
        let candidates = value["candidates"].as_array();
        self.stopped |= candidates.into_iter().flatten().any(|one| one["finishReason"].is_string());
        self.stopped |= value["promptFeedback"]["blockReason"].is_string();
        let usage = &value["usageMetadata"];
        let sum = |first: &str, more: &str| {
            let more = usage[more].as_u64().unwrap_or_default();
            usage[first].as_u64().map(|it| it.saturating_add(more))
        };
        self.count(
            sum("promptTokenCount", "toolUsePromptTokenCount"),
            sum("candidatesTokenCount", "thoughtsTokenCount"),
        );
    }

    /// Counts are totals so far.
    fn count(&mut self, input: Option<u64>, output: Option<u64>) {
        self.input_tokens = input.or(self.input_tokens);
        self.output_tokens = output.or(self.output_tokens);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whether an answer of these events is whole, and its tokens.
    fn metered(api: ModelApi, events: &[&str]) -> (bool, Option<u64>, Option<u64>) {
        let mut meter = RelayMeter::new(api);
        events.iter().for_each(|event| meter.event(event));
        (meter.whole().is_ok(), meter.input_tokens, meter.output_tokens)
    }

    #[test]
    fn each_apis_end_is_known_and_what_lacks_it_is_cut() {
        for (api, events, input, output) in [
            (
                ModelApi::Chat,
                &[
                    r#"{"choices":[{"delta":{"content":"a"}}]}"#,
                    r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
                    r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}"#,
                    "[DONE]",
                ][..],
                7,
                3,
            ),
            (
                ModelApi::Responses,
                &[
                    r#"{"type":"response.created","response":{"status":"in_progress"}}"#,
                    r#"{"type":"response.completed","response":{"status":"completed",
                        "usage":{"input_tokens":7,"output_tokens":3}}}"#,
                ],
                7,
                3,
            ),
            (
                ModelApi::Messages,
                &[
                    r#"{"type":"message_start","message":{"usage":{"input_tokens":4,
                        "cache_read_input_tokens":2,"cache_creation_input_tokens":1}}}"#,
                    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},
                        "usage":{"output_tokens":3}}"#,
                    r#"{"type":"message_stop"}"#,
                ],
                7,
                3,
            ),
            (
                ModelApi::Gemini,
                &[
                    r#"{"candidates":[{"content":{}}]}"#,
                    r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{
                        "promptTokenCount":7,"candidatesTokenCount":2,"thoughtsTokenCount":1}}"#,
                ],
                7,
                3,
            ),
        ] {
            assert_eq!(metered(api, events), (true, Some(input), Some(output)), "{api:?}");
            assert!(!metered(api, &events[..1]).0, "{api:?} was cut");
            let failed = r#"{"type":"error","error":{"type":"overloaded_error","message":"x"}}"#;
            let with = [events, &[failed]].concat();
            assert!(!metered(api, &with).0, "{api:?} failed");
        }
    }

    #[test]
    fn an_answer_that_is_no_stream_is_whole_by_its_own_words() {
        for (api, body, whole) in [
            (ModelApi::Chat, r#"{"choices":[{"message":{},"finish_reason":"length"}]}"#, true),
            (ModelApi::Responses, r#"{"object":"response","status":"incomplete"}"#, true),
            (ModelApi::Responses, r#"{"object":"response","status":"failed"}"#, false),
            (ModelApi::Messages, r#"{"type":"message","stop_reason":"refusal"}"#, true),
            (ModelApi::Gemini, r#"[{"candidates":[{"finishReason":"STOP"}]}]"#, true),
            (ModelApi::Gemini, r#"{"promptFeedback":{"blockReason":"OTHER"}}"#, true),
            (ModelApi::Gemini, r#"[{"candidates":[{}]}]"#, false),
            (ModelApi::Chat, "<html>", false),
        ] {
            let mut meter = RelayMeter::new(api);
            meter.document(body.as_bytes());
            assert_eq!(meter.whole().is_ok(), whole, "{body}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_a_provider_sends_stops_it(events in prop::collection::vec(".{0,80}", 0..6)) {
            for api in [ModelApi::Chat, ModelApi::Responses, ModelApi::Messages, ModelApi::Gemini] {
                let events: Vec<_> = events.iter().map(String::as_str).collect();
                metered(api, &events);
            }
        }
    }
}
