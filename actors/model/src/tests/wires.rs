//! The four wires: what is sent, what is read, and what is told of errors, as one table.

use hivekeep_ports::{
    EmbedRequest, ModelDelta, ModelMessage, ModelStop, ModelTool, ModelToolCall, ModelToolChoice,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    fake::{Fake, Play, event},
    stage::{code, one, provider, question, stage},
};
use crate::ModelProviderKind;

/// A wire with what a server of it sends.
struct Wire {
    kind: ModelProviderKind,
    /// Path of a question, below the root.
    path: &'static str,
    key_header: (&'static str, &'static str),
    text: Vec<String>,
    call: Vec<String>,
    /// An error within a stream.
    error: Vec<String>,
    /// Where the bound of tokens is in a request.
    bound: &'static str,
}

fn wires() -> Vec<Wire> {
    let line = |value: Value| format!("{value}\n");
    let chunk = |value: Value| event(&json!({ "choices": [value] }));
    let gemini = |parts: Value, more: Value| {
        let mut frame = json!({ "candidates": [{ "content": { "parts": parts } }],
            "usageMetadata": { "promptTokenCount": 7, "candidatesTokenCount": 2, "thoughtsTokenCount": 1 } });
        frame["candidates"][0]
            .as_object_mut()
            .expect("one")
            .extend(more.as_object().expect("one").clone());
        event(&frame)
    };
    let begin = || {
        event(&json!({ "type": "message_start", "message": { "usage": { "input_tokens": 7 } } }))
    };
    let block = |index: u64, block: Value| {
        event(&json!({ "type": "content_block_start", "index": index, "content_block": block }))
    };
    let delta = |index: u64, delta: Value| {
        event(&json!({ "type": "content_block_delta", "index": index, "delta": delta }))
    };
    let end = |reason: &str| {
        let end = json!({ "type": "message_delta", "delta": { "stop_reason": reason },
            "usage": { "output_tokens": 3 } });
        event(&end) + &event(&json!({ "type": "message_stop" }))
    };
    let usage = || {
        event(&json!({ "choices": [], "usage": { "prompt_tokens": 7, "completion_tokens": 3 } }))
            + "data: [DONE]\n\n"
    };
    let function = |index: u64, more: Value| json!({ "delta": { "tool_calls": [{ "index": index, "function": more }] } });
    vec![
        Wire {
            kind: ModelProviderKind::OpenaiCompatible,
            path: "/v1/chat/completions",
            key_header: ("authorization", "Bearer s3cret"),
            text: vec![
                chunk(json!({ "delta": { "content": "Hel" } })),
                chunk(json!({ "delta": { "content": "lo" } })),
                chunk(json!({ "delta": {}, "finish_reason": "stop" })),
                usage(),
            ],
            call: vec![
                // An index is a name: it need not be small.
                chunk(function(4_000_000_000, json!({ "name": "add", "arguments": "{\"a\":" }))),
                chunk(function(4_000_000_000, json!({ "arguments": " 1}" }))),
                chunk(json!({ "delta": {}, "finish_reason": "tool_calls" })),
                usage(),
            ],
            error: vec![event(
                &json!({ "error": { "message": "too much", "type": "rate_limit" } }),
            )],
            bound: "/max_tokens",
        },
        Wire {
            kind: ModelProviderKind::Anthropic,
            path: "/v1/messages",
            key_header: ("x-api-key", "s3cret"),
            text: vec![
                begin(),
                block(0, json!({ "type": "text", "text": "" })),
                delta(0, json!({ "type": "text_delta", "text": "Hel" })),
                delta(0, json!({ "type": "text_delta", "text": "lo" })),
                end("end_turn"),
            ],
            call: vec![
                begin(),
                block(1, json!({ "type": "tool_use", "id": "t1", "name": "add", "input": {} })),
                delta(1, json!({ "type": "input_json_delta", "partial_json": "{\"a\":" })),
                delta(1, json!({ "type": "input_json_delta", "partial_json": " 1}" })),
                end("tool_use"),
            ],
            error: vec![
                begin(),
                event(&json!({ "type": "error",
                    "error": { "type": "rate_limit_error", "message": "too much" } })),
            ],
            bound: "/max_tokens",
        },
        Wire {
            kind: ModelProviderKind::Gemini,
            path: "/v1/models/m:streamGenerateContent?alt=sse",
            key_header: ("x-goog-api-key", "s3cret"),
            text: vec![
                gemini(
                    json!([{ "text": "a thought", "thought": true }, { "text": "Hel" }]),
                    json!({}),
                ),
                gemini(json!([{ "text": "lo" }]), json!({ "finishReason": "STOP" })),
            ],
            call: vec![gemini(
                json!([{ "functionCall": { "name": "add", "args": { "a": 1 } }, "thoughtSignature": "sig" }]),
                json!({ "finishReason": "STOP" }),
            )],
            error: vec![event(&json!({ "error": { "code": 429, "status": "RESOURCE_EXHAUSTED",
                "message": "too much" } }))],
            bound: "/generationConfig/maxOutputTokens",
        },
        Wire {
            kind: ModelProviderKind::Ollama,
            path: "/v1/api/chat",
            key_header: ("authorization", "Bearer s3cret"),
            text: vec![
                line(json!({ "message": { "content": "Hel" }, "done": false })),
                line(json!({ "message": { "content": "lo" }, "done": false })),
                line(json!({ "message": { "content": "" }, "done": true, "done_reason": "stop",
                    "prompt_eval_count": 7, "eval_count": 3 })),
            ],
            call: vec![
                line(json!({ "message": { "content": "", "tool_calls":
                    [{ "function": { "name": "add", "arguments": { "a": 1 } } }] }, "done": false })),
                line(
                    json!({ "done": true, "done_reason": "stop", "prompt_eval_count": 7, "eval_count": 3 }),
                ),
            ],
            error: vec![line(json!({ "error": "too much" }))],
            bound: "/options/num_predict",
        },
    ]
}

fn with_key(fake: &Fake, kind: ModelProviderKind, key: &std::path::Path) -> Value {
    json!({ "provider": { "p": provider(kind, fake, json!({ "key_file": key })) } })
}

fn key_file() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "s3cret\n").expect("writes");
    file
}

#[tokio::test]
async fn text_comes_piece_by_piece_and_is_counted() {
    let key = key_file();
    for wire in wires() {
        let fake = Fake::always(Play::Pieces(wire.text)).await;
        let stage = stage(with_key(&fake, wire.kind, key.path())).await;
        let mut request = question(stage.rig.session, "p/m", "Say hello.");
        (request.system, request.temperature) = (Some("Be short.".to_owned()), Some(0.5));
        request.max_output_tokens = Some(99);
        request.stop = vec!["END".to_owned()];
        let mut stream = stage.models.stream(request).expect("it begins");
        let mut pieces = Vec::new();
        while let Some(delta) = stream.next().await {
            pieces.push(delta);
        }
        let text = |text: &str| ModelDelta::Text(text.to_owned());
        assert_eq!(pieces, [text("Hel"), text("lo")], "{:?}", wire.kind);
        let answer = stream.answer().await.expect("it ends");
        assert_eq!((answer.text.as_str(), answer.stop), ("Hello", ModelStop::End));
        let usage = answer.usage;
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.estimated), (7, 3, false));
        assert_eq!(answer.source.provider_kind, wire.kind.word());

        let asked = &fake.asked()[0];
        assert_eq!(asked.path, wire.path);
        let (name, value) = wire.key_header;
        assert_eq!(asked.headers[name], value, "{:?}", wire.kind);
        assert_eq!(asked.body.pointer(wire.bound), Some(&json!(99)), "{}", asked.body);
        let body = asked.body.to_string();
        for part in ["Say hello.", "Be short.", "0.5", "END"] {
            assert!(body.contains(part), "{:?}: {part}: {body}", wire.kind);
        }
        assert!(!body.contains("s3cret"));
    }
}

#[tokio::test]
async fn a_model_asks_for_tools_and_is_given_their_results() {
    let key = key_file();
    for wire in wires() {
        let fake = Fake::always(Play::Pieces(wire.call)).await;
        let stage = stage(with_key(&fake, wire.kind, key.path())).await;
        let mut request = question(stage.rig.session, "p/m", "Add.");
        let input_schema =
            json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
        let (name, description) = ("add".to_owned(), "Adds.".to_owned());
        request.tools = vec![ModelTool { name, description, input_schema }];
        request.tool_choice = ModelToolChoice::Required;
        let answer = stage.models.generate(request.clone()).await.expect("it asks for a tool");
        assert_eq!(answer.stop, ModelStop::ToolCalls, "{:?}", wire.kind);
        let [call] = answer.calls.as_slice() else { panic!("{:?}: {answer:?}", wire.kind) };
        assert_eq!((call.name.as_str(), &call.arguments), ("add", &json!({ "a": 1 })));
        assert!(!call.id.is_empty());

        let call = ModelToolCall { signature: Some("sig".to_owned()), ..call.clone() };
        request.messages.extend([
            ModelMessage::Assistant { text: String::new(), calls: vec![call.clone()] },
            ModelMessage::ToolResult { call, content: "forty-two".to_owned(), is_error: false },
        ]);
        stage.models.generate(request).await.expect("it goes on");
        let body = fake.asked()[1].body.to_string();
        for part in ["forty-two", "Adds.", "\"add\""] {
            assert!(body.contains(part), "{:?}: {part}: {body}", wire.kind);
        }
        assert_eq!(body.contains("\"sig\""), wire.kind == ModelProviderKind::Gemini, "{body}");
    }
}

#[tokio::test]
async fn errors_are_told_by_their_kind_and_without_the_key() {
    let key = key_file();
    for wire in wires() {
        for (status, wanted) in [
            (400, "llm_request_refused"),
            (401, "llm_auth_failed"),
            (403, "llm_auth_failed"),
            (404, "llm_unknown_model"),
            (429, "llm_rate_limited"),
            (500, "llm_unavailable"),
            (503, "llm_unavailable"),
            (302, "llm_unavailable"),
        ] {
            let body = json!({ "error": { "message": "no, s3cret\nis not it" } });
            let fake = Fake::always(Play::Status(status, body)).await;
            let stage = stage(with_key(&fake, wire.kind, key.path())).await;
            let error = stage.ask("p/m", "x").await.expect_err("it fails");
            assert_eq!(error.code, wanted, "{:?} {status}: {error:?}", wire.kind);
            let told = serde_json::to_string(&error).expect("serialises");
            assert!(!told.contains("s3cret"), "{told}");
            assert!(told.contains("[redacted] is not it"), "{told}");
        }
        let fake = Fake::always(Play::Pieces(wire.error)).await;
        let stage = stage(with_key(&fake, wire.kind, key.path())).await;
        let wanted = match wire.kind {
            ModelProviderKind::Ollama => "llm_unavailable",
            _ => "llm_rate_limited",
        };
        assert_eq!(code(stage.ask("p/m", "x").await), wanted, "{:?}", wire.kind);
    }
}

#[tokio::test]
async fn an_answer_that_has_no_end_of_its_own_is_cut() {
    let key = key_file();
    for wire in wires() {
        let last =
            wire.text.len() - if wire.kind == ModelProviderKind::OpenaiCompatible { 2 } else { 1 };
        for play in
            [Play::Cut(wire.text[..last].to_vec()), Play::Pieces(wire.text[..last].to_vec())]
        {
            let fake = Fake::always(play).await;
            let stage = stage(with_key(&fake, wire.kind, key.path())).await;
            let error = stage.ask("p/m", "x").await.expect_err("it was cut");
            assert_eq!(error.code, "llm_answer_broken", "{:?}: {error:?}", wire.kind);
        }
    }
}

#[tokio::test]
async fn a_structured_answer_is_held_against_its_schema() {
    let schema = json!({ "type": "object", "required": ["a"], "properties": { "a": { "type": "integer" } } });
    for (text, wanted) in [
        ("{\"a\": 1}", Ok(json!({ "a": 1 }))),
        ("{\"a\": \"1\"}", Err("llm_schema_mismatch")),
        ("it is 1", Err("llm_schema_mismatch")),
    ] {
        let fake = Fake::always(super::fake::openai(text)).await;
        let stage = stage(one(&fake, json!({}))).await;
        let mut request = question(stage.rig.session, "p/m", "x");
        request.schema = Some(schema.clone());
        let answered = stage.models.generate(request).await;
        let outcome = answered.as_ref().map(|it| it.structured.clone().expect("some"));
        match wanted {
            Ok(value) => assert_eq!(outcome.expect("it matches"), value),
            Err(wanted) => assert_eq!(outcome.expect_err("it does not").code, wanted),
        }
        let sent = &fake.asked()[0].body["response_format"]["json_schema"]["schema"];
        assert_eq!(sent, &schema);
    }
    let fake = Fake::always(super::fake::openai("x")).await;
    let stage = stage(one(&fake, json!({}))).await;
    let mut request = question(stage.rig.session, "p/m", "x");
    request.schema = Some(json!({ "type": 7 }));
    assert_eq!(code(stage.models.generate(request).await), "invalid_input");
    assert!(fake.asked().is_empty());
}

#[tokio::test]
async fn texts_become_vectors_in_their_order() {
    let rows = [
        (
            ModelProviderKind::OpenaiCompatible,
            json!({ "data": [{ "index": 1, "embedding": [3, 4.5] }, { "index": 0, "embedding": [1, 2] }],
                "usage": { "prompt_tokens": 4 } }),
            "/v1/embeddings",
        ),
        (
            ModelProviderKind::Gemini,
            json!({ "embeddings": [{ "values": [1, 2] }, { "values": [3, 4.5] }] }),
            "/v1/models/e:batchEmbedContents",
        ),
        (
            ModelProviderKind::Ollama,
            json!({ "embeddings": [[1, 2], [3, 4.5]], "prompt_eval_count": 4 }),
            "/v1/api/embed",
        ),
    ];
    for (kind, body, path) in rows {
        let fake = Fake::always(Play::json(&body)).await;
        let models = json!({ "models": { "e": { "purpose": "embed" } } });
        let stage = stage(json!({ "provider": { "p": provider(kind, &fake, models) } })).await;
        let embedded = stage.models.embed(texts(&stage, "p/e")).await.expect("embeds");
        assert_eq!(embedded.vectors, [[1.0, 2.0], [3.0, 4.5]], "{kind:?}");
        assert_eq!((embedded.dimension, fake.asked()[0].path.as_str()), (2, path));
        assert_eq!(embedded.usage.estimated, kind == ModelProviderKind::Gemini);
    }
}

fn texts(stage: &super::stage::Stage, model: &str) -> EmbedRequest {
    EmbedRequest {
        session: stage.rig.session,
        model: model.to_owned(),
        texts: vec!["a".to_owned(), "b".to_owned()],
        deadline: Instant::now() + std::time::Duration::from_secs(60),
    }
}

#[tokio::test]
async fn vectors_that_are_not_what_was_asked_for_are_refused() {
    for (rows, part) in [
        (json!([[1, 2]]), "1 vectors came for 2 texts"),
        (json!([[1, 2], [3]]), "has not 2 numbers"),
        (json!([[], []]), "has not 0 numbers"),
        (json!([[1, "x"], [3, 4]]), "not of numbers"),
        (json!([[1, 1e300], [3, 4]]), "not finite"),
    ] {
        let fake = Fake::always(Play::json(&json!({ "embeddings": rows }))).await;
        let models = json!({ "models": { "e": { "purpose": "embed" }, "m": {} } });
        let options =
            json!({ "provider": { "p": provider(ModelProviderKind::Ollama, &fake, models) } });
        let stage = stage(options).await;
        let error = stage.models.embed(texts(&stage, "p/e")).await.expect_err("refused");
        assert_eq!(error.code, "llm_answer_broken");
        assert!(error.message.contains(part), "{error:?}");
        let error = stage.models.embed(texts(&stage, "p/m")).await.expect_err("refused");
        assert_eq!(error.code, "llm_unknown_model", "it is not a model that embeds");
    }
    let fake = Fake::always(Play::json(&json!({}))).await;
    let models = json!({ "models": { "e": { "purpose": "embed", "dimension": 2 } } });
    let options =
        json!({ "provider": { "p": provider(ModelProviderKind::Anthropic, &fake, models) } });
    let stage = stage(options).await;
    assert_eq!(code(stage.models.embed(texts(&stage, "p")).await), "llm_unsupported");
}
