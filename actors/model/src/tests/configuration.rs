//! Options that cannot work are named.

use hivekeep_runtime::FamilyOptions;
use serde_json::{Value, json};

use crate::{Options, ProviderName};

fn wrong(options: Value) -> Vec<String> {
    let read = serde_json::from_value::<Options>(options).expect("reads");
    read.problems().into_iter().map(|(key, why)| format!("{key}: {why}")).collect()
}

#[test]
fn options_that_cannot_work_are_named() {
    let with = |more: Value| {
        let mut provider = json!({ "kind": "openai-compatible",
            "endpoint": "http://127.0.0.1:1/v1", "models": { "m": {} } });
        provider.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
        json!({ "provider": { "p": provider } })
    };
    assert_eq!(wrong(with(json!({}))), [""; 0]);
    assert_eq!(wrong(json!({})), [""; 0]);
    for (more, part) in [
        (json!({ "endpoint": null }), "endpoint: is missing"),
        (json!({ "endpoint": "ftp://x" }), "not a valid http"),
        (json!({ "endpoint": "http://u:p@x/" }), "not a valid http"),
        (json!({ "endpoint": "http://x/?key=1" }), "not a valid http"),
        (json!({ "endpoint": "http://x/v1", "key_env": "K" }), "plain http to another host"),
        (json!({ "models": {} }), "1 to 64 models"),
        (json!({ "models": { "m": { "input_usd": 1.0 } } }), "both prices"),
        (json!({ "models": { "m": { "input_usd": -1.0, "output_usd": 1.0 } } }), "a price"),
        (json!({ "key_file": "key" }), "absolute"),
        (json!({ "key_file": "/k", "key_env": "K" }), "either"),
        (json!({ "script": "/s" }), "a scripted provider"),
        (json!({ "kind": "scripted" }), "a scripted provider has none"),
        (json!({ "kind": "llama-server" }), "a llama-server needs it"),
        (json!({ "command": ["x"] }), "no other takes it"),
        (json!({ "kind": "openai", "endpoint": null }), "without a key"),
        (json!({ "parallel": 0 }), "between 1 and 256"),
        (json!({ "max_answer_kb": 0 }), "between 1 and 65536"),
        (json!({ "folders": ["x"] }), "absolute"),
    ] {
        let found = wrong(with(more.clone()));
        assert!(found.iter().any(|text| text.contains(part)), "{more}: {found:?}");
    }
    for (more, part) in [
        (json!({ "alias": { "fast": { "models": [] } } }), "1 to 16"),
        (json!({ "alias": { "fast": { "models": ["p/other"] } } }), "not a model"),
        (json!({ "alias": { "fast": { "models": ["m"] } } }), "not a model"),
        (json!({ "alias": { "p": { "models": ["p/m"] } } }), "has that name"),
        (json!({ "timeout_secs": 0 }), "between 1 and 3600"),
        (json!({ "budget": { "total_usd": -1.0 } }), "an amount"),
        (json!({ "status": { "influx_urls": ["x"] } }), "influx_urls"),
    ] {
        let mut options = with(json!({}));
        options.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
        let found = wrong(options);
        assert!(found.iter().any(|text| text.contains(part)), "{more}: {found:?}");
    }
    for name in ["", "A", "a/b", "a b", &"a".repeat(33)] {
        assert!(ProviderName::try_from(name.to_owned()).is_err(), "{name}");
    }
}

#[tokio::test]
async fn a_key_is_in_no_dump_of_the_options_and_missing_ones_are_told() {
    let stage = super::stage::stage(json!({ "provider": { "p": { "kind": "openai",
        "models": { "m": {} }, "key_file": "/there/is/none" } } }))
    .await;
    let error = stage.ask("p/m", "x").await.expect_err("no key");
    assert_eq!(error.code, "llm_auth_failed");
    assert!(error.message.contains("/there/is/none"), "{error:?}");
    let listed = stage.rig.call("ml_backends", json!({})).await.expect("lists");
    assert_eq!(listed["backends"][0]["state"], "auth_failed");
}
