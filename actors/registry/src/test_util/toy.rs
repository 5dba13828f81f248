//! The toy: tools that are quick, slow, failing or panicking, as asked, and a store of large results
//! that refuses as often as it is told.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use hivekeep_kernel::{
    Address, CallCx, Context, Effect, Entity, Fault, Layer, Owned, RateClass, Reply, Target,
    ToolCall, ToolError, ToolInfo, lock,
    serve::{ActorDirectory, serve},
    tools,
};
use hivekeep_ports::{KeptResult, LargeResult, ResultKeeper};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Counters of the toy, across its restarts.
#[derive(Debug, Default)]
pub struct Marks {
    /// Waits begun.
    pub started: AtomicU32,
    /// Waits now running.
    pub running: AtomicU32,
    /// Waits whose future was dropped before it was done.
    pub dropped: AtomicU32,
    /// Most waits at a time.
    pub most: AtomicU32,
    /// Answers to waits that reached their callers.
    pub taken: AtomicU32,
    /// Answers to waits that did not.
    pub lost: AtomicU32,
}

/// The toy actor.
pub struct Toy {
    me: Context<ToolCall>,
    marks: Arc<Marks>,
}

impl Entity for Toy {
    type Msg = ToolCall;
    type Args = Arc<Marks>;

    async fn start(marks: Arc<Marks>, me: Context<ToolCall>) -> Result<Self, Fault> {
        Ok(Self { me, marks })
    }

    fn handle(&mut self, call: ToolCall) -> Result<(), Fault> {
        let workers = self.me.workers.clone();
        serve(self, &[&TOYS, &BOXES], &workers, call);
        Ok(())
    }
}

/// The catalogue rows of the toy.
pub fn toy_tools() -> Vec<&'static ToolInfo> {
    TOYS.rows.iter().chain(BOXES.rows).map(|(info, _)| info).collect()
}

/// The kind `toy`: there is one, called `red`.
#[derive(Debug)]
pub struct ToyDirectory(pub Address<ToolCall>);

impl ActorDirectory for ToyDirectory {
    fn find(&self, id_or_name: &str) -> Result<Arc<dyn Target>, ToolError> {
        if id_or_name == "red" {
            return Ok(Arc::new(self.0.clone()));
        }
        let message = format!("there is no toy `{id_or_name}`");
        Err(ToolError::foreign(Layer::Resolve, "toy_not_found", message)
            .next("the toy is called `red`"))
    }
}

/// Says it back, at once.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToyEcho {
    /// Text to say.
    pub text: String,
    /// How many times to say it; makes long results.
    #[serde(default = "once")]
    pub times: u32,
    /// Tokens that the call takes from its bucket.
    #[serde(default = "once")]
    #[allow(dead_code)]
    pub tokens: u32,
    /// A colour, for nothing.
    #[serde(default)]
    #[allow(dead_code)]
    pub colour: Option<Colour>,
}

/// Colours of toys.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Colour {
    /// Like fire.
    Red,
    /// Like the sea.
    Blue,
}

fn once() -> u32 {
    1
}

fn tokens(args: &Value) -> u32 {
    let tokens = args.get("tokens").and_then(Value::as_u64).unwrap_or(1);
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

/// Red things are dear.
fn rate_of(args: &Value) -> Option<RateClass> {
    (args.get("colour")?.as_str()? == "red").then_some(RateClass::Create)
}

/// Echo of the text, as often as it was asked for.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ToyEchoed {
    /// The text.
    pub text: String,
}

impl Toy {
    fn on_toy_echo(&mut self, _: &CallCx, input: ToyEcho) -> Result<Reply<ToyEchoed>, ToolError> {
        Ok(Reply::Now(ToyEchoed { text: input.text.repeat(input.times as usize) }))
    }
}

/// Waits, beside its mailbox, and tells how far it is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToyWait {
    /// How long to wait, in milliseconds.
    pub ms: u64,
    /// Go on waiting after the call was cancelled.
    #[serde(default)]
    pub stubborn: bool,
    /// Give the place among running calls back while it waits.
    #[serde(default)]
    pub parked: bool,
    /// A time limit of its own, in seconds.
    #[serde(default)]
    pub timeout_secs: Option<u64>,
}

/// Wait that ended, in full or at its own time limit.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ToyWaited {
    /// How long it waited, in milliseconds.
    pub waited_ms: u64,
    /// Its own time limit was shorter.
    pub timed_out: bool,
}

/// Notes the end of a wait, whichever way it ends.
struct Waiting {
    marks: Arc<Marks>,
    done: bool,
}

impl Waiting {
    fn begin(marks: Arc<Marks>) -> Self {
        marks.started.fetch_add(1, SeqCst);
        let running = marks.running.fetch_add(1, SeqCst) + 1;
        marks.most.fetch_max(running, SeqCst);
        Self { marks, done: false }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.marks.running.fetch_sub(1, SeqCst);
        if !self.done {
            self.marks.dropped.fetch_add(1, SeqCst);
        }
    }
}

impl Toy {
    fn on_toy_wait(&mut self, cx: &CallCx, input: ToyWait) -> Result<Reply<ToyWaited>, ToolError> {
        let (guard, cx, marks) = (cx.clone(), cx.clone(), self.marks.clone());
        let (receipt, told) = (cx.receipt.clone(), self.marks.clone());
        let _detached = self.me.workers.spawn(async move {
            let count = if receipt.taken().await { &told.taken } else { &told.lost };
            count.fetch_add(1, SeqCst);
        });
        let limit_ms = input.timeout_secs.map_or(u64::MAX, |secs| secs * 1_000);
        let wait_ms = input.ms.min(limit_ms);
        let wait = async move {
            let mut waiting = Waiting::begin(marks);
            if input.parked {
                cx.slot.give_back();
            }
            cx.progress.report(0.0, Some(1.0), "waiting");
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            cx.progress.report(1.0, Some(1.0), "waited");
            waiting.done = true;
            Ok(ToyWaited { waited_ms: wait_ms, timed_out: wait_ms < input.ms })
        };
        if input.stubborn {
            return Ok(Reply::later(wait));
        }
        Ok(Reply::later(async move { guard.guard(wait).await }))
    }
}

/// Fails with what it is told.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToyFail {
    /// The error's message.
    pub message: String,
}

/// Never seen.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ToyNothing {}

impl Toy {
    fn on_toy_fail(&mut self, _: &CallCx, input: ToyFail) -> Result<Reply<ToyNothing>, ToolError> {
        Err(ToolError::foreign(Layer::Actor, "toy_failed", input.message))
    }
}

/// Panics.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToyPanic {
    /// Panic in the mailbox, which ends the actor, not beside it.
    #[serde(default)]
    pub in_mailbox: bool,
}

impl Toy {
    fn on_toy_panic(
        &mut self,
        _: &CallCx,
        input: ToyPanic,
    ) -> Result<Reply<ToyNothing>, ToolError> {
        assert!(!input.in_mailbox, "the toy panics in its mailbox");
        Ok(Reply::later(async { panic!("the toy panics beside its mailbox") }))
    }
}

/// Something for operators, by a dotted name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToyAdmin {}

impl Toy {
    fn on_toy_admin(&mut self, cx: &CallCx, _: ToyAdmin) -> Result<Reply<ToyEchoed>, ToolError> {
        Ok(Reply::Now(ToyEchoed { text: cx.tool.to_owned() }))
    }
}

/// Looks into the box of one toy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToyLook {
    /// The toy.
    pub toy_id: String,
}

impl Toy {
    fn on_toy_look(&mut self, _: &CallCx, input: ToyLook) -> Result<Reply<ToyEchoed>, ToolError> {
        Ok(Reply::Now(ToyEchoed { text: input.toy_id }))
    }
}

tools! { TOYS: "toys" for Toy, singleton toy;
    toy_echo: ToyEcho => ToyEchoed = Toy::on_toy_echo {
        title: "Say it back", effect: Effect::Read, weight: tokens, rate_of: rate_of, result_budget_bytes: 64 * 1024,
    };
    toy_wait: ToyWait => ToyWaited = Toy::on_toy_wait {
        title: "Wait", effect: Effect::Idempotent, rate: RateClass::Exec, timeout_secs: 5,
    };
    toy_fail: ToyFail => ToyNothing = Toy::on_toy_fail { title: "Fail" };
    toy_panic: ToyPanic => ToyNothing = Toy::on_toy_panic {
        title: "Panic", effect: Effect::Destroy,
    };
    toy_admin: ToyAdmin => ToyEchoed = Toy::on_toy_admin {
        name: "toy.admin", title: "For operators", effect: Effect::Read, tier: Tier::Operator,
    };
}

/// Boxes are everybody's.
impl Owned for Toy {
    fn authorize(&self, _: &CallCx) -> Result<(), ToolError> {
        Ok(())
    }
}

tools! { BOXES: "toy boxes" for Toy, addressed toy by toy_id;
    toy_look: ToyLook => ToyEchoed = Toy::on_toy_look {
        name: "toy.look", title: "Look into a box", effect: Effect::Read,
    };
}

/// Keeper of results in memory.
#[derive(Debug, Default)]
pub struct ToyKeeper {
    /// Number of further results that are refused.
    pub refuses: AtomicU32,
    /// Results that were kept, in order.
    pub kept: Mutex<Vec<LargeResult>>,
}

#[async_trait]
impl ResultKeeper for ToyKeeper {
    fn reader(&self) -> &'static str {
        "toy_echo"
    }

    async fn keep(&self, result: LargeResult) -> Result<KeptResult, ToolError> {
        let less = |left: u32| left.checked_sub(1);
        if self.refuses.fetch_update(SeqCst, SeqCst, less).is_ok() {
            return Err(ToolError::foreign(Layer::Quota, "toys_full", "the box is full"));
        }
        let bytes = result.value.to_string().len() as u64;
        lock(&self.kept).push(result);
        Ok(KeptResult {
            uri: "toy://kept".to_owned(),
            bytes,
            mime_type: "application/json",
            sha256: "0".repeat(64),
            expires_at: chrono::DateTime::UNIX_EPOCH,
        })
    }
}
