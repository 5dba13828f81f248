//! A person at the client of a call that waits is asked for more budget.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::future::join;
use hivekeep_kernel::{
    ApprovalId, CallCx, ClientPrompt, Door, Progress, SessionId, ToolCall, ToolError, UserQuestion,
    UserReply, lock,
};
use hivekeep_ports::{ConversationMode, People, UserOutcome};
use hivekeep_testkit::{context, eventually};
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::{Stage, tasks::working};

/// Client that can ask.
#[derive(Debug)]
struct AskingClient {
    repeats: bool,
}

#[async_trait]
impl ClientPrompt for AskingClient {
    async fn ask(&self, _: ApprovalId, _: &UserQuestion) -> Option<UserReply> {
        None
    }

    fn repeats(&self) -> bool {
        self.repeats
    }
}

/// Person who replies what a test says, one question after the other.
struct Replying {
    asked: std::sync::Mutex<Vec<UserQuestion>>,
    outcomes: Mutex<mpsc::Receiver<UserOutcome>>,
}

#[async_trait]
impl People for Replying {
    async fn ask(
        &self,
        _: &CallCx,
        question: UserQuestion,
        _: Duration,
    ) -> Result<UserOutcome, ToolError> {
        lock(&self.asked).push(question);
        Ok(self.outcomes.lock().await.recv().await.expect("the test replies"))
    }

    fn conversation(&self, _: SessionId) -> Option<String> {
        None
    }

    fn conversations(&self) -> Vec<ConversationMode> {
        Vec::new()
    }

    async fn converse(&self, _: &CallCx, _: &str, _: &str) -> Result<(), ToolError> {
        Ok(())
    }
}

struct AskedStage {
    stage: Stage,
    id: String,
    people: Arc<Replying>,
    replies: mpsc::Sender<UserOutcome>,
}

impl AskedStage {
    async fn new() -> Self {
        let stage = Stage::with_worker("  execution: { budget: { tokens: 24 } }\n").await;
        stage.models.answer(working);
        let id = stage.begun("Mend it").await;
        stage.waits_for(&id, "budget").await;
        let (replies, outcomes) = mpsc::channel(8);
        let people = Arc::new(Replying { asked: Default::default(), outcomes: outcomes.into() });
        let asked = Self { stage, id, people, replies };
        asked.offer();
        asked
    }

    fn offer(&self) {
        self.stage.rig.daemon.ports.offer::<dyn People>(self.people.clone());
    }

    fn replies(&self, values: &Value) {
        let values = values.as_object().expect("one").clone();
        let reply = UserReply { values, ..UserReply::default() };
        self.replies.try_send(UserOutcome::Replied(reply)).expect("there is room");
    }

    fn asked(&self) -> usize {
        lock(&self.people.asked).len()
    }

    /// A wait of a call, as its door made it.
    async fn wait(&self, secs: u64, prepare: impl FnOnce(&mut CallCx)) -> Value {
        let args = json!({ "execution_id": self.id, "timeout_seconds": secs });
        let rig = &self.stage.rig;
        let (info, target) = rig.route("aegis.task.wait", &args).expect("known");
        let limit = Duration::from_secs(60);
        let mut cx = context(rig.session, info.spec.name, limit, Progress::default());
        cx.client = Some(Arc::new(AskingClient { repeats: false }));
        prepare(&mut cx);
        let (reply, answer) = oneshot::channel();
        let call = ToolCall { tool: &info.spec, cx, args, reply: reply.into() };
        target.deliver(call).expect("it is there");
        answer.await.expect("answered").expect("its own")
    }

    async fn continued(&self) -> usize {
        let events = self.stage.events(&self.id).await;
        events.iter().filter(|event| event["event_type"] == "execution_continued").count()
    }
}

#[tokio::test]
async fn what_a_person_adds_is_added_once_and_a_no_leaves_it_waiting() {
    let mut it = AskedStage::new().await;
    // Nobody is asked where there is no person: no client, an agent's call.
    for prepare in [(|cx| cx.client = None) as fn(&mut CallCx), |cx| cx.door = Door::Agent] {
        assert_eq!(it.wait(1, prepare).await["waiting_for"], "budget");
    }
    assert_eq!(it.asked(), 0);

    it.replies(&json!({}));
    let waited = it.wait(1, |_| {}).await;
    assert_eq!(
        (&waited["status"], &waited["waiting_for"]),
        (&json!("timed_out"), &json!("budget"))
    );
    let question = lock(&it.people.asked)[0].clone();
    assert!(question.question.contains("15 of 24 tokens are used, and 50 more"), "{question:?}");
    assert_eq!(question.fields[0].default, Some(json!(41)));
    it.wait(1, |_| {}).await;
    assert_eq!((it.asked(), it.continued().await), (1, 0), "a no is not asked again");

    // A daemon that dies while a question waits: the execution waits, for either way.
    it.stage.rig = it.stage.rig.crashed().await;
    it.offer();
    let unanswered = join(it.wait(1, |_| {}), eventually("asked", async || it.asked() == 2));
    assert_eq!(unanswered.await.0["waiting_for"], "budget");
    it.stage.rig = it.stage.rig.crashed().await;
    it.offer();
    it.stage.waits_for(&it.id, "budget").await;

    // A client that is given the question as the answer to its call: the call ends with it.
    it.replies.try_send(UserOutcome::Unanswered(ApprovalId::new())).expect("there is room");
    let rounds = |cx: &mut CallCx| cx.client = Some(Arc::new(AskingClient { repeats: true }));
    assert_eq!(it.wait(50, rounds).await["waiting_for"], "budget");

    // Two that wait are asked, and both say yes.
    let both = join(it.wait(50, |_| {}), it.wait(50, |_| {}));
    let replied = async {
        eventually("both are asked", async || it.asked() == 5).await;
        it.replies(&json!({ "amount": 500 }));
        it.replies(&json!({ "amount": 500 }));
    };
    let ((one, other), ()) = join(both, replied).await;
    assert_eq!((&one["status"], &other["status"]), (&json!("completed"), &json!("completed")));
    assert_eq!(it.continued().await, 1);
    assert_eq!(one["budget"][0]["limit"], 524);
}

#[tokio::test]
async fn too_little_is_asked_about_again_and_what_may_not_be_is_not_added() {
    let it = AskedStage::new().await;
    let waited = it.wait(50, |_| {});
    let replied = async {
        eventually("asked", async || it.asked() == 1).await;
        it.replies(&json!({ "amount": 1 }));
        eventually("asked again", async || it.asked() == 2).await;
        assert!(lock(&it.people.asked)[1].question.contains("15 of 25 tokens"));
        it.replies(&json!({ "amount": 500 }));
    };
    let (end, ()) = join(waited, replied).await;
    assert_eq!((&end["status"], &end["budget"][0]["limit"]), (&json!("completed"), &json!(525)));

    let mut it = AskedStage::new().await;
    it.stage.rig.options.budget.tokens = 24;
    it.stage.rig = it.stage.rig.crashed().await;
    it.offer();
    assert_eq!(it.wait(1, |_| {}).await["waiting_for"], "budget");
    assert_eq!((it.asked(), it.continued().await), (0, 0), "the operator allows no more");
}
