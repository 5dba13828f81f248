//! What reaches an actor whose start takes time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::Instant};

use super::*;
use crate::{
    AskError, CallCx, CallId, Census, Door, Handle, Policy, Reply, SessionId, ToolCall, ToolError,
    serve, tools,
};

/// Starts when the gate says so; counts what it was asked to do.
struct Slow {
    me: Me<ToolCall>,
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
    type Seed = watch::Receiver<Gate>;

    async fn start(mut gate: Self::Seed, me: Me<ToolCall>) -> Result<Self, Fault> {
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
    do_it: Do => Done { title: "Do it" };
}

impl Handle<Do> for Slow {
    fn handle_tool(&mut self, _: &CallCx, _: Do) -> Result<Reply<Done>, ToolError> {
        self.done += 1;
        Ok(Reply::Now(Done { done: self.done }))
    }
}

fn cx(wait: Duration) -> CallCx {
    CallCx {
        id: CallId::new(),
        session: SessionId::new(),
        tool: "do_it",
        door: Door::Internal,
        deadline: Instant::now() + wait,
        cancel: Default::default(),
        progress: Default::default(),
        receipt: Default::default(),
        slot: Default::default(),
        reserved: None,
        span: tracing::Span::none(),
    }
}

type Answer = tokio::sync::oneshot::Receiver<Result<serde_json::Value, ToolError>>;

/// A call put into the mailbox, which must take it.
fn call(address: &Address<ToolCall>, cx: CallCx) -> Answer {
    let (reply, answer) = tokio::sync::oneshot::channel();
    let call = ToolCall { tool: &SLOW.rows[0].0, cx, args: serde_json::json!({}), reply };
    address.send(call).expect("an actor that starts takes messages");
    answer
}

async fn slow() -> (Address<ToolCall>, watch::Sender<Gate>, tokio::task::JoinHandle<()>) {
    let census = Census::default();
    let address = Address::vacant(census.probe("slow", "slow", Policy::TEMPORARY));
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
    assert!(waiting.await.is_err());
    ended.await.unwrap();
    let (reply, _answer) = tokio::sync::oneshot::channel();
    let tool = &SLOW.rows[0].0;
    let (cx, args) = (cx(Duration::from_secs(60)), serde_json::json!({}));
    let refused = address.send(ToolCall { tool, cx, args, reply }).map_err(AskError::from);
    assert!(matches!(refused, Err(AskError::Unavailable(_))), "{refused:?}");
}
