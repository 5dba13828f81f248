//! Budgets: reserved before, settled after, and kept over the daemon's end.

use hivekeep_kernel::SessionId;
use hivekeep_testkit::eventually;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    fake::{Fake, Play, event, openai},
    stage::{code, one, provider, question, stage},
};
use crate::{
    BudgetPeriod, ModelProviderKind,
    ledger::{LedgerState, SpendRecord},
};

async fn spent(stage: &super::stage::Stage) -> Value {
    stage.rig.call("ml_backends", json!({})).await.expect("lists")["spent"].clone()
}

fn with_budget(fake: &Fake, budget: Value) -> Value {
    let model = json!({ "m": { "input_usd": 2.0, "output_usd": 10.0, "max_output_tokens": 100 } });
    let options = json!({ "models": model, "local": false, "parallel": 4 });
    json!({ "budget": budget, "provider": {
        "p": provider(ModelProviderKind::OpenaiCompatible, fake, options) } })
}

#[tokio::test]
async fn what_the_provider_counted_replaces_what_was_reserved() {
    let fake = Fake::always(openai("yes")).await;
    let mut stage = stage(with_budget(&fake, json!({ "session_tokens": 1000 }))).await;
    let answer = stage.ask("p/m", "x").await.expect("answers");
    assert_eq!(answer.usage.cost_micro_usd, Some(11 * 2 + 5 * 10));
    for _ in 0..2 {
        let spent = spent(&stage).await;
        let account = json!({ "requests": 1, "tokens": 16, "usd": 0.000_072 });
        assert_eq!((&spent["session"], &spent["total"]), (&account, &account));
        stage = stage.crashed().await;
    }
}

#[tokio::test]
async fn a_request_that_may_cost_more_than_is_left_is_not_made() {
    let fake = Fake::always(openai("yes")).await;
    for (budget, which, unit) in [
        (json!({ "session_tokens": 130 }), "session", "tokens"),
        (json!({ "total_tokens": 130 }), "total", "tokens"),
        (json!({ "session_usd": 0.0011 }), "session", "micro_usd"),
        (json!({ "total_usd": 0.0011 }), "total", "micro_usd"),
    ] {
        let before = fake.asked().len();
        let stage = stage(with_budget(&fake, budget.clone())).await;
        let worst = stage.models.worst_case(&question(stage.rig.session, "p/m", "x"));
        let worst = worst.expect("it is known");
        assert_eq!((worst.input_tokens, worst.output_tokens), (17, 100));
        assert_eq!(worst.cost_micro_usd, Some(17 * 2 + 100 * 10));
        stage.ask("p/m", "x").await.expect("the first fits");
        let error = stage.ask("p/m", "x").await.expect_err("the second does not");
        assert_eq!(error.code, "llm_budget_exceeded", "{budget}");
        assert_eq!(
            (&error.details["budget"], &error.details["unit"]),
            (&json!(which), &json!(unit))
        );
        assert_eq!(fake.asked().len(), before + 1);
        let mut short = question(stage.rig.session, "p/m", "x");
        short.max_output_tokens = Some(1);
        stage.models.generate(short).await.expect("a shorter one fits");
        let mut other = question(SessionId::new(), "p/m", "x");
        other.max_output_tokens = Some(100);
        let answered = stage.models.generate(other).await;
        assert_eq!(answered.is_ok(), which == "session", "another session has its own");
    }
}

#[tokio::test]
async fn requests_at_a_time_do_not_spend_the_same_money() {
    let fake = Fake::always(Play::Hang(Vec::new())).await;
    let stage = stage(with_budget(&fake, json!({ "session_tokens": 360 }))).await;
    let streams: Vec<_> = (0..5)
        .map(|_| stage.models.stream(question(stage.rig.session, "p/m", "x")).expect("begins"))
        .collect();
    eventually("three fit", async || {
        fake.asked().iter().filter(|it| it.method == "POST").count() == 3
    })
    .await;
    let mut refused = 0;
    for stream in streams {
        tokio::select! {
            answer = stream.answer() => {
                assert_eq!(code(answer), "llm_budget_exceeded");
                refused += 1;
            }
            () = tokio::time::sleep(std::time::Duration::from_millis(50)) => {}
        }
    }
    assert_eq!(refused, 2);
}

#[tokio::test]
async fn money_is_not_spent_on_what_has_no_price() {
    let fake = Fake::always(openai("yes")).await;
    let mut options = one(&fake, json!({ "local": false }));
    options["budget"] = json!({ "total_usd": 5.0 });
    let stage = stage(options.clone()).await;
    assert_eq!(code(stage.ask("p/m", "x").await), "llm_price_unknown");
    options["provider"]["p"]["local"] = json!(true);
    let stage = super::stage::stage(options).await;
    let answer = stage.ask("p/m", "x").await.expect("a local one is free");
    assert_eq!(answer.usage.cost_micro_usd, Some(0));
}

#[tokio::test]
async fn a_request_that_failed_before_it_was_worked_on_costs_nothing_and_one_that_was_cut_does() {
    let word = event(&json!({ "choices": [{ "delta": { "content": "twelve bytes" } }] }));
    for (play, wanted) in [
        (Play::Status(500, json!({})), json!({ "requests": 0, "tokens": 0, "usd": 0.0 })),
        (Play::Status(401, json!({})), json!({ "requests": 0, "tokens": 0, "usd": 0.0 })),
        // A byte and two messages are read, and four tokens of the answer came.
        (Play::Cut(vec![word]), json!({ "requests": 1, "tokens": 21, "usd": 0.000_074 })),
    ] {
        let fake = Fake::always(play).await;
        let stage = stage(with_budget(&fake, json!({ "session_tokens": 1000 }))).await;
        let error = stage.ask("p/m", "x").await.expect_err("it fails");
        let lost = error.details.get("lost_tokens").and_then(Value::as_u64).unwrap_or(0);
        assert_eq!(json!(lost), wanted["tokens"], "whoever asked is told what it cost");
        eventually("it is settled", async || spent(&stage).await["session"] == wanted).await;
    }
}

fn reserved(id: u64, session: SessionId, tokens: u64, day: u32) -> SpendRecord {
    let at = format!("2026-03-{day:02}T12:00:00Z").parse().expect("a time");
    SpendRecord::Reserved {
        id,
        session,
        provider: "p".to_owned(),
        provider_kind: "openai".to_owned(),
        model: "m".to_owned(),
        tokens,
        micro_usd: tokens * 2,
        at,
    }
}

proptest! {
    #[test]
    fn every_token_is_counted_once(ends in prop::collection::vec((0_u64..500, 0_u8..4), 1..40)) {
        use hivekeep_runtime::log::Sourced;
        let (session, mut state) = (SessionId::new(), LedgerState::default());
        let (mut tokens, mut lost) = (0, Vec::new());
        for (id, (amount, end)) in (0..).zip(&ends) {
            state.apply(reserved(id, session, *amount, 1 + u32::try_from(id / 10).expect("small")))
                .expect("follows");
            let at = "2026-03-09T12:00:00Z".parse().expect("a time");
            match end {
                0 => state.apply(SpendRecord::Released { id }).expect("follows"),
                1 => {
                    tokens += amount / 2;
                    let (input_tokens, output_tokens) = (amount / 2, 0);
                    state.apply(SpendRecord::Settled {
                        id, input_tokens, output_tokens, micro_usd: amount / 2, estimated: false, at,
                    }).expect("follows");
                    prop_assert!(state.apply(SpendRecord::Released { id }).is_err(), "once");
                }
                2 => { tokens += amount; lost.push(id); }
                _ => tokens += amount,
            }
        }
        state.apply(SpendRecord::Lost { ids: lost }).expect("follows");
        let now = "2026-03-31T12:00:00Z".parse().expect("a time");
        prop_assert_eq!(state.session(session).tokens(), tokens);
        prop_assert_eq!(state.total(BudgetPeriod::Month, now).tokens(), tokens);
        prop_assert_eq!(state.ever().tokens(), tokens);
        prop_assert_eq!(state.total(BudgetPeriod::Day, now).tokens(), 0, "another day");
        let folded = state.fold().expect("folds");
        let again = LedgerState::unfold(&folded).expect("unfolds");
        prop_assert_eq!(again.fold(), Some(folded));
    }
}
