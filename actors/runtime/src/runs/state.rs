//! State of a run: what the table, the manager and those who look need to know of it.

use std::{fmt::Display, str::FromStr};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{ErrorCode, User};
use serde::{Deserialize, Serialize};

use super::RunEvent;
use crate::saga::{Saga, SagaState, SagaView};

/// Stage of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStatus {
    /// Begun, and no step is taken.
    Pending,
    /// Under way, or waiting.
    Running,
    /// Over, with its result.
    Completed,
    /// Over without a result, or given up until the daemon's next start.
    Failed,
    /// Over, for it was told to end.
    Cancelled,
}

impl RunStatus {
    /// Name for clients.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// True if nothing follows.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// Bound of its own on how long a run that is over is kept. The number of all that are kept bounds it, too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RunRetention {
    /// Days that the options say.
    #[default]
    Usual,
    /// Days of its own.
    Days(u32),
    /// Any age, while fewer than so many of its group and its user have ended behind it.
    Newest(usize),
    /// Any age.
    Always,
}

/// Place of a run in the order of a queue: after those of a greater priority, and the older ones of the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunQueue {
    /// Name of the queue.
    pub name: String,
    /// Priority of the run.
    #[serde(default)]
    pub priority: i32,
}

/// State of a run. Cheap to clone: it is copied for each look.
pub trait RunState: SagaState {
    /// Id: the name of its stream and of its actor. Ids sort by age.
    type Id: Copy + Ord + Display + FromStr + Send + Sync + 'static;
    /// Noun for errors and `ps`: `execution`.
    const LABEL: &'static str;
    /// Code for an id that is unknown, or another user's.
    const NOT_FOUND: &'static ErrorCode;
    /// Tool that lists them.
    const LISTED_BY: &'static str;
    /// Kind of [`SessionQuotas::allowance`] for how many of a user run at a time.
    const ALLOWANCE: Option<&'static str> = None;

    /// Stage, as the records tell it.
    fn status(&self) -> RunStatus;

    /// Owner. An operator's are everybody's.
    fn user(&self) -> User;

    /// Name that runs are listed by, such as their agent's id.
    fn group(&self) -> String;

    /// Time of its first record.
    fn began_at(&self) -> DateTime<Utc>;

    /// Time of its end.
    fn ended_at(&self) -> Option<DateTime<Utc>>;

    /// Time that ends its wait.
    fn wakes_at(&self) -> Option<DateTime<Utc>>;

    /// Record that says that the time came; `None` if it waits for none that is over. After it
    /// something else is due, or another time.
    fn woken(&self, now: DateTime<Utc>) -> Option<Self::Record>;

    /// Whether it takes a place of those that run. One that another run waits for, which has a place, takes none:
    /// all places could be taken by those that wait.
    fn takes_place(&self) -> bool {
        true
    }

    /// Queue that it waits in for its place, if it is not refused without one.
    fn queue(&self) -> Option<&RunQueue> {
        None
    }

    /// Bound of its own on how long it is kept.
    fn retention(&self) -> RunRetention {
        RunRetention::Usual
    }

    /// Words for whoever waits for its end.
    fn doing(&self) -> String {
        self.status().word().to_owned()
    }

    /// Event that a record is shown as.
    fn event(record: &Self::Record) -> RunEvent;

    /// Time of a record; `None` for the time of the record before.
    fn recorded_at(record: &Self::Record) -> Option<DateTime<Utc>>;

    /// Drops, at its end, everything that nobody is shown. It is read again at the daemon's next start.
    fn rest(&mut self);
}

impl<G: Saga<State: RunState>> SagaView<G> {
    /// Stage as it is shown: a run that is given up has failed.
    pub fn status(&self) -> RunStatus {
        match self.state.status() {
            status if status.is_over() => status,
            _ if self.given_up.is_some() => RunStatus::Failed,
            status => status,
        }
    }
}
