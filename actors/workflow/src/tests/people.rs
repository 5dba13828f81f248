//! Runs that wait for people, who answer in the approvals or by a call.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use hivekeep_kernel::{ApprovalId, RunId, ToolError, lock};
use hivekeep_plan::progress::{
    RetryFrom,
    RunOutcome::{Aborted, Failed, Rejected, Succeeded},
};
use hivekeep_ports::{QuestionState, StandingQuestion, StandingQuestions, UserQuestion, UserReply};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{ALL, Stage};
use crate::{AnswerEffect, FormValues, StepAnswer};

type Standing = BTreeMap<ApprovalId, (StandingQuestion, QuestionState)>;

/// Approvals that outlive daemons.
#[derive(Clone)]
pub(super) struct FakePeople(Arc<(Mutex<Standing>, watch::Sender<u64>)>);

impl Default for FakePeople {
    fn default() -> Self {
        Self(Arc::new((Mutex::default(), watch::channel(0).0)))
    }
}

impl FakePeople {
    fn change<R>(&self, change: impl FnOnce(&mut Standing) -> R) -> R {
        let changed = change(&mut lock(&self.0.0));
        self.0.1.send_modify(|count| *count += 1);
        changed
    }

    pub(super) fn all(&self) -> Vec<(ApprovalId, UserQuestion)> {
        let all = lock(&self.0.0);
        all.iter().map(|(id, (asked, _))| (*id, asked.question.clone())).collect()
    }

    /// Waits for a question that nobody has answered.
    async fn asked(&self) -> (ApprovalId, UserQuestion) {
        let mut changes = self.0.1.subscribe();
        loop {
            let found = lock(&self.0.0)
                .iter()
                .find(|(_, (_, state))| *state == QuestionState::Waits)
                .map(|(id, (asked, _))| (*id, asked.question.clone()));
            if let Some(found) = found {
                return found;
            }
            let changed = tokio::time::timeout(Duration::from_secs(30), changes.changed()).await;
            changed.expect("nobody is asked").expect("the sender is kept");
        }
    }

    /// Answers all questions that nobody has answered, without values.
    pub(super) fn reply_to_all(&self) {
        let is_open = |state: &QuestionState| *state == QuestionState::Waits;
        if lock(&self.0.0).values().any(|(_, state)| is_open(state)) {
            self.change(|all| {
                for (_, state) in all.values_mut().filter(|(_, state)| is_open(state)) {
                    let (by, reply) = ("ann".to_owned(), UserReply::default());
                    *state = QuestionState::Replied { by, reply };
                }
            });
        }
    }

    pub(super) async fn reply(&self, values: Value) -> UserQuestion {
        let (id, question) = self.asked().await;
        let values = values.as_object().cloned().unwrap_or_default();
        let reply = UserReply { values, ..UserReply::default() };
        question.takes(&reply).expect("it fits the form");
        let replied = QuestionState::Replied { by: "ann".to_owned(), reply };
        self.change(|all| all.get_mut(&id).expect("it stands").1 = replied);
        question
    }

    async fn refuse(&self) {
        let (id, _) = self.asked().await;
        let refused = QuestionState::Refused { by: "ann".to_owned(), why: Some("no".to_owned()) };
        self.change(|all| all.get_mut(&id).expect("it stands").1 = refused);
    }

    async fn is_left_alone(&self) {
        while !self.all().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[async_trait]
impl StandingQuestions for FakePeople {
    async fn put(&self, question: StandingQuestion) -> Result<ApprovalId, ToolError> {
        Ok(self.change(|all| {
            let known = all.iter().find(|(_, (asked, _))| *asked == question).map(|(id, _)| *id);
            known.unwrap_or_else(|| {
                let id = ApprovalId::new();
                all.insert(id, (question, QuestionState::Waits));
                id
            })
        }))
    }

    fn state(&self, id: ApprovalId) -> QuestionState {
        lock(&self.0.0).get(&id).map_or(QuestionState::Gone, |(_, state)| state.clone())
    }

    fn standing(&self, _: &str) -> Vec<ApprovalId> {
        lock(&self.0.0).keys().copied().collect()
    }

    async fn settle(&self, id: ApprovalId) -> Result<(), ToolError> {
        self.change(|all| drop(all.remove(&id)));
        Ok(())
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.1.subscribe()
    }
}

fn typed(values: Value) -> FormValues {
    FormValues::Typed(values.as_object().cloned().unwrap_or_default())
}

fn yes(values: Value) -> StepAnswer {
    StepAnswer::Approve { values: typed(values) }
}

impl Stage {
    async fn answer(
        &self,
        id: RunId,
        step: &str,
        answer: StepAnswer,
    ) -> Result<AnswerEffect, String> {
        self.runs().answer(ALL, id, step, answer).await.map_err(|error| error.code.to_string())
    }

    async fn waits(&self, id: RunId, step: &str) {
        let waits = async {
            while self.waiting(id) != [step] {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waits).await.expect("it waits");
    }

    fn waiting(&self, id: RunId) -> Vec<String> {
        let state = self.runs().0.get(ALL, &id.to_string()).expect("it is there").state;
        let name = |work: &crate::run::RunWork| {
            let progress = &work.progress;
            progress
                .waiting()
                .filter_map(|key| Some(progress.plan().node(key.node)?.name.clone()))
                .collect()
        };
        state.work().map(name).unwrap_or_default()
    }
}

const RELEASE: &str = r#"
type: graph
working_dir: .
params: [{ name: v, default: "1.2" }]
steps:
- { id: first, run: echo first >> done }
- id: review
  depends: first
  action: human.task
  with:
    prompt: "Release ${params.v}?"
    form:
      type: object
      properties:
        environment: { type: string, enum: [staging, production] }
        replicas: { type: integer, minimum: 1, default: 2 }
        notify: { type: boolean, default: true }
      required: [environment]
- { id: beside, run: echo beside >> done }
- id: record
  depends: review
  env: [{ T: "${steps.review.outputs.environment}" }]
  run: "printf '%s,%s,%s\n' \"$T\" '${steps.review.outputs.replicas}' '${steps.review.outputs.notify}' > release.txt; echo record >> done"
"#;

#[tokio::test]
async fn a_human_task_waits_for_its_form_and_goes_on_with_its_values() {
    let stage = Stage::new().await;
    let id = stage.begin(RELEASE, Value::Null).await.expect("begun");
    let question = stage.people.reply(json!({ "environment": "production", "replicas": 3 })).await;
    assert!(question.question.starts_with("Release 1.2?\n"), "{question:?}");
    let told: Vec<_> =
        question.fields.iter().map(|it| (it.name.as_str(), it.optional, &it.default)).collect();
    assert_eq!(
        told,
        [
            ("environment", false, &None),
            ("replicas", true, &Some(json!(2))),
            ("notify", true, &Some(json!(true))),
        ]
    );
    let run = stage.over(id).await;
    assert_eq!(run.outcome(), Some(Succeeded), "{:#?}", run.left);
    assert_eq!(stage.file("release.txt").as_deref(), Some("production,3,true\n"));
    stage.people.is_left_alone().await;
}

#[tokio::test]
async fn an_answer_by_a_call_settles_the_question_and_counts_once() {
    let stage = Stage::new().await;
    let id = stage.begin(RELEASE, Value::Null).await.expect("begun");
    let good = || yes(json!({ "environment": "staging", "replicas": 2 }));
    assert_eq!(stage.answer(id, "record", good()).await, Err("step_not_waiting".to_owned()));
    assert_eq!(stage.answer(id, "nothing", good()).await, Err("step_not_waiting".to_owned()));
    stage.waits(id, "review").await;
    stage.people.asked().await;
    for (answer, code) in [
        (yes(json!({})), "invalid_input"),
        (yes(json!({ "environment": "here" })), "invalid_input"),
        (yes(json!({ "environment": "staging", "replicas": "2" })), "invalid_input"),
        (StepAnswer::PushBack { values: typed(json!({})), reason: None }, "invalid_input"),
    ] {
        assert_eq!(stage.answer(id, "review", answer).await, Err(code.to_owned()));
    }
    assert_eq!(stage.answer(id, "review", good()).await, Ok(AnswerEffect::Taken));
    let texts = BTreeMap::from([("environment".to_owned(), "staging".to_owned())]);
    let same = StepAnswer::Approve { values: FormValues::Texts(texts) };
    assert_eq!(stage.answer(id, "review", same.clone()).await, Ok(AnswerEffect::Repeated));
    stage.over(id).await;
    stage.people.is_left_alone().await;
    let (runs, other) = (stage.runs(), yes(json!({ "environment": "production" })));
    runs.0.settled(ALL, &id.to_string()).await.expect("it rests");
    assert_eq!(stage.answer(id, "review", same).await, Ok(AnswerEffect::Repeated));
    assert_eq!(stage.answer(id, "review", other).await, Err("answered_otherwise".to_owned()));
    assert_eq!(stage.answer(id, "first", good()).await, Err("run_over".to_owned()));
    assert_eq!(stage.file("release.txt").as_deref(), Some("staging,2,true\n"));
}

const APPROVAL: &str = r#"
type: graph
working_dir: .
handler_on: { wait: { run: "echo \"waits $DAG_WAITING_STEPS\" >> done" }, failure: { run: touch refused } }
steps:
- { id: before, run: "echo \"before $N $DAG_PUSHBACK_ITERATION\" >> done" }
- id: deploy
  depends: before
  run: "echo \"deploy $N $DAG_PUSHBACK\" >> done; echo x=y >> \"$DAGU_OUTPUT_FILE\""
  outputs: [{ name: x }]
  approval: { prompt: Look at it, input: [N, reason], required: [N], rewind_to: before }
- { id: after, depends: deploy, run: "echo \"after $N ${env.N} ${steps.deploy.outputs.x} $DAG_PUSHBACK\" >> done" }
"#;

#[tokio::test]
async fn an_approval_goes_on_is_refused_or_goes_back() {
    let stage = Stage::new().await;
    let id = stage.begin(APPROVAL, Value::Null).await.expect("begun");
    while stage.file("done").is_none_or(|done| !done.contains("waits")) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let back = json!({ "decision": "push back", "reason_": "too early", "N": "one" });
    let question = stage.people.reply(back).await;
    let names: Vec<_> = question.fields.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["decision", "reason_", "N", "reason"]);
    // An approval without what it needs is asked for again, and says why.
    stage.people.reply(json!({ "reason": "x" })).await;
    let again = stage.people.asked().await.1;
    assert!(again.question.contains("`N` is required"), "{again:?}");
    let waited = || stage.file("done").unwrap_or_default().matches("waits deploy").count();
    while waited() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stage.people.reply(json!({ "N": "two" })).await;
    let run = stage.over(id).await;
    assert_eq!(run.outcome(), Some(Succeeded), "{:#?}", run.left);
    let done = stage.file("done").unwrap_or_default();
    let (told, rest) = done.split_once("deploy one ").expect("it is done again");
    assert_eq!(told, "before  \ndeploy  \nwaits deploy\nbefore one 1\n");
    let (whole, rest) = rest.split_once('\n').expect("a line");
    assert_eq!(rest, "waits deploy\nafter two two y \n");
    let whole: Value = serde_json::from_str(whole).expect("JSON");
    let wanted = (json!(1), json!("ann"), json!("too early"), json!({ "N": "one" }));
    let field = |name: &str| whole["history"][0][name].clone();
    assert_eq!((field("iteration"), field("by"), field("reason"), field("inputs")), wanted);
    assert_eq!(whole["inputs"], wanted.3);
    stage.people.is_left_alone().await;

    let id = stage.begin(APPROVAL, Value::Null).await.expect("begun");
    stage.people.refuse().await;
    let run = stage.over(id).await;
    assert_eq!((run.outcome(), stage.file("refused").is_some()), (Some(Rejected), true));
    let error = run.left.values().find_map(|left| left.error.clone());
    assert!(error.is_some_and(|error| error.message == "ann rejected it: no"));
    // A retry asks again.
    stage.runs().retry(ALL, id, RetryFrom::Failed).await.expect("it goes on");
    stage.people.reply(json!({ "N": "3" })).await;
    assert_eq!(stage.over(id).await.outcome(), Some(Succeeded));
}

#[tokio::test]
async fn a_run_that_waits_is_stopped_and_its_question_is_taken_back() {
    let stage = Stage::new().await;
    for (root, outcome) in [("", Aborted), ("timeout_sec: 1\n", Failed)] {
        let text =
            format!("{root}steps: [{{ id: a, action: human.task, with: {{ prompt: Now }} }}]");
        let id = stage.begin(&text, Value::Null).await.expect("begun");
        let (_, question) = stage.people.asked().await;
        assert_eq!(question.options, ["done"]);
        if root.is_empty() {
            assert!(stage.runs().stop(ALL, id).await.expect("written"));
        }
        assert_eq!(stage.over(id).await.outcome(), Some(outcome));
        stage.people.is_left_alone().await;
        let late = stage.answer(id, "a", yes(json!({}))).await;
        assert_eq!(late, Err("run_over".to_owned()));
    }
    let text = "steps: [{ id: a, action: dag.run, with: { dag: child } }]\n---\nname: child\nsteps: [{ id: a, action: human.task, with: { prompt: Now } }]";
    let run = stage.ran(text, Value::Null).await;
    assert_eq!(run.outcome(), Some(Failed));
    let child = run.results.values().find_map(|left| left.error.clone()).expect("it has one");
    assert!(child.message.contains("`human.task`"), "{child}");
    assert!(stage.people.all().is_empty());
}

/// The daemon dies behind any number of records, and between an answer and its record: a person is asked once, and
/// what they answered counts.
#[tokio::test]
async fn a_daemon_that_dies_while_a_person_is_asked_goes_on_with_the_answer() {
    let reply = json!({ "environment": "production" });
    let records = async |stage: &Stage, id| {
        stage.runs().events(ALL, id, 0, 1_000).await.map_or(0, |page| page.total)
    };
    let stage = Stage::new().await;
    let id = stage.begin(RELEASE, Value::Null).await.expect("begun");
    stage.people.reply(reply.clone()).await;
    let total = {
        stage.over(id).await;
        records(&stage, id).await
    };
    assert!(total > 10, "{total}");
    for behind in 1..total {
        let mut stage = Stage::new().await;
        let id = stage.begin(RELEASE, Value::Null).await.expect("begun");
        let reached = async {
            while records(&stage, id).await < behind && stage.people.all().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        reached.await;
        if behind % 2 == 0 {
            // Answered while the daemon lives, and perhaps not taken before it dies.
            stage.people.reply(reply.clone()).await;
        }
        stage.rig = stage.rig.crashed().await;
        if behind % 2 == 1 {
            stage.people.reply(reply.clone()).await;
        }
        let over = stage.over(id).await;
        assert_eq!(over.outcome(), Some(Succeeded), "behind {behind}: {:#?}", over.left);
        assert_eq!(stage.file("release.txt").as_deref(), Some("production,2,true\n"));
        let done = stage.file("done").unwrap_or_default();
        assert_eq!(done.lines().count(), 3, "behind {behind}: {done}");
        stage.people.is_left_alone().await;
    }
}
