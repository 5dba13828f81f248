//! Executions that others order, over a real journal: begun once for an id, found after a crash, judged as the order
//! says; and programs that work in machines of whoever orders them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, ExecutionId, Progress, RunId, SessionId, ToolError};
use hivekeep_ports::{
    ExecutionOrder, ExecutionResult, Executions, OrderedAgent, OrderedJudge, OrderedProgram,
    OutputScore, TaskOutcome,
};
use hivekeep_testkit::{context, eventually};
use serde_json::{Map, json};

use super::{
    Stage,
    fakes::says,
    judges::{asker, judges, prompt},
    machine::{RelayPlay, whole},
    tasks::working,
};

fn order(id: ExecutionId) -> ExecutionOrder {
    ExecutionOrder {
        id,
        agent: OrderedAgent::Deployed { name: "worker".to_owned(), version: None },
        intent: Some("Now".to_owned()),
        input: Map::new(),
        judges: Vec::new(),
        max_iterations: None,
        limit: None,
    }
}

fn done(output: &str, judged: Option<OutputScore>) -> ExecutionResult {
    ExecutionResult::Completed { output: output.to_owned(), judged }
}

impl Stage {
    fn ordered(&self) -> Arc<dyn Executions> {
        self.rig.daemon.ports.find::<dyn Executions>().expect("they are offered")
    }

    async fn order_as(&self, session: SessionId, order: ExecutionOrder) -> Result<(), ToolError> {
        let cx: CallCx =
            context(session, "dag_start", Duration::from_secs(60), Progress::default());
        self.ordered().begin(&cx, order).await
    }

    async fn order(&self, order: ExecutionOrder) {
        self.order_as(self.rig.session, order).await.expect("begun");
    }
}

#[test]
fn ids_of_orders_are_those_of_their_run_and_of_no_other() {
    let runs = [RunId::new(), RunId::new()];
    let numbers = [0, 1, 1 << 16, 1 << 48, (1 << 62) - 1];
    let ids = || runs.iter().flat_map(|run| numbers.map(|at| ExecutionId::of_run(*run, at)));
    assert!(ids().eq(ids()));
    assert_eq!(ids().collect::<BTreeSet<_>>().len(), 10);
    assert!(ids().all(|id| id.uuid().get_version_num() == 7), "they sort by age");
}

#[tokio::test]
async fn an_order_is_begun_once_and_its_end_outlives_a_daemon() {
    let mut stage = Stage::with_worker("").await;
    stage.models.answer(working);
    let id = ExecutionId::of_run(RunId::new(), 7);
    stage.order(order(id)).await;
    stage.order(order(id)).await;
    assert_eq!(stage.ordered().ended(id).await, Ok(done("Done.", None)));
    stage.rig = stage.rig.crashed().await;
    stage.order(order(id)).await;
    assert_eq!(stage.ordered().ended(id).await, Ok(done("Done.", None)));
    assert_eq!(stage.models.count(), 3, "its turns");
    assert_eq!(stage.ordered().cancel(id).await, Ok(false));
    let refused = stage.order_as(stage.other, order(id)).await.expect_err("another user's");
    assert_eq!(refused.code, "execution_not_found");
    let unknown = stage.ordered().ended(ExecutionId::new()).await.expect_err("not there");
    assert_eq!(unknown.code, "execution_not_found");
    let name = "nobody".to_owned();
    let agent = OrderedAgent::Deployed { name, version: None };
    let refused = ExecutionOrder { agent, ..order(ExecutionId::new()) };
    let refused = stage.order_as(stage.rig.session, refused).await.expect_err("no agent");
    assert_eq!(refused.code, "agent_not_found");
}

#[tokio::test]
async fn an_order_is_cancelled_and_ends_in_its_time() {
    let stage = Stage::with_worker("").await;
    stage.models.answer(|_| says("", &[("hold", json!({}))]));
    let id = ExecutionId::new();
    stage.order(order(id)).await;
    let executions = stage.ordered();
    let ended = tokio::spawn(async move { executions.ended(id).await });
    eventually("it calls", async || stage.children.calls("hold") > 0).await;
    assert_eq!(stage.ordered().cancel(id).await, Ok(true));
    assert_eq!(ended.await.expect("it ends"), Ok(ExecutionResult::Cancelled));

    let id = ExecutionId::new();
    stage.models.be_silent(true);
    stage.order(ExecutionOrder { limit: Some(Duration::from_millis(50)), ..order(id) }).await;
    let Ok(ExecutionResult::Failed { error, .. }) = stage.ordered().ended(id).await else {
        panic!("it fails")
    };
    assert_eq!(error.code, "time_exhausted");
}

#[tokio::test]
async fn judges_of_an_order_have_their_criteria_and_weights() {
    let mut stage = Stage::judged(&["critic", "second"], "").await;
    stage.models.answer(|request| match asker(request) {
        "critic" if prompt(request).contains("\"output\":\"bad\"") => judges(0.2, "Too short."),
        "critic" if prompt(request).contains("Be strict.") => judges(1.0, "Good."),
        "second" if !prompt(request).contains("Be strict.") => judges(0.4, "Well."),
        "worker" if prompt(request).contains("Too short.") => says("good", &[]),
        "worker" => says("bad", &[]),
        _ => says("no judgment", &[]),
    });
    let judge = |agent: &str, criteria: Option<&str>, weight| OrderedJudge {
        agent: agent.to_owned(),
        criteria: criteria.map(str::to_owned),
        weight,
    };
    let judged = |max_iterations| ExecutionOrder {
        judges: vec![judge("critic", Some("Be strict."), 3.0), judge("second", None, 1.0)],
        max_iterations: Some(max_iterations),
        ..order(ExecutionId::new())
    };
    let (once, twice) = (judged(1), judged(2));
    let ids = [once.id, twice.id];
    stage.order(once).await;
    stage.order(twice).await;
    for _ in 0..2 {
        let Ok(ExecutionResult::Failed { error, judged: Some(score) }) =
            stage.ordered().ended(ids[0]).await
        else {
            panic!("it is rejected")
        };
        assert_eq!((&*error.code, score.scores), ("validation_failed", vec![0.2, 0.4]));
        assert!(error.message.contains("(order)"), "{error}");
        let Ok(ExecutionResult::Completed { output, judged: Some(score) }) =
            stage.ordered().ended(ids[1]).await
        else {
            panic!("it passes")
        };
        assert_eq!((&*output, score.scores), ("good", vec![1.0, 0.4]));
        assert!((score.score - 0.85).abs() < 1e-9, "{}", score.score);
        stage.rig = stage.rig.crashed().await;
    }
    let unknown = ExecutionOrder { judges: vec![judge("nobody", None, 1.0)], ..judged(1) };
    let refused = stage.order_as(stage.rig.session, unknown).await.expect_err("no such judge");
    assert_eq!(
        (&*refused.code, &refused.details["field"]),
        ("agent_not_found", &json!("order.judges[0]"))
    );
}

#[tokio::test]
async fn a_program_works_in_the_machine_of_whoever_orders_it() {
    let mut stage = Stage::usual().await;
    stage.models.answer(|_| says("", &[]));
    stage.machine.play(|_, _| RelayPlay::Whole(&["one"]));
    let workspace = stage.machines.put(stage.rig.session);
    let program = |name: &str| OrderedProgram {
        program: name.to_owned(),
        model: None,
        place: "session".to_owned(),
        workspace,
        root: "/here".to_owned(),
        folder: "a b".to_owned(),
        home: "/scratch/home".to_owned(),
        env: [("TOKEN", "t"), ("OPENAI_API_KEY", "mine")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        arguments: vec!["--effort".to_owned(), "{key}".to_owned()],
    };
    let input = json!({ "prompt": "Mend {{it}}." }).as_object().cloned().expect("an object");
    let ordered = |name: &str| ExecutionOrder {
        agent: OrderedAgent::Program(Box::new(program(name))),
        intent: None,
        input: input.clone(),
        ..order(ExecutionId::new())
    };
    let first = ordered("codex");
    let id = first.id;
    stage.order(first.clone()).await;
    eventually("it runs", async || stage.machine.assigned().len() == 1).await;
    stage.rig = stage.rig.crashed().await;
    stage.order(first).await;
    let asked = whole(stage.machine.sends_in(workspace, "/v1/responses", r#"{"model":"m"}"#).await);
    assert_eq!(asked.await, (200, Ok("one".to_owned())));
    stage
        .machine
        .finish_in(Some(workspace), TaskOutcome::Exited { exit_code: 0 }, " Mended. ", "")
        .await;
    assert_eq!(stage.ordered().ended(id).await, Ok(done("Mended.", None)));
    let task = stage.machine.assigned().remove(0);
    assert_eq!(task.workdir.as_deref(), Some("/here"));
    let env = ["TOKEN", "OPENAI_API_KEY", "HOME"].map(|name| task.env[name].as_str());
    assert_eq!(env, ["t", "placeholder", "/scratch/home"]);
    assert!(task.command.contains("mkdir -p \"$HOME\" 'a b' && cd 'a b'"), "{}", task.command);
    assert!(task.command.ends_with("'Mend {{it}}.' '--effort' '{key}'"), "{}", task.command);
    assert!(!task.command.contains(":8790"), "several may work there: {}", task.command);
    assert!(stage.machines.calls("make").iter().all(|it| *it == json!(stage.rig.session)));

    let second = ordered("codex");
    let id = second.id;
    stage.order(second).await;
    eventually("it runs", async || stage.machine.assigned().len() == 2).await;
    assert_eq!(stage.ordered().cancel(id).await, Ok(true));
    eventually("its task is ended", async || !stage.machine.cancelled().is_empty()).await;
    for (name, code) in [("gemini-acp", "agent_field_unsupported"), ("vim", "program_unknown")] {
        let refused = stage.order_as(stage.rig.session, ordered(name)).await.expect_err(name);
        assert_eq!(refused.code, code, "{name}");
    }
}
