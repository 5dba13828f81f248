//! Questions of runs in the approvals: put while a node waits for a person, read, and settled once what they came to is
//! on the disk. A run that waits has no actor; one below the root does this for all of them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use hivekeep_kernel::{ApprovalId, RunId, lock};
use hivekeep_plan::progress::NodeKey;
use hivekeep_ports::StandingQuestions;
use tokio::sync::Notify;

pub(super) type WaitingTry = (RunId, NodeKey);

/// Where the question of a try stands.
#[derive(Debug, Clone)]
pub(super) enum TryQuestion {
    /// Not put yet, or once more because of an answer that does not fit, with the reason.
    Open(Option<String>),
    Put(ApprovalId),
}

/// Tries that wait for people.
pub(crate) struct QuestionDesk {
    pub(super) people: Option<Arc<dyn StandingQuestions>>,
    pub(super) waiting: Mutex<BTreeMap<WaitingTry, TryQuestion>>,
    pub(super) news: Notify,
}

impl QuestionDesk {
    /// Desk without tries. Without people answers come by calls alone.
    pub(super) fn new(people: Option<Arc<dyn StandingQuestions>>) -> Self {
        Self { people, waiting: Mutex::default(), news: Notify::new() }
    }

    /// Takes a try whose wait is recorded.
    pub(super) fn waits(&self, run: RunId, key: NodeKey) {
        lock(&self.waiting).entry((run, key)).or_insert(TryQuestion::Open(None));
        self.look();
    }

    /// Has it looked which tries wait no longer.
    pub(crate) fn look(&self) {
        self.news.notify_one();
    }

    pub(super) fn put(&self, waiting: WaitingTry, question: TryQuestion) {
        lock(&self.waiting).insert(waiting, question);
    }
}
