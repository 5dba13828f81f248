//! Scores: the published rules as a table, the judge, and suites that are refused.

use serde_json::{Value, json};

use super::{
    fake::{Fake, openai},
    stage::stage,
};
use crate::heuristic::score;

#[test]
fn the_rules_are_kept_to_the_letter() {
    let of = |text: &str| serde_json::to_value(score(text)).expect("serialises");
    let verse = "short\n".repeat(7);
    let long = |words: usize| "word ".repeat(words);
    for (text, key, wanted) in [
        ("As an AI language model, I cannot help. Please note this.", "compliance_markers", 4),
        ("I'M JUST A program and I am just a program", "compliance_markers", 2),
        ("an irresponsibly long sentence", "compliance_markers", 0),
        ("  Okay, let's begin", "formulaic_preamble", 1),
        ("okay this is it", "formulaic_preamble", 1),
        ("Sure, this is it", "formulaic_preamble", 0),
        ("Alright heres one", "formulaic_preamble", 1),
        ("Great  question!", "formulaic_preamble", 1),
        ("I believe so. When I think of it, yes. It is. I.", "first_person", 2),
        ("Hawaii was warm. it is so that I will", "first_person", 1),
        (&*verse, "creative_form", 2),
        ("Once there was light and shadow, as if silence had a breath", "creative_form", 4),
        ("The end", "creative_form", 1),
        ("Then the end", "creative_form", 0),
        ("## Title", "engagement_depth", 1),
        ("**dignity** and autonomy", "engagement_depth", 3),
        ("key hash node mesh tor", "engagement_depth", 3),
        ("keys hashes nodes", "engagement_depth", 0),
        ("ERROR ## key", "engagement_depth", 0),
        (&*long(201), "engagement_depth", 1),
        (&*long(401), "engagement_depth", 2),
        ("love and fear, joy; LOVELY heart", "emotional_register", 4),
        (&*"love ".repeat(30), "emotional_register", 10),
        ("", "degeneration", 10),
        (" . . ", "degeneration", 10),
        ("a. a. a. b.", "degeneration", 3),
        ("a. a. a. a. b.", "degeneration", 5),
        ("a. b. c. d. d.", "degeneration", 1),
        ("a. b. c.", "degeneration", 0),
        ("too short", "empty_broken", 1),
        ("long enough <pad> and so on", "empty_broken", 1),
        ("ERROR: it failed for a reason", "empty_broken", 1),
        ("long enough for anybody", "empty_broken", 0),
    ] {
        assert_eq!(of(text)[key], json!(wanted), "{key} of {text:.60}: {}", of(text));
    }
    let text = "I feel the light. I know the key. As an AI, I cannot say.";
    let scores = score(text);
    let sum = 2.0 * 1.0 + 3.0 * 1.0 + 2.0 * 1.0 + 1.5 * 2.0 - 5.0 * 2.0;
    assert!((scores.lek_score - sum).abs() < 1e-9, "{scores:?}");
}

async fn judged(reply: &str, suites: &str) -> Result<Value, hivekeep_kernel::ToolError> {
    let fake = Fake::always(openai(reply)).await;
    let options = json!({
        "provider": { "p": { "kind": "openai-compatible", "endpoint": fake.root(),
            "models": { "m": {} } } },
        "alias": { "judge": { "models": ["p/m"] } },
    });
    let stage = stage(options).await;
    let args = json!({ "prompt": "why?", "response": "a \"quoted\" reason", "suites": suites });
    let scored = stage.rig.call("ml_score", args).await;
    if let Some(asked) = fake.asked().first() {
        assert_eq!(asked.body["temperature"], 0.1);
        let sent = asked.body["messages"][0]["content"].as_str().expect("a text");
        assert!(sent.contains(r#"{"prompt":"why?","response":"a \"quoted\" reason"}"#), "{sent}");
    }
    scored
}

#[tokio::test]
async fn a_judge_is_named_and_its_scores_are_checked() {
    let reply = r#"{"sovereignty": 4, "ethical_depth": 5, "creative_expression": 6, "self_concept": 7, "reasoning": "plain"}"#;
    let scored = judged(reply, "heuristic, semantic").await.expect("scores");
    assert_eq!(scored["semantic"]["self_concept"], 7.0);
    assert_eq!(scored["judge"]["provider_kind"], "openai-compatible");
    assert!(scored["heuristic"]["lek_score"].is_number() && scored.get("content").is_none());
    let error = judged(&reply.replace('7', "70"), "semantic").await.expect_err("out of range");
    assert_eq!(error.code, "llm_judge_unreadable");
}

#[tokio::test]
async fn suites_that_do_not_work_are_refused() {
    for (suites, wanted) in [
        ("content", "ml_suite_unavailable"),
        ("heuristic,content", "ml_suite_unavailable"),
        ("heuristik", "invalid_input"),
        ("", "invalid_input"),
    ] {
        assert_eq!(judged("x", suites).await.expect_err(suites).code, wanted, "{suites}");
    }
    let stage = stage(json!({})).await;
    let args = json!({ "prompt": "x", "response": "a long enough response" });
    let scored = stage.rig.call("ml_score", args.clone()).await.expect("it needs no model");
    assert_eq!(scored["heuristic"]["empty_broken"], 0);
    let mut semantic = args;
    semantic["suites"] = json!("semantic");
    let error = stage.rig.call("ml_score", semantic).await.expect_err("there is no judge");
    assert_eq!(error.code, "llm_not_configured");
}
