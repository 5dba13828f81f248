//! Providers that fail, hang, never end or are slow, and what is done about them.

use hivekeep_ports::ModelDelta;
use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::{
    fake::{Fake, Play, event, openai},
    stage::{code, one, provider, question, stage},
};
use crate::ModelProviderKind;

fn word(text: &str) -> String {
    event(&json!({ "choices": [{ "delta": { "content": text } }] }))
}

#[tokio::test]
async fn what_passes_is_repeated_and_what_does_not_is_not() {
    for (status, passes) in
        [(500, true), (503, true), (429, true), (400, false), (401, false), (404, false)]
    {
        let fake = Fake::new(move |_, nth| match nth {
            0 => Play::Status(status, json!({ "error": { "message": "no" } })),
            _ => openai("yes"),
        })
        .await;
        let stage = stage(one(&fake, json!({ "retries": 2 }))).await;
        let answered = stage.ask("p/m", "x").await;
        assert_eq!(answered.is_ok(), passes, "{status}: {answered:?}");
        assert_eq!(fake.asked().len(), if passes { 2 } else { 1 }, "{status}");
        if let Ok(answer) = answered {
            assert_eq!(answer.attempts, 2);
        }
    }
}

#[tokio::test]
async fn what_never_answers_is_repeated_as_often_as_is_configured() {
    let fake = Fake::always(Play::Status(500, json!({}))).await;
    let stage = stage(one(&fake, json!({ "retries": 2 }))).await;
    let error = stage.ask("p/m", "x").await.expect_err("it fails");
    assert_eq!((error.code.as_ref(), fake.asked().len()), ("llm_unavailable", 3));
    assert_eq!((error.details["attempts"].as_u64(), error.retryable), (Some(3), true));
}

#[tokio::test]
async fn a_pause_that_is_longer_than_the_time_left_is_not_waited_for() {
    let fake = Fake::always(Play::Later(429, 3_000)).await;
    let stage = stage(json!({ "timeout_secs": 20,
        "provider": one(&fake, json!({ "retries": 5 }))["provider"] }))
    .await;
    let error = stage.ask("p/m", "x").await.expect_err("it fails");
    assert_eq!((error.code.as_ref(), fake.asked().len()), ("llm_rate_limited", 1));
    assert_eq!(error.retry_after_ms, Some(60_000), "what a provider asks for is bounded");
}

#[tokio::test]
async fn a_part_that_was_handed_on_is_never_repeated() {
    let fake = Fake::always(Play::Cut(vec![word("Hel")])).await;
    let stage = stage(one(&fake, json!({ "retries": 3 }))).await;
    let mut stream = stage.models.stream(question(stage.rig.session, "p/m", "x")).expect("begins");
    assert_eq!(stream.next().await, Some(ModelDelta::Text("Hel".to_owned())));
    let error = stream.answer().await.expect_err("it was cut");
    assert_eq!((error.code.as_ref(), fake.asked().len()), ("llm_answer_broken", 1));
    assert_eq!(error.details["received_bytes"], 3);
}

#[tokio::test]
async fn what_hangs_is_given_up() {
    for (play, part) in [
        (Play::Hang(Vec::new()), "no answer began within 1 s"),
        (Play::Hang(vec![word("Hel")]), "paused for longer than 1 s"),
    ] {
        let fake = Fake::always(play).await;
        let limits = json!({ "first_token_secs": 1, "idle_secs": 1 });
        let stage = stage(one(&fake, limits)).await;
        let error = stage.ask("p/m", "x").await.expect_err("it hangs");
        assert_eq!(error.code, "llm_timed_out");
        assert!(error.message.contains(part), "{error:?}");
    }
}

#[tokio::test]
async fn what_has_no_end_is_bounded() {
    for (piece, kind) in [
        (word("x"), ModelProviderKind::OpenaiCompatible),
        ("no line ever ends ".to_owned(), ModelProviderKind::OpenaiCompatible),
        ("data: an event never ends\n".to_owned(), ModelProviderKind::OpenaiCompatible),
        (format!("{}\n", json!({ "message": { "content": "x" } })), ModelProviderKind::Ollama),
    ] {
        let fake = Fake::always(Play::Endless(piece.clone())).await;
        let limits = provider(kind, &fake, json!({ "max_answer_kb": 64, "retries": 3 }));
        let stage = stage(json!({ "provider": { "p": limits } })).await;
        assert_eq!(code(stage.ask("p/m", "x").await), "llm_answer_too_large", "{piece}");
        assert_eq!(fake.asked().len(), 1, "it would be as large again");
    }
}

#[tokio::test]
async fn more_tools_than_anybody_needs_are_refused() {
    let fake = Fake::always(Play::Endless(event(&json!({ "choices": [{ "delta": { "tool_calls":
        (0..200).map(|index| json!({ "index": index, "function": { "name": "x" } })).collect::<Value>()
    } }] }))))
    .await;
    let stage = stage(one(&fake, json!({}))).await;
    assert_eq!(code(stage.ask("p/m", "x").await), "llm_answer_too_large");
}

#[tokio::test]
async fn a_request_that_nobody_waits_for_ends_and_frees_its_place() {
    let fake = Fake::new(|_, nth| match nth {
        0 => Play::Hang(vec![word("Hel")]),
        _ => openai("yes"),
    })
    .await;
    let stage = stage(one(&fake, json!({ "parallel": 1 }))).await;
    let mut stream = stage.models.stream(question(stage.rig.session, "p/m", "x")).expect("begins");
    assert!(stream.next().await.is_some());
    drop(stream);
    assert_eq!(stage.ask("p/m", "x").await.expect("the place is free").text, "yes");
}

#[tokio::test]
async fn a_provider_that_keeps_failing_is_left_alone_and_tried_again() {
    let fake = Fake::new(|_, nth| match nth {
        0 | 1 => Play::Status(500, json!({})),
        _ => openai("yes"),
    })
    .await;
    let stage = stage(one(&fake, json!({ "breaker_failures": 2, "breaker_secs": 1 }))).await;
    for _ in 0..2 {
        assert_eq!(code(stage.ask("p/m", "x").await), "llm_unavailable");
    }
    // The outcome of a request reaches the breaker after its answer.
    eventually("it is left alone", async || {
        let listed = stage.rig.call("ml_backends", json!({})).await.expect("lists");
        listed["backends"][0]["state"] == "left_alone"
    })
    .await;
    let error = stage.ask("p/m", "x").await.expect_err("it is left alone");
    assert!(error.message.contains("in a row") && error.retry_after_ms.is_some(), "{error:?}");
    assert_eq!(posts(&fake), 2, "it was not asked");
    eventually("it is tried again", async || stage.ask("p/m", "x").await.is_ok()).await;
    assert_eq!(posts(&fake), 3);
}

fn posts(fake: &Fake) -> usize {
    fake.asked().iter().filter(|asked| asked.method == "POST").count()
}

#[tokio::test]
async fn another_model_is_asked_where_it_is_configured_and_named() {
    let down = Fake::always(Play::Status(503, json!({ "error": { "message": "down" } }))).await;
    let up = Fake::always(openai("yes")).await;
    let options = |fallback: bool| {
        json!({
            "provider": {
                "a": provider(ModelProviderKind::OpenaiCompatible, &down, json!({})),
                "b": provider(ModelProviderKind::OpenaiCompatible, &up, json!({})),
            },
            "alias": { "default": { "models": ["a/m", "b/m"], "fallback": fallback } },
        })
    };
    let stage_with = stage(options(true)).await;
    let answer = stage_with.ask("default", "x").await.expect("the second answers");
    assert_eq!(answer.source.to_string(), "b/m");
    let [failed] = answer.failed.as_slice() else { panic!("{answer:?}") };
    assert_eq!(
        (failed.source.to_string().as_str(), failed.error.code.as_ref()),
        ("a/m", "llm_unavailable")
    );
    let called =
        stage_with.rig.call("ml_generate", json!({ "prompt": "x" })).await.expect("answers");
    assert_eq!((&called["backend"], &called["failed"][0]["backend"]), (&json!("b"), &json!("a")));

    let without = stage(options(false)).await;
    assert_eq!(code(without.ask("default", "x").await), "llm_unavailable");
    // A name that is no alias never stands for another model.
    assert_eq!(code(stage_with.ask("a/m", "x").await), "llm_unavailable");
}

#[tokio::test]
async fn a_refused_request_is_not_put_to_another_model() {
    let refuses =
        Fake::always(Play::Status(400, json!({ "error": { "message": "too long" } }))).await;
    let up = Fake::always(openai("yes")).await;
    let stage = stage(json!({
        "provider": {
            "a": provider(ModelProviderKind::OpenaiCompatible, &refuses, json!({})),
            "b": provider(ModelProviderKind::OpenaiCompatible, &up, json!({})),
        },
        "alias": { "default": { "models": ["a/m", "b/m"], "fallback": true } },
    }))
    .await;
    assert_eq!(code(stage.ask("default", "x").await), "llm_request_refused");
    assert!(up.asked().is_empty());
}

#[tokio::test]
async fn an_actor_that_is_killed_comes_back() {
    let fake = Fake::new(|_, nth| match nth {
        0 => Play::Hang(vec![word("Hel")]),
        _ => openai("yes"),
    })
    .await;
    let stage = stage(one(&fake, json!({}))).await;
    let mut stream = stage.models.stream(question(stage.rig.session, "p/m", "x")).expect("begins");
    assert!(stream.next().await.is_some());
    stage.rig.kill_grandchildren();
    assert_eq!(code(stream.answer().await), "llm_unavailable", "its request ended with it");
    eventually("it answers again", async || stage.ask("p/m", "x").await.is_ok()).await;
}
