//! Requests of programs: their own bytes to the provider of their kind, with its key, and its own bytes back.

use std::time::Duration;

use hivekeep_kernel::{SessionId, ToolError};
use hivekeep_ports::{ModelApi, ModelRelay, RelayEnd, RelayPiece, RelayRequest};
use hivekeep_testkit::eventually;
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};

use super::{
    fake::{Fake, Play, event, openai},
    stage::{Stage, code, provider, stage},
};
use crate::ModelProviderKind;

/// Body whose spacing and order no encoder of ours would make.
const BODY: &str = r#"{ "stream":true,"model" : "m", "z":1, "a":[ ] }"#;
const KEY: &str = "sk-of-the-operator";

fn request(session: SessionId, api: ModelApi) -> RelayRequest {
    RelayRequest {
        session,
        api,
        provider: "p".to_owned(),
        model: "m".to_owned(),
        stream: true,
        max_tokens: Some(50),
        headers: vec![("anthropic-beta", "some-feature".to_owned())],
        body: BODY.into(),
        deadline: Instant::now() + Duration::from_secs(60),
    }
}

/// Outcome of a request, and the pieces of its answer.
async fn relayed(
    stage: &Stage,
    request: RelayRequest,
) -> (Result<RelayEnd, ToolError>, Vec<RelayPiece>) {
    let relay = stage.rig.daemon.ports.need::<dyn ModelRelay>().expect("offered");
    let (piece, mut pieces) = mpsc::channel(16);
    let reading = async {
        let mut all = Vec::new();
        while let Some(piece) = pieces.recv().await {
            all.push(piece);
        }
        all
    };
    let (end, all) = tokio::join!(relay.relay(request, piece), reading);
    (
        end.map(|(source, end)| {
            assert_eq!(source.to_string(), "p/m");
            end
        }),
        all,
    )
}

fn text(pieces: &[RelayPiece]) -> String {
    let bytes = pieces.iter().filter_map(|piece| match piece {
        RelayPiece::Body { bytes, .. } => Some(String::from_utf8_lossy(bytes)),
        RelayPiece::Head { .. } => None,
    });
    bytes.collect()
}

/// A stage whose provider `p` is of this kind, and has a key and a budget.
async fn of_kind(kind: ModelProviderKind, fake: &Fake) -> (Stage, tempfile::NamedTempFile) {
    let key = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(key.path(), KEY).expect("written");
    let model = json!({ "m": { "input_usd": 2.0, "output_usd": 10.0, "max_output_tokens": 100 } });
    let more = json!({ "models": model, "local": false, "key_file": key.path() });
    let options = json!({ "budget": { "session_tokens": 130 }, "provider": {
        "p": provider(kind, fake, more) } });
    (stage(options).await, key)
}

#[tokio::test]
async fn the_programs_bytes_go_with_the_providers_key_and_its_answer_comes_back_as_it_is() {
    let gemini = event(&json!({ "candidates": [{ "finishReason": "STOP" }],
        "usageMetadata": { "promptTokenCount": 11, "candidatesTokenCount": 5 } }));
    let messages = [
        json!({ "type": "message_start", "message": { "usage": { "input_tokens": 11 } } }),
        json!({ "type": "message_delta", "usage": { "output_tokens": 5 } }),
        json!({ "type": "message_stop" }),
    ];
    let responses = json!({ "type": "response.completed",
        "response": { "usage": { "input_tokens": 11, "output_tokens": 5 } } });
    use ModelProviderKind::{Anthropic, Gemini, OpenaiCompatible};
    for (kind, api, path, header, play) in [
        (OpenaiCompatible, ModelApi::Chat, "/v1/chat/completions", "authorization", openai("a b")),
        (
            OpenaiCompatible,
            ModelApi::Responses,
            "/v1/responses",
            "authorization",
            Play::Pieces(vec![event(&responses)]),
        ),
        (
            Anthropic,
            ModelApi::Messages,
            "/v1/messages",
            "x-api-key",
            Play::Pieces(messages.iter().map(event).collect()),
        ),
        (
            Gemini,
            ModelApi::Gemini,
            "/v1/models/m:streamGenerateContent?alt=sse",
            "x-goog-api-key",
            Play::Pieces(vec![gemini]),
        ),
    ] {
        let Play::Pieces(wanted) = play.clone() else { unreachable!() };
        let fake = Fake::always(play).await;
        let (stage, _key) = of_kind(kind, &fake).await;
        let (end, pieces) = relayed(&stage, request(stage.rig.session, api)).await;
        let end = end.expect("answered");
        assert!(end.whole, "{api:?}");
        let usage = end.usage;
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.estimated), (11, 5, false));
        assert_eq!(usage.cost_micro_usd, Some(11 * 2 + 5 * 10));
        assert_eq!(text(&pieces), wanted.concat(), "{api:?}");
        let RelayPiece::Head { status: 200, content_type, .. } = &pieces[0] else {
            panic!("{pieces:?}")
        };
        assert_eq!(content_type, "text/event-stream");
        let first = pieces.iter().find(|it| matches!(it, RelayPiece::Body { ends: true, .. }));
        assert!(first.is_some(), "the end is told before it is handed on");
        let asked = fake.asked().pop().expect("asked");
        assert_eq!((asked.path.as_str(), asked.raw.as_str()), (path, BODY));
        let key = asked.headers[header].to_str().expect("text");
        assert_eq!(key.trim_start_matches("Bearer "), KEY);
        assert_eq!(asked.headers["anthropic-beta"], "some-feature");
        // 16 tokens of 130 are spent, and another one reserves 66.
        relayed(&stage, request(stage.rig.session, api)).await.0.expect("it fits");
        relayed(&stage, request(stage.rig.session, api)).await.0.expect("it fits");
        let longer = RelayRequest { max_tokens: Some(100), ..request(stage.rig.session, api) };
        assert_eq!(code(relayed(&stage, longer).await.0), "llm_budget_exceeded");
        assert_eq!(fake.asked().len(), 3);
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_is_told_and_costs_what_came() {
    let word = event(&json!({ "choices": [{ "delta": { "content": "twelve bytes" } }] }));
    let fake = Fake::new(move |_, nth| match nth {
        0 => Play::Cut(vec![word.clone()]),
        // In order, and without an end.
        _ => Play::Pieces(vec![word.clone()]),
    })
    .await;
    let (stage, _key) = of_kind(ModelProviderKind::OpenaiCompatible, &fake).await;
    for requests in 1..=2 {
        let session = stage.rig.session;
        let (end, pieces) = relayed(&stage, request(session, ModelApi::Chat)).await;
        assert_eq!(code(end), "llm_answer_broken");
        assert!(text(&pieces).contains("twelve bytes"), "{pieces:?}");
        let backends = async || stage.rig.call("ml_backends", json!({})).await.expect("lists");
        let spent = async || backends().await["spent"]["session"]["requests"].clone();
        eventually("it is settled", async || spent().await == requests).await;
    }
}

#[tokio::test]
async fn refusals_are_passed_on_without_the_key_and_cost_nothing() {
    let body = json!({ "error": { "message": format!("wrong key {KEY}"), "type": "x" } });
    let fake = Fake::new(move |_, nth| match nth {
        0 => Play::Status(401, body.clone()),
        _ => Play::Later(429, 7),
    })
    .await;
    let (stage, _key) = of_kind(ModelProviderKind::OpenaiCompatible, &fake).await;
    let session = stage.rig.session;
    for (status, pause) in [(401, None), (429, Some(7))] {
        let (end, pieces) = relayed(&stage, request(session, ModelApi::Chat)).await;
        assert!(!end.expect("it was answered").whole);
        let RelayPiece::Head { status: came, retry_after, .. } = pieces[0] else { panic!() };
        assert_eq!((came, retry_after), (status, pause));
        assert!(!text(&pieces).contains(KEY), "{pieces:?}");
    }
    let backends = async || stage.rig.call("ml_backends", json!({})).await.expect("lists");
    let tokens = async || backends().await["spent"]["session"]["tokens"].clone();
    eventually("it is given back", async || tokens().await == 0).await;
    for (change, wanted) in [
        (
            RelayRequest { model: "n".to_owned(), ..request(session, ModelApi::Chat) },
            "llm_unknown_model",
        ),
        (request(session, ModelApi::Gemini), "llm_unsupported"),
        (
            RelayRequest { max_tokens: Some(101), ..request(session, ModelApi::Chat) },
            "invalid_input",
        ),
    ] {
        assert_eq!(code(relayed(&stage, change).await.0), wanted);
    }
    assert_eq!(fake.asked().iter().filter(|asked| asked.method == "POST").count(), 2);
}
