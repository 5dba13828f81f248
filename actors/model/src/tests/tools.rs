//! The tools as clients call them.

use serde_json::{Value, json};

use super::{
    fake::{Fake, Play, openai},
    stage::{one, stage},
};
use crate::probes::PROBES;

#[tokio::test]
async fn an_answer_names_who_gave_it() {
    let fake = Fake::always(openai("Paris it is")).await;
    let stage = stage(one(&fake, json!({}))).await;
    let args = json!({ "prompt": "Which?", "backend": "p", "model": "m", "temperature": 0.0,
        "max_tokens": 9, "system": "Be short." });
    let answer = stage.rig.call("ml_generate", args).await.expect("answers");
    assert_eq!(answer["response"], "Paris it is");
    let given_back = stage.rig.given_back.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(given_back, 1, "a model's time keeps no other call out");
    let who = ["backend", "model", "provider_kind", "stop"].map(|key| answer[key].clone());
    assert_eq!(who, ["p", "m", "openai-compatible", "end"].map(Value::from));
    assert_eq!(answer["usage"], json!({ "input_tokens": 11, "output_tokens": 5, "cost_usd": 0.0 }));
    assert_eq!(
        (&fake.asked()[0].body["max_tokens"], &fake.asked()[0].body["temperature"]),
        (&json!(9), &json!(0.0))
    );
}

#[tokio::test]
async fn probes_are_judged_one_by_one() {
    // It knows half of the answers, and fails one.
    let fake = Fake::new(|asked, _| {
        let prompt = asked.body["messages"][0]["content"].as_str().unwrap_or_default();
        let nth = PROBES.iter().position(|probe| probe.prompt == prompt).expect("a probe");
        match nth {
            2 => Play::Status(500, json!({})),
            nth if nth % 2 == 0 => openai(PROBES[nth].expected),
            _ => openai("I do not know."),
        }
    })
    .await;
    let stage = stage(one(&fake, json!({ "parallel": 4 }))).await;
    let probed = stage.rig.call("ml_probe", json!({})).await.expect("probes");
    assert_eq!(
        (&probed["total"], &probed["passed"], &probed["failed"]),
        (&json!(23), &json!(11), &json!(1))
    );
    assert_eq!(probed["score"], json!(0.5));
    let results = probed["results"].as_array().expect("a list");
    for (result, probe) in results.iter().zip(PROBES) {
        assert_eq!(
            (&result["id"], &result["expected"]),
            (&json!(probe.id), &json!(probe.expected))
        );
    }
    assert!(results[2]["error"].is_string() && results[0].get("error").is_none());
    assert_eq!((&results[0]["passed"], &results[1]["passed"]), (&json!(true), &json!(false)));

    let args = json!({ "backend": "p/m", "categories": "algebra, code" });
    let some = stage.rig.call("ml_probe", args).await.expect("probes");
    assert_eq!(some["total"], 5);
    let error = stage.rig.call("ml_probe", json!({ "categories": "algebra,magic" })).await;
    let error = error.expect_err("there is none");
    assert_eq!(error.code, "invalid_input");
    assert_eq!(error.details["known"].as_array().map(Vec::len), Some(16));
}

#[tokio::test]
async fn backends_are_shown_as_they_are() {
    let lists = |ids: Value| Play::json(&json!({ "data": ids }));
    let rows = [
        (lists(json!([{ "id": "m" }])), "ready", Some(true)),
        (lists(json!([{ "id": "other" }])), "ready", Some(false)),
        (Play::Status(404, json!({})), "ready", None),
        (Play::Status(401, json!({ "error": { "message": "who?" } })), "auth_failed", None),
        (Play::Status(500, json!({})), "unreachable", None),
    ];
    for (play, state, listed) in rows {
        let fake = Fake::always(play).await;
        let stage = stage(one(&fake, json!({}))).await;
        let found = stage.rig.call("ml_backends", json!({})).await.expect("lists");
        let backend = &found["backends"][0];
        assert_eq!(
            (backend["state"].as_str(), backend["models"][0]["listed"].as_bool()),
            (Some(state), listed)
        );
        assert_eq!(backend["available"], state == "ready");
        assert_eq!(backend.get("why").is_some(), state != "ready", "{backend}");
        assert_eq!(found["default"], "p/m", "the only model is the default");
    }
}

#[tokio::test]
async fn a_status_comes_from_the_operators_database_alone() {
    let token = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(token.path(), "t0ken").expect("writes");
    let rows = |asked: &super::fake::Asked| {
        let sql = asked.body["q"].as_str().expect("a query");
        if sql.contains("training_status") {
            return json!([
                { "model": "m1", "run_id": "r2", "status": "running", "iteration": 50, "total_iters": 100, "pct": 50.0 },
                { "model": "m1", "run_id": "r1", "status": "old", "iteration": 1, "total_iters": 2, "pct": 1.0 },
            ]);
        }
        match sql {
            sql if sql.contains("training_loss") => {
                json!([{ "model": "m1", "loss": 1.25, "iteration": 50, "tokens_per_sec": 321.5 }])
            }
            sql if sql.contains("golden") => {
                json!([{ "worker": "w", "completed": 3, "target": 9, "pct": 33.3 }])
            }
            _ => json!({ "no": "rows" }),
        }
    };
    let fake = Fake::new(move |asked, _| Play::json(&rows(asked))).await;
    let url = fake.root().replace("/v1", "");
    let options = json!({ "status": { "influx_urls": [&url], "token_file": token.path() } });
    let stage_with = stage(options.clone()).await;
    let shown =
        stage_with.rig.call("ml_status", json!({ "influx_url": url })).await.expect("shows");
    let text = shown["status"].as_str().expect("a text");
    for part in
        ["m1 (r2): running, 50 of 100 (50.000 %), loss 1.250, 321.500 tokens/s", "golden w: 3 of 9"]
    {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("r1"), "the newest row of a model counts: {text}");
    assert!(shown["failed"]["expansion_progress"].is_string(), "{shown}");
    assert!(text.contains("the query failed"), "{text}");
    assert_eq!(fake.asked()[0].headers["authorization"], "Bearer t0ken");
    assert_eq!(
        (&fake.asked()[0].body["db"], fake.asked()[0].path.as_str()),
        (&json!("lem"), "/api/v3/query_sql")
    );

    let other = Fake::always(Play::json(&json!([]))).await;
    let foreign = json!({ "influx_url": other.root().replace("/v1", "") });
    for (stage, args) in [(&stage_with, foreign), (&stage(json!({})).await, json!({}))] {
        let refused = stage.rig.call("ml_status", args).await.expect_err("not configured");
        assert_eq!(refused.code, "ml_status_refused");
    }
    assert!(other.asked().is_empty(), "no token goes there");

    let fake = Fake::always(Play::Status(401, json!("who?"))).await;
    let url = fake.root().replace("/v1", "");
    let stage = stage(json!({ "status": { "influx_urls": [&url] } })).await;
    let error =
        stage.rig.call("ml_status", json!({ "influx_url": url })).await.expect_err("all failed");
    assert_eq!(error.code, "ml_status_failed");
    assert!(error.message.contains("401"), "{error:?}");
}

#[tokio::test]
async fn a_script_is_stamped_wherever_it_answers() {
    let script = tempfile::NamedTempFile::new().expect("a file");
    let replies = json!({ "replies": [
        { "text": "first" },
        { "when": "weather", "text": "it rains", "input_tokens": 4, "output_tokens": 2 },
        { "text": "", "calls": [{ "name": "look", "arguments": { "at": "it" } }] },
        { "error": "auth" },
    ] });
    std::fs::write(script.path(), replies.to_string()).expect("writes");
    let stage = stage(json!({ "provider": { "p": { "kind": "scripted", "script": script.path(),
        "models": { "m": {}, "e": { "purpose": "embed", "dimension": 4 } } } } }))
    .await;
    let first = stage.rig.call("ml_generate", json!({ "prompt": "x" })).await.expect("answers");
    assert_eq!(
        (&first["response"], &first["provider_kind"]),
        (&json!("first"), &json!("scripted"))
    );
    assert_eq!(first["usage"]["estimated"], true);
    let weather = stage.ask("p/m", "How is the weather?").await.expect("answers");
    assert_eq!((weather.text.as_str(), weather.usage.output_tokens), ("it rains", 2));
    let call = stage.ask("p/m", "x").await.expect("asks for a tool");
    assert_eq!((call.calls[0].name.as_str(), call.stop.word()), ("look", "tool_calls"));
    for wanted in ["llm_auth_failed", "llm_script_failed"] {
        assert_eq!(stage.ask("p/m", "x").await.expect_err("fails").code, wanted);
    }
    let listed = stage.rig.call("ml_backends", json!({})).await.expect("lists");
    assert_eq!(
        (&listed["backends"][0]["kind"], &listed["backends"][0]["available"]),
        (&json!("scripted"), &json!(true))
    );
}
