//! Answers in other shapes than a stream of texts: parts, refusals, no stream at all, letters that are cut.

use hivekeep_ports::{ModelDelta, ModelStop};
use serde_json::{Value, json};

use super::{
    fake::{Fake, Play, event},
    stage::{Stage, provider, question, stage},
};
use crate::ModelProviderKind::{self, Anthropic, Gemini, Ollama, OpenaiCompatible};

async fn asked(kind: ModelProviderKind, pieces: Vec<String>) -> (Fake, Stage) {
    let fake = Fake::always(Play::Pieces(pieces)).await;
    let more = json!({ "retries": 0, "models": { "m": {} } });
    let options = json!({ "provider": { "p": provider(kind, &fake, more) } });
    let stage = stage(options).await;
    (fake, stage)
}

/// Chunks of a chat completion with these choices.
fn chunks(choices: &[Value]) -> Vec<String> {
    choices.iter().map(|choice| event(&json!({ "choices": [choice] }))).collect()
}

#[tokio::test]
async fn parts_of_a_text_are_its_text_and_a_refusal_is_one() {
    let end = || json!({ "delta": {}, "finish_reason": "stop" });
    for (delta, text, stop) in [
        (
            json!({ "content": [{ "type": "text", "text": "Par" }, { "text": "is" }] }),
            "Paris",
            ModelStop::End,
        ),
        (json!({ "refusal": "I will not" }), "I will not", ModelStop::Refused),
        (json!({ "content": [{ "type": "refusal", "refusal": "No" }] }), "No", ModelStop::Refused),
        (json!({ "content": null, "refusal": null }), "", ModelStop::End),
    ] {
        let (_fake, stage) =
            asked(OpenaiCompatible, chunks(&[json!({ "delta": delta }), end()])).await;
        let answer = stage.ask("p/m", "x").await.expect("answered");
        assert_eq!((answer.text.as_str(), answer.stop), (text, stop), "{delta}");
    }
}

#[tokio::test]
async fn an_answer_that_is_no_stream_is_an_answer_or_the_providers_own_words() {
    let pretty = |value: Value| vec![serde_json::to_string_pretty(&value).expect("JSON")];
    for (kind, answer) in [
        (
            OpenaiCompatible,
            json!({ "choices": [{ "message": { "content": "Paris" }, "finish_reason": "stop" }],
                "usage": { "prompt_tokens": 7, "completion_tokens": 3 } }),
        ),
        (
            Anthropic,
            json!({ "type": "message", "content": [{ "type": "text", "text": "Paris" }],
                "stop_reason": "end_turn", "usage": { "input_tokens": 7, "output_tokens": 3 } }),
        ),
        (
            Gemini,
            json!([{ "candidates": [{ "content": { "parts": [{ "text": "Paris" }] },
                "finishReason": "STOP" }],
                "usageMetadata": { "promptTokenCount": 7, "candidatesTokenCount": 3 } }]),
        ),
    ] {
        let (_fake, stage) = asked(kind, pretty(answer)).await;
        let answer = stage.ask("p/m", "x").await.expect("answered");
        assert_eq!((answer.text.as_str(), answer.stop), ("Paris", ModelStop::End), "{kind:?}");
        assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens), (7, 3), "{kind:?}");
    }
    let said = "out of credit";
    for (kind, body) in [
        (OpenaiCompatible, pretty(json!({ "error": { "message": said, "code": 402 } }))),
        (OpenaiCompatible, pretty(json!({ "message": said }))),
        (OpenaiCompatible, pretty(json!({ "detail": said }))),
        (OpenaiCompatible, pretty(json!({ "status": said }))),
        (OpenaiCompatible, vec![event(&json!({ "object": "error", "message": said }))]),
        (OpenaiCompatible, vec![format!("<html>{said}</html>")]),
        (Anthropic, pretty(json!({ "type": "error", "error": { "message": said } }))),
        (Gemini, pretty(json!([{ "error": { "message": said } }]))),
        (Ollama, vec![json!({ "error": said }).to_string()]),
    ] {
        let (_fake, stage) = asked(kind, body.clone()).await;
        let error = stage.ask("p/m", "x").await.expect_err("it failed");
        assert!(error.message.contains(said), "{kind:?} {body:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_letter_is_whole_however_it_comes() {
    let delta = |text: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    let end = || chunks(&[json!({ "delta": {}, "finish_reason": "stop" })]);
    for (texts, whole) in [
        ([r"a\ud83d", r"\ude00b"], "a\u{1f600}b"),
        ([r"cut \ud83d here", "x"], "cut \u{fffd} herex"),
        ([r"a\ud83d", "b"], "a\u{fffd}b"),
        (["a", r"b\ud83d"], "ab\u{fffd}"),
    ] {
        let pieces: Vec<_> = texts.map(delta).into_iter().chain(end()).collect();
        let (_fake, stage) = asked(OpenaiCompatible, pieces).await;
        let mut stream =
            stage.models.stream(question(stage.rig.session, "p/m", "x")).expect("begun");
        let mut streamed = String::new();
        while let Some(piece) = stream.next().await {
            let ModelDelta::Text(text) = piece else { panic!("{piece:?}") };
            streamed.push_str(&text);
        }
        let answer = stream.answer().await.expect("answered");
        assert_eq!((streamed.as_str(), answer.text.as_str()), (whole, whole), "{texts:?}");
    }
    // An argument is JSON within JSON.
    let call = |piece: &str| {
        json!({ "delta": { "tool_calls": [{ "index": 0, "id": "c",
        "function": { "name": "", "arguments": piece } }] } })
    };
    let named = json!({ "delta": { "tool_calls": [{ "index": 0, "function": { "name": "f" } }] } });
    let last = json!({ "delta": {}, "finish_reason": "tool_calls" });
    let pieces = chunks(&[named, call(r#"{"a":"\ud83d"#), call(r#"\ude00 \ud83d"}"#), last]);
    let (_fake, stage) = asked(OpenaiCompatible, pieces).await;
    let answer = stage.ask("p/m", "x").await.expect("answered");
    assert_eq!(answer.calls[0].arguments, json!({ "a": "\u{1f600} \u{fffd}" }));
}
