//! Delivery to actors whose start takes time, ownership checks, and services.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::Instant};

use super::*;
use crate::{
    AskError, CallCx, CallId, Census, Door, Reply, RestartPolicy, SessionId, ToolCall, ToolError,
    serve, tools,
};

/// Entity that starts when the gate says so and counts the calls it handled.
struct Slow {
    me: Context<ToolCall>,
    done: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Gate {
    Shut,
    Open,
    Broken,
}

impl Entity for Slow {
    type Msg = ToolCall;
    type Args = watch::Receiver<Gate>;

    async fn start(mut gate: Self::Args, me: Context<ToolCall>) -> Result<Self, Fault> {
        let gate = gate.wait_for(|gate| *gate != Gate::Shut).await.map(|gate| *gate);
        match gate {
            Ok(Gate::Open) => Ok(Self { me, done: 0 }),
            _ => Err(Fault::new("the gate is broken")),
        }
    }

    fn handle(&mut self, call: ToolCall) -> Result<(), Fault> {
        let workers = self.me.workers.clone();
        serve::serve(self, &[&SLOW], &workers, call);
        Ok(())
    }
}

/// Does one thing more.
#[derive(Deserialize, JsonSchema)]
struct Do {}

/// How many it did.
#[derive(Serialize, JsonSchema)]
struct Done {
    /// So many.
    done: u32,
}

tools! { SLOW: "slow" for Slow, singleton slow;
    do_it: Do => Done = Slow::on_do_it { title: "Do it" };
}

impl Slow {
    fn on_do_it(&mut self, _: &CallCx, _: Do) -> Result<Reply<Done>, ToolError> {
        self.done += 1;
        Ok(Reply::Now(Done { done: self.done }))
    }
}

fn cx(wait: Duration) -> CallCx {
    CallCx {
        id: CallId::new(),
        session: SessionId::new(),
        tool: "do_it",
        caller: None,
        door: Door::Internal,
        view: Default::default(),
        deadline: Instant::now() + wait,
        cancel: Default::default(),
        progress: Default::default(),
        receipt: Default::default(),
        slot: Default::default(),
        reserved: None,
        trace: None,
        client: None,
        effect: None,
        span: tracing::Span::none(),
    }
}

type Answer = tokio::sync::oneshot::Receiver<Result<serde_json::Value, ToolError>>;

/// Puts a call into the mailbox, which must take it.
fn call(address: &Address<ToolCall>, cx: CallCx) -> Answer {
    let (reply, answer) = tokio::sync::oneshot::channel();
    let call = ToolCall {
        tool: &SLOW.rows[0].0.spec,
        cx,
        args: serde_json::json!({}),
        reply: reply.into(),
    };
    address.send(call).expect("an actor that starts takes messages");
    answer
}

async fn slow() -> (Address<ToolCall>, watch::Sender<Gate>, tokio::task::JoinHandle<()>) {
    let census = Census::default();
    let address = Address::vacant(census.probe("slow", "slow", RestartPolicy::TEMPORARY));
    let (gate, shut) = watch::channel(Gate::Shut);
    let (_, ended) = spawn_root::<Slow>(&address, shut).await.expect("spawns");
    (address, gate, ended)
}

#[tokio::test]
async fn calls_wait_for_a_start_that_takes_time() {
    let (address, gate, _) = slow().await;
    let calls = [(); 3].map(|()| call(&address, cx(Duration::from_secs(60))));
    assert_eq!(address.probe().depth(), 3);
    gate.send_replace(Gate::Open);
    for (nth, answer) in (1..).zip(calls) {
        assert_eq!(answer.await.unwrap().unwrap()["done"], nth);
    }
    assert_eq!(address.probe().depth(), 0);
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_not_done() {
    let (address, gate, _) = slow().await;
    let given_up = cx(Duration::from_secs(60));
    given_up.cancel.cancel();
    let (given_up, late) = (call(&address, given_up), call(&address, cx(Duration::ZERO)));
    let wanted = call(&address, cx(Duration::from_secs(60)));
    gate.send_replace(Gate::Open);
    assert_eq!(given_up.await.unwrap().unwrap_err().code, "cancelled");
    assert_eq!(late.await.unwrap().unwrap_err().code, "deadline_exceeded");
    assert_eq!(wanted.await.unwrap().unwrap()["done"], 1);
}

#[tokio::test]
async fn a_start_that_fails_answers_nobody_and_leaves_the_address() {
    let (address, gate, ended) = slow().await;
    let waiting = call(&address, cx(Duration::from_secs(60)));
    gate.send_replace(Gate::Broken);
    let unheard = waiting.await.unwrap().unwrap_err();
    assert_eq!((unheard.code.as_ref(), unheard.retryable), ("actor_unavailable", true));
    assert_eq!(unheard.details["outcome"], "nothing_done");
    ended.await.unwrap();
    let (reply, _answer) = tokio::sync::oneshot::channel();
    let tool = &SLOW.rows[0].0;
    let (cx, args) = (cx(Duration::from_secs(60)), serde_json::json!({}));
    let refused = address
        .send(ToolCall { tool: &tool.spec, cx, args, reply: reply.into() })
        .map_err(AskError::from);
    assert!(matches!(refused, Err(AskError::Unavailable(_))), "{refused:?}");
}

/// Entity of one session, private unless a row says otherwise.
#[tokio::test]
async fn work_beside_a_mailbox_ends_with_it() {
    let workers = Workers::default();
    let done = workers.spawn(async { 7 });
    assert_eq!(done.await.expect("no panic"), Some(7));
    let endless = workers.spawn(std::future::pending::<()>());
    assert_eq!(workers.running(), 1);
    workers.abort_all();
    assert_eq!(endless.await.expect("no panic"), None);
    let other = Workers::default();
    let endless = other.spawn(std::future::pending::<()>());
    drop(other);
    assert_eq!(endless.await.expect("no panic"), None);
}

struct Mine(SessionId);

impl Entity for Mine {
    type Msg = ();
    type Args = SessionId;

    async fn start(owner: SessionId, _: Context<()>) -> Result<Self, Fault> {
        Ok(Self(owner))
    }

    fn handle(&mut self, (): ()) -> Result<(), Fault> {
        Ok(())
    }
}

impl crate::Owned for Mine {
    fn authorize(&self, cx: &CallCx) -> Result<(), ToolError> {
        let refused = || ToolError::foreign(crate::Layer::Policy, "not_owner", "it is another's");
        (cx.session == self.0).then_some(()).ok_or_else(refused)
    }
}

/// Uses it.
#[derive(Deserialize, JsonSchema)]
struct Use {
    /// Which.
    mine_id: String,
}

/// Looks at it.
#[derive(Deserialize, JsonSchema)]
struct Look {
    /// Which.
    mine_id: String,
}

tools! { MINE: "mine" for Mine, addressed mine by mine_id;
    use_it: Use => Done = Mine::on_use { title: "Use it" };
    look_at_it: Look => Done = Mine::on_look { title: "Look at it", access: crate::Access::Any };
}

impl Mine {
    fn on_use(&mut self, _: &CallCx, it: Use) -> Result<Reply<Done>, ToolError> {
        Ok(Reply::Now(Done { done: it.mine_id.len() as u32 }))
    }

    fn on_look(&mut self, _: &CallCx, it: Look) -> Result<Reply<Done>, ToolError> {
        Ok(Reply::Now(Done { done: it.mine_id.len() as u32 }))
    }
}

#[test]
fn what_is_a_sessions_is_used_by_no_other_unless_its_row_says_so() {
    let (mut mine, stranger) = (Mine(SessionId::new()), cx(Duration::from_secs(1)));
    let owner = CallCx { session: mine.0, ..stranger.clone() };
    let mut call = |cx: &CallCx, name: &str| {
        let row = MINE.rows.iter().find(|(info, _)| info.spec.name == name).expect("a row");
        let answer = (row.1)(&mut mine, cx, serde_json::json!({ "mine_id": "it" }));
        answer.map(drop).map_err(|error| error.code)
    };
    assert_eq!(call(&owner, "use_it"), Ok(()));
    assert_eq!(call(&stranger, "use_it"), Err("not_owner".into()));
    assert_eq!(call(&stranger, "look_at_it"), Ok(()));
}

/// Service that adds numbers beside its mailbox.
struct Adding;

impl crate::Service for Adding {
    const TOOLS: &'static [&'static crate::ToolGroup<crate::ServiceActor<Self>>] = &[&ADDING];
}

/// Adds two numbers, in its own time.
#[derive(Deserialize, JsonSchema)]
struct Add {
    /// The first.
    a: u32,
    /// The second.
    b: u32,
    /// How long it takes, in milliseconds.
    ms: u64,
}

tools! { ADDING: "adding" for service Adding, singleton adding;
    add: Add => Done = Adding::add { title: "Add" };
}

impl Adding {
    async fn add(self: std::sync::Arc<Self>, _: CallCx, add: Add) -> Result<Done, ToolError> {
        tokio::time::sleep(Duration::from_millis(add.ms)).await;
        let done = add.a.checked_add(add.b).ok_or_else(|| ToolError::invalid("too much"))?;
        Ok(Done { done })
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_service_run_side_by_side_and_end_with_their_time() {
    let address =
        Address::vacant(Census::default().probe("adding", "adding", RestartPolicy::ENTITY));
    let (_, _ended) =
        spawn_root::<crate::ServiceActor<Adding>>(&address, Adding.into()).await.expect("spawns");
    let call = async |args: serde_json::Value| {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let cx = cx(Duration::from_secs(5));
        let call = ToolCall { tool: &ADDING.rows[0].0.spec, cx, args, reply: reply.into() };
        address.send(call).expect("it is there");
        answer.await.expect("an answer").map_err(|error| error.code.into_owned())
    };
    let begun = Instant::now();
    let (slow, quick, late, wrong) = tokio::join!(
        call(serde_json::json!({ "a": 1, "b": 2, "ms": 4_000 })),
        call(serde_json::json!({ "a": 3, "b": 4, "ms": 0 })),
        call(serde_json::json!({ "a": 5, "b": 6, "ms": 60_000 })),
        call(serde_json::json!({ "a": u32::MAX, "b": 1, "ms": 0 })),
    );
    assert_eq!(slow.expect("in time")["done"], 3);
    assert_eq!(quick.expect("at once")["done"], 7);
    assert_eq!(late, Err("deadline_exceeded".to_owned()));
    assert_eq!(wrong, Err("invalid_input".to_owned()));
    assert!(begun.elapsed() < Duration::from_secs(6), "one after the other takes longer");
}
