//! The order of the layers, by calls that violate several.

use std::sync::Arc;

use hivekeep_kernel::{Layer, SessionId};
use serde_json::json;

use crate::{Options, Policy, Question, Ruling, ToolView, Verdict, test_util::Stage};

/// Rules as its name says.
#[derive(Debug)]
struct Says(&'static str, Ruling);

impl Policy for Says {
    fn rule(&self, question: &Question<'_>, _: &[Verdict]) -> Verdict {
        // Echoes are left alone, so that the other layers can be reached.
        if question.tool.name == "toy_echo" {
            return Verdict::allow(self.0, "an echo");
        }
        Verdict { ruling: self.1, ..Verdict::allow(self.0, "as always") }
    }
}

fn one_token_each() -> Options {
    let mut options = Options::default();
    options.rate.default_burst = 1.try_into().expect("above zero");
    options
}

#[tokio::test]
async fn a_call_that_violates_several_layers_is_refused_by_the_first() {
    let asks: Arc<dyn Policy> = Arc::new(Says("careful", Ruling::Ask));
    let stage = Stage::with_policies(one_token_each(), vec![asks]).await;
    stage.call("toy_echo", json!({ "text": "takes the only token" })).await.result.expect("passes");

    // Each step mends what the layer before complained of.
    let user = Arc::new(ToolView::default());
    let mut request = stage.request("toy_admim", json!({ "wrong": true }));
    request.view = user;
    request.session = SessionId::new();
    let mut layers = Vec::new();
    for mend in 0.. {
        match mend {
            0 => {}
            1 => request.session = stage.attachment.session,
            2 => request.tool = "toy_admin".to_owned(),
            3 => request.view = Arc::new(ToolView::operator()),
            4 => request.args = serde_json::Map::new(),
            5 => {
                request.tool = "toy_echo".to_owned();
                request.args = json!({ "text": "x" }).as_object().expect("one").clone();
            }
            _ => break,
        }
        let error = stage.dispatcher.call(request.clone()).await.result.expect_err("refused");
        layers.push((error.layer, error.code.into_owned()));
    }
    let expected = [
        (Layer::Session, "session_unknown"),
        (Layer::Resolve, "unknown_tool"),
        (Layer::Policy, "denied"),
        (Layer::Schema, "invalid_input"),
        (Layer::Approval, "approval_required"),
        (Layer::Rate, "rate_limited"),
    ];
    assert_eq!(layers, expected.map(|(layer, code)| (layer, code.to_owned())));
}

#[tokio::test]
async fn rate_comes_before_routing_and_routing_before_admission() {
    let mut options = one_token_each();
    options.admission.in_flight = 1.try_into().expect("above zero");
    options.admission.reserved = 0;
    options.admission.queued = 0;
    let stage = Stage::new(options.clone()).await;
    stage.call("toy_look", json!({ "toy_id": "red" })).await.result.expect("takes the only token");
    let limited = stage.refusal("toy_look", json!({ "toy_id": "green" })).await;
    assert_eq!(limited.code, "rate_limited");

    options.rate.enabled = false;
    let stage = Stage::new(options).await;
    let (busy, lost) = tokio::join!(stage.call("toy_wait", json!({ "ms": 1_500 })), async {
        crate::test_util::stage::eventually("it waits", || {
            stage.marks.running.load(std::sync::atomic::Ordering::SeqCst) == 1
        })
        .await;
        let lost = stage.refusal("toy_look", json!({ "toy_id": "green" })).await;
        (lost, stage.refusal("toy_look", json!({ "toy_id": "red" })).await)
    });
    busy.result.expect("waited");
    assert_eq!((lost.0.code.as_ref(), lost.1.code.as_ref()), ("toy_not_found", "busy"));
}

#[tokio::test]
async fn an_input_can_name_the_bucket_that_its_call_draws_from() {
    let mut options = Options::default();
    options.rate.create_burst = 1.try_into().expect("above zero");
    let stage = Stage::new(options).await;
    let red = json!({ "text": "x", "colour": "red" });
    stage.call("toy_echo", red.clone()).await.result.expect("takes the only token");
    let limited = stage.refusal("toy_echo", red).await;
    assert_eq!(
        (limited.code.as_ref(), &limited.details["class"]),
        ("rate_limited", &json!("create"))
    );
    for colour in [json!("blue"), json!(null)] {
        let other = json!({ "text": "x", "colour": colour });
        stage.call("toy_echo", other).await.result.expect("the tool's own bucket");
    }
}

#[tokio::test]
async fn two_spellings_of_an_input_are_one_call() {
    let stage = Stage::new(Stage::loose()).await;
    let plain = json!({ "text": "x", "times": 3, "colour": null });
    let other = json!({ "text": "x", "times": 3.0, "tokens": null, "colour": null });
    for args in [plain, other] {
        let said = stage.call("toy_echo", args).await.result.expect("passes");
        assert_eq!(said["text"], "xxx");
    }
    let told = stage.events("call.finished", 2).await;
    assert_eq!(told[0].data["args_digest"], told[1].data["args_digest"]);
    stage.call("toy_wait", json!({ "ms": 1.0, "timeout_secs": 5.0 })).await.result.expect("waits");
    for times in [json!(1.5), json!(1e300), json!("3")] {
        let refused = stage.refusal("toy_echo", json!({ "text": "x", "times": times })).await;
        assert_eq!(refused.code, "invalid_input");
    }
}

#[tokio::test]
async fn a_denial_beats_a_question_and_names_all_verdicts() {
    let policies: Vec<Arc<dyn Policy>> =
        vec![Arc::new(Says("careful", Ruling::Ask)), Arc::new(Says("strict", Ruling::Deny))];
    let stage = Stage::with_policies(Stage::loose(), policies).await;
    let error = stage.refusal("toy_look", json!({ "toy_id": "red" })).await;
    assert_eq!((error.layer, error.details["policy"].as_str()), (Layer::Policy, Some("strict")));
    let verdicts = error.details["verdicts"].as_array().expect("a list");
    let told: Vec<_> =
        verdicts.iter().map(|one| (one["layer"].as_str(), one["ruling"].as_str())).collect();
    assert_eq!(told, [(Some("careful"), Some("ask")), (Some("strict"), Some("deny"))]);
}

#[tokio::test]
async fn every_call_leaves_one_event_with_its_verdicts_and_without_its_input() {
    let stage = Stage::new(Stage::loose()).await;
    stage.call("toy_echo", json!({ "text": "do not tell" })).await.result.expect("passes");
    stage.refusal("toy_ecko", json!({ "text": "do not tell" })).await;
    stage.refusal("toy_echo", json!({ "txt": "do not tell" })).await;
    // Dropped before it is done, as when a client vanishes.
    let wait = stage.call("toy_wait", json!({ "ms": 60_000 }));
    let dropped = tokio::time::timeout(std::time::Duration::from_millis(50), wait).await;
    assert!(dropped.is_err());
    let events = stage.events("call.finished", 4).await;
    let outcomes: Vec<_> = events.iter().map(|event| event.data["outcome"].clone()).collect();
    assert_eq!(outcomes, ["ok", "unknown_tool", "invalid_input", "abandoned"]);
    let first = &events[0].data;
    assert_eq!(first["verdicts"], json!([]), "nothing speaks against it");
    let layers: Vec<_> = first["layers"].as_object().expect("a map").iter().collect();
    let expected = [
        "switch",
        "visibility",
        "rules",
        "agent",
        "lineage",
        "allow_list",
        "toolset",
        "context",
        "conversation",
        "source",
        "permission_mode",
        "availability",
        "approval",
    ];
    assert_eq!(layers.iter().map(|(layer, _)| layer.as_str()).collect::<Vec<_>>(), expected);
    assert!(layers.iter().all(|(_, ruling)| **ruling == "allow"), "{layers:?}");
    assert_eq!(first["session"], json!(stage.attachment.session));
    assert_eq!(first["door"], "internal");
    assert_eq!(first["args_digest"].as_str().map(str::len), Some(64));
    assert!(first["duration_ms"].as_f64().expect("a number") > 0.0);
    for event in &events {
        assert!(!event.data.to_string().contains("do not tell"));
    }
}
