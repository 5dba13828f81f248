//! Executions that are talked to: budgets that pause, messages, and who may.

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use hivekeep_kernel::{ExecutionId, User};
use hivekeep_ports::{ModelMessage, ModelRequest};
use hivekeep_runtime::log;
use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::{
    Stage,
    fakes::{says, turns},
    tasks::{TOOLS, opened, types, working, write},
};
use crate::execution::{
    account::{AccountChange, BudgetKind, BudgetWait, ExecutionMessage},
    state::{ExecutionState, Record},
};

impl Stage {
    pub(super) async fn status(&self, id: &str) -> Value {
        self.as_operator("aegis.task.status", json!({ "execution_id": id })).await.expect("known")
    }

    pub(super) async fn waits_for(&self, id: &str, what: &str) -> Value {
        eventually("it waits", async || self.status(id).await["waiting_for"] == what).await;
        self.status(id).await
    }

    pub(super) async fn continued(&self, id: &str, more: Value) -> Value {
        let mut asked = json!({ "execution_id": id });
        asked.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
        self.good("agent_continue", asked).await
    }

    fn actors(&self) -> usize {
        let rows = self.rig.daemon.census.rows();
        rows.iter().filter(|row| row.kind == "execution").count()
    }

    pub(super) async fn records(&self, id: &str) -> (ExecutionId, Vec<Record>) {
        let id: ExecutionId = id.parse().expect("an id");
        let stream = log::stream::<ExecutionState>(id).expect("a name");
        let read = log::read_records::<ExecutionState>(&self.rig.daemon.journal, &stream).await;
        (id, read.expect("read"))
    }

    /// A stage after a daemon that died behind these records, prepared before it goes on with them.
    pub(super) async fn reopened(
        id: ExecutionId,
        records: &[Record],
        prepare: impl Fn(&Self),
    ) -> Self {
        let mut stage = Self::new([]).await;
        write(&stage, id, records).await;
        prepare(&stage);
        stage.children.adopt(stage.rig.session, &id.to_string(), opened(records), &TOOLS);
        stage.rig = stage.rig.crashed().await;
        stage
    }

    /// A stage after a daemon that died behind these records.
    async fn with_records(id: ExecutionId, records: &[Record]) -> Self {
        Self::reopened(id, records, |stage| stage.models.answer(working)).await
    }
}

fn budget(bounds: &str) -> String {
    format!("  execution: {{ budget: {{ {bounds} }} }}\n")
}

fn count(events: &[Value], event_type: &str) -> usize {
    types(events).into_iter().filter(|it| *it == event_type).count()
}

fn said(request: &ModelRequest) -> Vec<(usize, &str)> {
    let messages = request.messages.iter().enumerate();
    let text = |(at, message): (usize, &'_ ModelMessage)| match message {
        ModelMessage::User(_) => Some(at),
        _ => None,
    };
    let texts = messages.filter_map(text).map(|at| match &request.messages[at] {
        ModelMessage::User(text) => (at, text.as_str()),
        _ => (at, ""),
    });
    texts.skip(1).collect()
}

/// The budget is reached, a message comes, and more: the whole life, then a daemon that dies at each of its records.
#[tokio::test]
async fn at_its_budget_an_execution_waits_without_an_actor_and_goes_on_with_more() {
    let stage = Stage::with_worker(&budget("tokens: 24")).await;
    stage.models.answer(working);
    let id = stage.begun("Mend it").await;
    let waits = stage.waits_for(&id, "budget").await;
    assert_eq!(waits["status"], "running");
    assert_eq!(waits["budget"], json!([{ "kind": "tokens", "used": 15, "limit": 24 }]));
    assert!(waits["next_step"].as_str().expect("text").contains("agent_continue"), "{waits}");
    let listed = stage.good("aegis.task.list", json!({})).await;
    assert_eq!(listed["executions"][0]["waiting_for"], "budget");
    eventually("its actor has gone", async || stage.actors() == 0).await;
    let events = stage.events(&id).await;
    assert_eq!(types(&events)[events.len() - 2..], ["budget_reached", "machine_absent"]);
    // 15 are used, and a request of 4 messages may come to 50.
    let reached = &events[events.len() - 2]["payload"];
    assert_eq!((&reached["used"], &reached["wanted"]), (&json!(15), &json!(50)));
    assert_eq!(count(&events, "budget_warning"), 1, "20 of 24 were set aside");
    assert_eq!(stage.models.asked().len(), 1, "nothing goes beyond the bound");

    let told = stage.continued(&id, json!({ "message": "Use tabs." })).await;
    assert_eq!(told["waiting_for"], "budget", "a message adds nothing");
    let unbounded = json!({ "execution_id": id, "budget": { "tool_calls": 1 } });
    assert_eq!(stage.refused("agent_continue", unbounded).await.code, "invalid_input");
    for nothing in [json!({}), json!({ "budget": {} }), json!({ "message": " " })] {
        let mut asked = json!({ "execution_id": id });
        asked.as_object_mut().expect("one").extend(nothing.as_object().expect("one").clone());
        assert_eq!(stage.refused("agent_continue", asked).await.code, "invalid_input");
    }
    stage.continued(&id, json!({ "budget": { "tokens": 500 } })).await;
    let end = stage.end(&id).await;
    assert_eq!((&end["status"], &end["waiting_for"]), (&json!("completed"), &json!(null)), "{end}");
    let asked = stage.models.asked();
    assert_eq!(asked.len(), 3);
    assert_eq!(said(&asked[1]), [(4, "Use tabs.")], "behind the results that it came after");
    assert_eq!(said(&asked[2]), [(4, "Use tabs.")], "at its place");
    stage.closed(&id).await;
    let over = json!({ "execution_id": id, "message": "Too late" });
    let over = stage.refused("agent_continue", over).await;
    assert!(over.code == "run_over" && over.next_step.is_some(), "{over}");

    let (parsed, records) = stage.records(&id).await;
    for kept in 1..=records.len() {
        let again = Stage::with_records(parsed, &records[..kept]).await;
        let of = |state: &Value| state["status"].clone();
        eventually("it goes on, or waits", async || {
            let state = again.status(&id).await;
            of(&state) == "completed" || state["waiting_for"] == "budget"
        })
        .await;
        if of(&again.status(&id).await) != "completed" {
            let asked = again.models.asked().len();
            eventually("its actor has gone", async || again.actors() == 0).await;
            assert_eq!(again.models.asked().len(), asked, "it stands still: {kept}");
            again.continued(&id, json!({ "budget": { "tokens": 500 } })).await;
        }
        assert_eq!(again.end(&id).await["status"], "completed", "at {kept}");
        let answers = records[..kept].iter().filter(|it| matches!(it, Record::Answered { .. }));
        assert_eq!(
            again.models.asked().len(),
            3 - answers.count(),
            "nothing is asked twice: {kept}"
        );
        let events = again.closed(&id).await;
        assert_eq!(count(&events, "budget_reached"), 1, "at {kept}");
        assert_eq!(count(&events, "execution_continued"), 1, "it is woken once: {kept}");
    }
}

#[tokio::test]
async fn a_message_is_read_before_the_next_turn_also_of_one_that_was_about_to_end() {
    let stage = Stage::with_worker("").await;
    stage.models.answer(|request| match turns(request) {
        0 => says("", &[("hold", json!({}))]),
        _ => says("Done.", &[]),
    });
    let id = stage.begun("hold").await;
    eventually("it holds", async || stage.children.calls("hold") == 1).await;
    stage.continued(&id, json!({ "message": "One." })).await;
    stage.continued(&id, json!({ "message": "Two." })).await;
    stage.children.release();
    assert_eq!(stage.end(&id).await["status"], "completed");
    assert_eq!(said(&stage.models.asked()[1]), [(3, "One."), (4, "Two.")]);
    stage.closed(&id).await;

    // The last answer is there, a message comes, and the end is not recorded.
    let (parsed, mut records) = stage.records(&id).await;
    let ends = |record: &Record| matches!(record, Record::Ended { .. });
    records.truncate(records.iter().position(ends).expect("it ended"));
    let message = ExecutionMessage { text: "Wait.".to_owned(), by: User::Uid(0) };
    records.push(Record::account(AccountChange::Messaged(message)));
    let again = Stage::with_records(parsed, &records).await;
    assert_eq!(again.end(&id).await["status"], "completed");
    let asked = again.models.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(said(&asked[0]), [(3, "One."), (4, "Two."), (6, "Wait.")]);
}

#[tokio::test]
async fn each_bound_holds_before_what_would_exceed_it() {
    let calls = Stage::with_worker(&budget("tool_calls: 3")).await;
    calls.models.answer(working);
    let id = calls.begun("call").await;
    calls.waits_for(&id, "budget").await;
    assert_eq!((calls.children.calls("fs.read"), calls.children.calls("fs.write")), (2, 0));
    let crashed = Stage { rig: calls.rig.crashed().await, ..calls };
    crashed.continued(&id, json!({ "budget": { "tool_calls": 1 } })).await;
    assert_eq!(crashed.end(&id).await["status"], "completed");
    assert_eq!(crashed.children.calls("fs.write"), 2, "none was begun before: none is interrupted");

    let money = Stage::with_worker(&budget("usd: 0.0002")).await;
    money.models.answer(working);
    let id = money.begun("pay").await;
    assert_eq!(money.end(&id).await["error_code"], "model_price_unknown");
    money.models.cost(Some(201));
    let id = money.begun("pay").await;
    let waits = money.waits_for(&id, "budget").await;
    assert_eq!(waits["budget"], json!([{ "kind": "micro_usd", "used": 0, "limit": 200 }]));
    assert_eq!(money.models.asked().len(), 0);

    let time = Stage::with_worker(&budget("wall_secs: 1")).await;
    time.models.answer(working);
    time.models.be_silent(true);
    let id = time.begun("silent").await;
    let waits = time.waits_for(&id, "budget").await;
    assert_eq!(waits["error_code"], Value::Null, "it has not failed: {waits}");
    time.models.be_silent(false);
    time.continued(&id, json!({ "budget": { "wall_secs": 50 } })).await;
    assert_eq!(time.end(&id).await["status"], "completed", "the wait does not count");
}

#[tokio::test]
async fn nobody_gets_more_than_the_operator_and_the_tier_allow() {
    let mut stage = Stage::with_worker(&budget("tokens: 60")).await;
    stage.models.answer(working);
    stage.rig.options.budget.tokens = 50;
    stage.rig = stage.rig.crashed().await;
    let asked = |tokens: u64| json!({ "agent_id": "worker", "budget": { "tokens": tokens } });
    let above = json!({ "agent_id": "worker" });
    assert_eq!(stage.refused("aegis.task.execute", above).await.code, "budget_above_bound");
    let begun = stage.good("aegis.task.execute", asked(40)).await;
    let id = begun["execution_id"].as_str().expect("an id").to_owned();
    stage.waits_for(&id, "budget").await;
    let more = json!({ "execution_id": id, "budget": { "tokens": 200 } });
    let refused = stage.refused("agent_continue", more.clone()).await;
    assert_eq!(
        (refused.code.as_ref(), &refused.details["limit"]),
        ("budget_above_bound", &json!(50))
    );
    stage.as_operator("agent_continue", more).await.expect("an operator may");
    assert_eq!(stage.end(&id).await["status"], "completed");
}

#[tokio::test]
async fn a_wait_that_nobody_ends_fails_by_its_name_and_one_for_a_person_is_told() {
    let stage = Stage::with_worker(&budget("tokens: 24")).await;
    stage.models.answer(|_| says("", &[("hold", json!({}))]));
    let id = stage.begun("hold").await;
    eventually("it holds", async || stage.children.calls("hold") == 1).await;
    let (session, _) = stage.children.opened().remove(0);
    stage.children.asks(session);
    assert_eq!(stage.status(&id).await["waiting_for"], "approval");
    stage.children.release();
    stage.waits_for(&id, "budget").await;
    let doomed = stage.begun("hold").await;
    eventually("it holds", async || stage.children.calls("hold") == 2).await;
    stage.children.release();
    stage.waits_for(&doomed, "budget").await;
    stage.good("aegis.task.cancel", json!({ "execution_id": doomed })).await;
    assert_eq!(stage.end(&doomed).await["waiting_for"], Value::Null);
    stage.closed(&doomed).await;
    let (parsed, mut records) = stage.records(&id).await;
    let old = BudgetWait {
        of: parsed,
        kind: BudgetKind::Tokens,
        used: 15,
        wanted: 50,
        limit: 24,
        until: Utc::now() + TimeDelta::milliseconds(100),
    };
    *records.last_mut().expect("one") = Record::account(AccountChange::BudgetReached(old));
    let again = Stage::with_records(parsed, &records).await;
    let end = again.end(&id).await;
    assert_eq!(
        (&end["status"], &end["error_code"]),
        (&json!("failed"), &json!("budget_exhausted"))
    );
    assert!(again.models.asked().is_empty());
}

/// An agent that could talk to itself, to whoever began it or to another would have no bounds.
#[tokio::test]
async fn no_session_of_an_agent_continues_but_what_it_began() {
    let stage = Stage::with_worker(&budget("tokens: 1000")).await;
    stage.models.answer(|_| says("", &[("hold", json!({}))]));
    let holds = async |n| eventually("it holds", async || stage.children.calls("hold") == n).await;
    let own = stage.begun("own").await;
    holds(1).await;
    let (session, _) = stage.children.opened().remove(0);
    let other = stage.begun("other").await;
    holds(2).await;
    let execute = json!({ "agent_id": "worker", "intent": "below" });
    let below = stage.call_as(session, Default::default(), "aegis.task.execute", execute).await;
    let below = below.expect("begun")["execution_id"].as_str().expect("an id").to_owned();
    holds(3).await;
    let opened = stage.children.opened();
    let (deep, _) = opened.iter().find(|(_, child)| child.parent == session).expect("opened");
    for (by, of) in
        [(session, &own), (session, &other), (*deep, &own), (*deep, &below), (*deep, &other)]
    {
        for more in [json!({ "message": "Go on." }), json!({ "budget": { "tokens": 9 } })] {
            let mut asked = json!({ "execution_id": of });
            asked.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
            for view in [Default::default(), hivekeep_kernel::view::ToolView::operator()] {
                let told = stage.call_as(by, view, "agent_continue", asked.clone()).await;
                assert_eq!(told.expect_err("refused").code, "continue_denied", "{asked}");
            }
        }
    }
    for id in [&own, &other] {
        let events = stage.events(id).await;
        assert_eq!(count(&events, "message_received") + count(&events, "execution_continued"), 0);
    }
    let asked = json!({ "execution_id": below, "message": "Go on." });
    let told = stage.call_as(session, Default::default(), "agent_continue", asked).await;
    told.expect("a parent talks to its child");
    let stranger = json!({ "execution_id": own, "message": "Go on." });
    let stranger = stage.as_other("agent_continue", stranger).await.expect_err("a stranger");
    assert_eq!(stranger.code, "execution_not_found");
    tokio::time::timeout(
        Duration::from_secs(50),
        stage.continued(&own, json!({ "message": "Go." })),
    )
    .await
    .expect("the owner may");
}
