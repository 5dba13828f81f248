//! Names: aliases, strategies, and what is refused.

use hivekeep_ports::ModelUse;
use serde_json::{Value, json};

use super::{
    fake::{Fake, Play, openai},
    stage::{code, stage},
};

/// Two providers on this host, of which `cloud` counts as none, with a model of each purpose.
async fn names(more: Value) -> (super::stage::Stage, Fake) {
    let fake = Fake::always(openai("yes")).await;
    let root = fake.root();
    let mut options = json!({ "provider": {
        "near": { "kind": "openai-compatible", "endpoint": root, "retries": 0,
            "models": { "small": {}, "vectors": { "purpose": "embed" } } },
        "cloud": { "kind": "openai-compatible", "endpoint": root, "local": false, "retries": 0,
            "models": { "big": { "input_usd": 5.0, "output_usd": 20.0 },
                "mini": { "input_usd": 0.5, "output_usd": 1.0 }, "org/odd": {} } },
        "off": { "kind": "openai-compatible", "endpoint": root, "enabled": false,
            "models": { "gone": {} } },
    } });
    options.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
    (stage(options).await, fake)
}

fn found(stage: &super::stage::Stage, name: &str) -> Vec<String> {
    let found = stage.models.resolve(name, ModelUse::Generate);
    found
        .unwrap_or_else(|error| panic!("{name}: {error}"))
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[tokio::test]
async fn names_stand_for_what_has_them_and_for_nothing_else() {
    let (stage, fake) = names(json!({ "alias": { "fast": { "models": ["cloud/mini"] } } })).await;
    for (name, wanted) in [
        ("near/small", "near/small"),
        ("near", "near/small"),
        ("small", "near/small"),
        ("fast", "cloud/mini"),
        ("org/odd", "cloud/org/odd"),
        ("cloud/org/odd", "cloud/org/odd"),
    ] {
        assert_eq!(found(&stage, name), [wanted], "{name}");
    }
    for (name, wanted) in [
        ("nothing", "llm_unknown_backend"),
        ("near/nothing", "llm_unknown_model"),
        ("near/vectors", "llm_unknown_model"),
        ("cloud", "llm_unknown_model"),
        ("off", "llm_unknown_backend"),
        ("off/gone", "llm_unknown_backend"),
        ("gone", "llm_unknown_backend"),
        ("smart", "llm_not_configured"),
        ("default", "llm_not_configured"),
        ("", "llm_unknown_backend"),
    ] {
        assert_eq!(code(stage.ask(name, "x").await), wanted, "{name}");
    }
    assert!(fake.asked().is_empty());
    let unset = stage.ask("judge", "x").await.expect_err("it is not set");
    assert_eq!(unset.details["key"], "model.alias.judge");
    let vectors = stage.models.resolve("near", ModelUse::Embed).expect("one embeds");
    assert_eq!(vectors[0].to_string(), "near/vectors");
}

#[tokio::test]
async fn without_a_provider_the_key_is_named_at_once() {
    let stage = stage(json!({})).await;
    for tool in ["ml_generate", "ml_probe"] {
        let args = if tool == "ml_generate" { json!({ "prompt": "x" }) } else { json!({}) };
        let error = stage.rig.call(tool, args).await.expect_err("nothing is configured");
        assert_eq!(
            (error.code.as_ref(), &error.details["key"]),
            ("llm_not_configured", &json!("model.provider"))
        );
    }
    let listed = stage.rig.call("ml_backends", json!({})).await.expect("lists");
    assert_eq!((&listed["backends"], &listed["default"]), (&json!([]), &json!("")));
}

#[tokio::test]
async fn an_alias_orders_its_models_by_its_strategy() {
    let models = ["cloud/big", "cloud/mini", "near/small", "cloud/org/odd"];
    for (strategy, wanted) in [
        ("in-order", models),
        ("prefer-local", ["near/small", "cloud/big", "cloud/mini", "cloud/org/odd"]),
        ("prefer-cloud", ["cloud/big", "cloud/mini", "cloud/org/odd", "near/small"]),
        ("cost-optimized", ["near/small", "cloud/mini", "cloud/big", "cloud/org/odd"]),
    ] {
        let alias = json!({ "models": models, "fallback": true });
        let (stage, _fake) =
            names(json!({ "strategy": strategy, "alias": { "default": alias } })).await;
        assert_eq!(found(&stage, "default"), wanted, "{strategy}");
        let alias = json!({ "models": models, "strategy": strategy });
        let (stage, _fake) = names(json!({ "alias": { "default": alias } })).await;
        assert_eq!(found(&stage, "default"), wanted[..1], "{strategy}: without a fallback");
    }
}

#[tokio::test]
async fn the_quickest_is_the_one_that_was_measured_so() {
    let slow = Fake::new(|_, _| {
        std::thread::sleep(std::time::Duration::from_millis(120));
        openai("yes")
    })
    .await;
    let quick = Fake::always(openai("yes")).await;
    let broken = Fake::always(Play::Status(500, json!({}))).await;
    let one = |fake: &Fake| {
        json!({ "kind": "openai-compatible", "endpoint": fake.root(), "retries": 0,
            "models": { "m": {} } })
    };
    let stage = stage(json!({
        "provider": { "slow": one(&slow), "quick": one(&quick), "broken": one(&broken) },
        "alias": { "default": { "models": ["broken/m", "slow/m", "quick/m"], "fallback": true,
            "strategy": "latency-optimized" } },
    }))
    .await;
    for model in ["slow/m", "quick/m", "broken/m"] {
        let _outcome = stage.ask(model, "x").await;
    }
    hivekeep_testkit::eventually("all are measured", async || {
        found(&stage, "default") == ["quick/m", "slow/m", "broken/m"]
    })
    .await;
}
