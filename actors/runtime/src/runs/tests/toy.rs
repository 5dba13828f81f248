//! A toy kind of runs: an errand takes three steps, naps after the first where it is told to, and waits for a
//! word after the second where it asks.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::{ErrorCode, Resources, SessionId, SwarmId, ToolError, User, lock};
use hivekeep_ports::{Hold, SessionQuotas, Standing};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    log::{LogError, Sourced},
    runs::{RunEvent, RunQueue, RunRetention, RunState, RunStatus},
    saga::{Saga, SagaHandle, SagaState},
};

/// The errand does not exist.
const ERRAND_NOT_FOUND: &ErrorCode = &ErrorCode {
    name: "errand_not_found",
    meaning: "The errand does not exist.",
    cause: "The id is wrong.",
    next_step: "List them.",
};

/// What an errand is going to do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) group: String,
    pub(super) nap_ms: Option<i64>,
    pub(super) asks: bool,
    /// A step is left behind the end.
    pub(super) sweeps: bool,
    pub(super) queue: Option<RunQueue>,
    #[serde(skip)]
    pub(super) retention: RunRetention,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(super) enum Record {
    Begun {
        user: User,
        session: SessionId,
        plan: Plan,
        at: DateTime<Utc>,
    },
    Stepped {
        step: u8,
    },
    Naps {
        until: DateTime<Utc>,
    },
    Woken {
        at: DateTime<Utc>,
    },
    Word {
        text: String,
        at: DateTime<Utc>,
    },
    Cancelled,
    Ended {
        at: DateTime<Utc>,
    },
    Swept,
    /// The last step is taken again.
    Again,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Errand {
    user: User,
    pub(super) session: SessionId,
    plan: Plan,
    began_at: DateTime<Utc>,
    pub(super) steps: u8,
    pub(super) until: Option<DateTime<Utc>>,
    pub(super) woken: bool,
    pub(super) word: Option<String>,
    cancelled: bool,
    ended_at: Option<DateTime<Utc>>,
    swept: bool,
    pub(super) records: usize,
    pub(super) rested: bool,
}

impl Errand {
    pub(super) fn naps(&self) -> bool {
        self.steps == 1 && self.until.is_some() && !self.woken
    }

    pub(super) fn asks(&self) -> bool {
        self.steps == 2 && self.plan.asks && self.word.is_none()
    }
}

impl Sourced for Errand {
    const KIND: &'static str = "errand";
    // Whole records count, not pieces.
    const PIECE_BYTES: Option<usize> = Some(16);
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        let Record::Begun { user, session, plan, at } = record else { return Err(record) };
        Ok(Self {
            user,
            session,
            plan,
            began_at: at,
            steps: 0,
            until: None,
            woken: false,
            word: None,
            cancelled: false,
            ended_at: None,
            swept: false,
            records: 1,
            rested: false,
        })
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::Stepped { step } if step == self.steps + 1 => self.steps = step,
            Record::Naps { until } if self.until.is_none() => self.until = Some(until),
            Record::Woken { .. } if !self.woken => self.woken = true,
            Record::Word { text, .. } if self.word.is_none() => self.word = Some(text),
            Record::Cancelled if !self.cancelled => self.cancelled = true,
            Record::Ended { at } if self.ended_at.is_none() => self.ended_at = Some(at),
            Record::Swept if !self.swept => self.swept = true,
            Record::Again if self.ended_at.is_some() => {
                (self.steps, self.cancelled, self.ended_at) = (self.steps.min(2), false, None);
            }
            other => return Err(other),
        }
        self.records += 1;
        Ok(())
    }
}

impl SagaState for Errand {
    fn holds(&self) -> Option<SessionId> {
        self.ended_at.is_none().then_some(self.session)
    }
    fn is_cancelled(&self) -> bool {
        self.cancelled
    }
    fn cancellation(&self) -> Option<Record> {
        (self.ended_at.is_none() && !self.cancelled).then_some(Record::Cancelled)
    }
}

impl RunState for Errand {
    type Id = SwarmId;
    const LABEL: &'static str = "errand";
    const NOT_FOUND: &'static ErrorCode = ERRAND_NOT_FOUND;
    const LISTED_BY: &'static str = "errand_list";
    const ALLOWANCE: Option<&'static str> = Some("errands");

    fn status(&self) -> RunStatus {
        match self.ended_at {
            Some(_) if self.cancelled => RunStatus::Cancelled,
            Some(_) => RunStatus::Completed,
            None if self.steps == 0 => RunStatus::Pending,
            None => RunStatus::Running,
        }
    }
    fn user(&self) -> User {
        self.user
    }
    fn group(&self) -> String {
        self.plan.group.clone()
    }
    fn began_at(&self) -> DateTime<Utc> {
        self.began_at
    }
    fn ended_at(&self) -> Option<DateTime<Utc>> {
        self.ended_at
    }
    fn wakes_at(&self) -> Option<DateTime<Utc>> {
        self.until.filter(|_| self.naps())
    }
    fn woken(&self, now: DateTime<Utc>) -> Option<Record> {
        self.wakes_at().filter(|at| *at <= now).map(|_| Record::Woken { at: now })
    }
    fn queue(&self) -> Option<&RunQueue> {
        self.plan.queue.as_ref()
    }
    fn doing(&self) -> String {
        format!("{} of 3 steps", self.steps)
    }
    fn retention(&self) -> RunRetention {
        self.plan.retention
    }

    fn event(record: &Record) -> RunEvent {
        let (event_type, payload) = match record {
            Record::Begun { plan, .. } => ("begun", json!({ "group": plan.group })),
            Record::Stepped { step } => ("stepped", json!({ "step": step })),
            Record::Naps { .. } => ("naps", json!({})),
            Record::Woken { .. } => ("woken", json!({})),
            Record::Word { text, .. } => ("word", json!({ "text": text })),
            Record::Cancelled => ("cancelled", json!({})),
            Record::Ended { .. } => ("ended", json!({})),
            Record::Swept => ("swept", json!({})),
            Record::Again => ("again", json!({})),
        };
        RunEvent { event_type, payload }
    }
    fn recorded_at(record: &Record) -> Option<DateTime<Utc>> {
        match record {
            Record::Begun { at, .. }
            | Record::Woken { at }
            | Record::Word { at, .. }
            | Record::Ended { at } => Some(*at),
            Record::Stepped { .. }
            | Record::Naps { .. }
            | Record::Cancelled
            | Record::Swept
            | Record::Again => None,
        }
    }
    fn rest(&mut self) {
        self.rested = true;
    }
}

/// The world outside: what took its effect stays, whatever dies.
#[derive(Default)]
pub(super) struct World {
    /// Steps that took effect: each looks before it does anything.
    pub(super) done: Mutex<Vec<(SessionId, u8)>>,
    /// The second step and the last, behind the end, wait while this is set.
    pub(super) gate: AtomicBool,
    /// Steps panic while this is set.
    pub(super) panics: AtomicBool,
    pub(super) users: Users,
}

impl World {
    fn take_effect(&self, effect: (SessionId, u8)) {
        let mut done = lock(&self.done);
        if !done.contains(&effect) {
            done.push(effect);
        }
    }
}

#[derive(Default)]
pub(super) struct Users {
    pub(super) of_sessions: Mutex<HashMap<SessionId, User>>,
    pub(super) allowance: Mutex<Option<u64>>,
    pub(super) held: Arc<()>,
}

#[async_trait]
impl SessionQuotas for World {
    async fn reserve(&self, _: SessionId, _: Resources) -> Result<(), ToolError> {
        Ok(())
    }
    fn release(&self, _: SessionId, _: Resources) {}
    fn restore(&self, _: SessionId, _: Resources) {}
    fn hold(&self, _: SessionId) -> Hold {
        Hold::of(self.users.held.clone())
    }
    fn user(&self, session: SessionId) -> Option<User> {
        lock(&self.users.of_sessions).get(&session).copied()
    }
    fn allowance(&self, _: User, kind: &str) -> Option<u64> {
        lock(&self.users.allowance).filter(|_| kind == "errands")
    }
    async fn standing(&self, _: SessionId) -> Standing {
        unreachable!("runs do not ask")
    }
}

pub(super) struct ErrandSaga {
    world: Arc<World>,
    handle: SagaHandle<Self>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Go(u8),
    Nap,
    End,
    Sweep,
}

impl Saga for ErrandSaga {
    type State = Errand;
    type Step = Step;
    type Live = ();
    type Args = Arc<World>;

    fn resume(world: Arc<World>, handle: SagaHandle<Self>) -> Self {
        Self { world, handle }
    }
    fn due(state: &Errand, _: &[Step]) -> Vec<Step> {
        match state.steps {
            _ if state.ended_at.is_some() => match state.plan.sweeps && !state.swept {
                true => vec![Step::Sweep],
                false => Vec::new(),
            },
            _ if state.cancelled => vec![Step::End],
            1 if state.plan.nap_ms.is_some() && state.until.is_none() => vec![Step::Nap],
            _ if state.naps() || state.asks() => Vec::new(),
            3 => vec![Step::End],
            steps => vec![Step::Go(steps + 1)],
        }
    }
    fn parallel(_: &Errand) -> usize {
        1
    }
    fn interruptible(_: Step) -> bool {
        true
    }
    async fn step(&self, step: Step) -> Result<(), LogError> {
        let world = &self.world;
        assert!(!world.panics.load(SeqCst), "told to panic");
        match step {
            Step::Go(step) => {
                while step == 2 && world.gate.load(SeqCst) {
                    if self.handle.cancelled().is_cancelled() {
                        return self.handle.record(Record::Stepped { step }).await;
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let effect = (self.handle.view(|view| view.state.session), step);
                world.take_effect(effect);
                self.handle.record(Record::Stepped { step }).await
            }
            Step::Nap => {
                let nap = self.handle.view(|view| view.state.plan.nap_ms).unwrap_or_default();
                let until = Utc::now() + TimeDelta::milliseconds(nap);
                self.handle.record(Record::Naps { until }).await
            }
            Step::End => self.handle.record(Record::Ended { at: Utc::now() }).await,
            Step::Sweep => {
                while world.gate.load(SeqCst) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                self.handle.record(Record::Swept).await
            }
        }
    }
}
