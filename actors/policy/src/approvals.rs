//! Approvals by people: asked for by calls, decided by people, each good for one call.
//!
//! ```text
//! asked ─▶ pending ─┬─▶ approved ─▶ used        let through once, durable before the call is made
//! minted ───────────┘   denied, timed out, withdrawn
//! ```
//! One log orders all of them, so an approval is burnt at most once however many calls try. Calls ask, wait,
//! and use up what was given in `admit.rs`, people decide in `decide.rs`.

mod admit;
mod decide;
mod input;
mod question;
mod standing;
mod state;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures::{FutureExt, future::BoxFuture};
use hivekeep_kernel::{ApprovalId, Door, Layer, PoolFull, ToolError, User};
use hivekeep_ports::UserReply;
use hivekeep_runtime::log::{Decision, Log, LogError, stream};
use hivekeep_store::{Journal, NewEvent, StreamId};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::watch;

use crate::{ApprovalOptions, ToolPattern, codes};
use state::{ApprovalLedger, Record};

pub use input::{hexadecimal, input_digest, input_text};
pub use state::{Approval, ApprovalState, Grant, WantedCall};

/// Whoever decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approver {
    /// The user, as the door knows it.
    pub user: User,
    /// The door.
    pub door: Door,
}

impl fmt::Display for Approver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let door = serde_json::to_value(self.door).ok();
        write!(f, "{} ({})", self.user, door.as_ref().and_then(|door| door.as_str()).unwrap_or("-"))
    }
}

/// Calls that an approval is remembered for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remember {
    /// This call only.
    #[default]
    Once,
    /// Calls of the same tool by the same session.
    Session,
    /// Calls of these tools by the same user, for so many seconds.
    Tools {
        /// The tools.
        tools: ToolPattern,
        /// How long.
        secs: u64,
    },
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalAnswer {
    /// Yes or no.
    pub approved: bool,
    /// Why, for the caller and the records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Calls that a yes is remembered for.
    #[serde(default)]
    pub remember: Remember,
    /// The reply to a question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<UserReply>,
}

/// A token as it is shown, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MintedToken {
    /// The token.
    pub token: String,
    /// The approval that the token stands for.
    pub approval: Approval,
}

/// The approvals. Cheap to clone.
#[derive(Clone)]
pub struct Approvals(Arc<Inner>);

struct Inner {
    options: ApprovalOptions,
    log: Log<ApprovalLedger>,
    /// Counts changes.
    changes: watch::Sender<u64>,
}

impl fmt::Debug for Approvals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Approvals")
    }
}

impl Approvals {
    /// Opens the approvals of the journal. Those that calls waited for are withdrawn: the calls are gone.
    ///
    /// # Errors
    /// When the records cannot be read or written.
    pub async fn open(options: ApprovalOptions, journal: Journal) -> Result<Self, LogError> {
        let log = Log::<ApprovalLedger>::open(journal, ledger_stream()).await?;
        let approvals = Self(Arc::new(Inner { options, log, changes: watch::Sender::default() }));
        let left = approvals.0.log.view(|ledger| {
            let waits = |one: &&Approval| one.state == ApprovalState::Pending && one.waits;
            let all = ledger.into_iter().flat_map(|ledger| ledger.approvals.values());
            all.filter(waits).map(|one| one.id).collect::<Vec<_>>()
        });
        for id in left {
            approvals.change::<LogError>(|_| Ok(ended(id, ApprovalState::Withdrawn)))?.await?;
        }
        Ok(approvals)
    }

    /// Approvals that are known, the oldest first, with the beginnings of their inputs; those that wait for
    /// a person if not `all`.
    pub fn list(&self, all: bool) -> Vec<Approval> {
        let now = Utc::now();
        let rows = self.0.log.view(|ledger| {
            let known = ledger.into_iter().flat_map(|it| it.approvals.values());
            known.map(|one| shown(one, now, Approval::input_beginning)).collect::<Vec<_>>()
        });
        rows.into_iter().filter(|one| all || one.state == ApprovalState::Pending).collect()
    }

    /// The approval of an id, with all of its input that is kept.
    pub fn get(&self, id: ApprovalId) -> Option<Approval> {
        let now = Utc::now();
        let whole = |one: &Approval| shown(one, now, Approval::whole_input);
        self.0.log.view(|ledger| ledger?.approvals.get(&id).map(whole))
    }

    /// Grants that hold.
    pub fn grants(&self) -> Vec<Grant> {
        let now = Utc::now();
        self.0.log.view(|ledger| {
            let grants = ledger.into_iter().flat_map(|it| it.grants.values());
            grants.filter(|grant| grant.until > now).cloned().collect()
        })
    }

    /// Counts changes, for whoever follows the list.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Refuses a user one more of the approvals that take a place, as a [`SharedPool`] of them would.
    ///
    /// [`SharedPool`]: hivekeep_kernel::SharedPool
    fn room(
        &self,
        ledger: &ApprovalLedger,
        user: User,
        takes_place: impl Fn(&Approval) -> bool,
    ) -> Result<(), ToolError> {
        let (option, most) = ("policy.approvals.max_pending", self.0.options.max_pending);
        let taken = || ledger.approvals.values().filter(|one| takes_place(one));
        let own = taken().filter(|one| one.call.user == user).count();
        PoolFull::check(option, most, own, taken().count()).map_err(|full| {
            ToolError::new(Layer::Approval, codes::APPROVALS_FULL, full.to_string())
                .retryable()
                .detail("share", option)
        })
    }

    /// Refuses a user one more approval that waits for a person: of calls, or of questions.
    fn room_to_wait(
        &self,
        ledger: &ApprovalLedger,
        user: User,
        questions: bool,
        now: DateTime<Utc>,
    ) -> Result<(), ToolError> {
        self.room(ledger, user, |one| {
            state_at(one, now) == ApprovalState::Pending && one.question.is_some() == questions
        })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.0.options.timeout_secs)
    }

    fn new_approval(
        &self,
        call: WantedCall,
        why: String,
        waits: bool,
        now: DateTime<Utc>,
    ) -> Approval {
        Approval {
            id: ApprovalId::new(),
            call,
            why,
            asked_at: now,
            expires_at: now + self.timeout(),
            state: ApprovalState::Pending,
            waits,
            decided_by: None,
            decided_at: None,
            question: None,
            reply: None,
            decided_why: None,
            token: None,
        }
    }

    /// Separation of duties: whoever calls does not approve it. A credential is the same one at all doors; a
    /// user of this host may be a person at one and an agent at another. An agent of the daemon's has no
    /// credential and reaches no door but its own, so at any other door its user is another than it.
    fn other_than_caller(&self, call: &WantedCall, approver: &Approver) -> Result<(), ToolError> {
        let same = call.user == approver.user
            && (matches!(call.user, User::Credential(_)) || call.door == approver.door);
        let agents_own = call.door == Door::Agent && approver.door != Door::Agent;
        if !same || agents_own || self.0.options.self_approval {
            return Ok(());
        }
        let message = format!("{approver} made the call and cannot approve it");
        Err(ToolError::new(Layer::Approval, codes::SELF_APPROVAL, message)
            .next("have another person approve it, or set `policy.approvals.self_approval`"))
    }

    /// Decides on the ledger; followers hear of it when it is durable.
    fn change<E: From<LogError>>(
        &self,
        decide: impl FnOnce(&ApprovalLedger) -> Result<Decision<Record>, E>,
    ) -> Result<BoxFuture<'static, Result<(), LogError>>, E> {
        let (done, durable) = tokio::sync::oneshot::channel();
        let (none, inner) = (ApprovalLedger::default(), self.0.clone());
        self.0.log.decide_then(
            |ledger| decide(ledger.unwrap_or(&none)),
            move |outcome| {
                inner.changes.send_modify(|count| *count += 1);
                let _gone = done.send(outcome);
            },
        )?;
        let lost =
            || LogError::Defect { stream: ledger_stream(), what: "an answer was lost".to_owned() };
        Ok(async move { durable.await.unwrap_or_else(|_| Err(lost())) }.boxed())
    }
}

fn ledger_stream() -> StreamId {
    stream::<ApprovalLedger>("all").expect("a plain name")
}

fn ended(id: ApprovalId, state: ApprovalState) -> Decision<Record> {
    let kind = match state {
        ApprovalState::Used => "approval.used",
        ApprovalState::TimedOut => "approval.timed_out",
        _ => "approval.withdrawn",
    };
    let event = NewEvent { kind: kind.to_owned(), subject: id.to_string(), data: json!({}) };
    Decision::record(Record::Ended { id, state, at: Utc::now() }).event(event)
}

/// An approval as it is told: with the time in mind, without its token, with this much of its input.
fn shown(one: &Approval, now: DateTime<Utc>, input: fn(&Approval) -> String) -> Approval {
    let mut told = one.clone();
    (told.token, told.state, told.call.input) = (None, state_at(one, now), input(one));
    told
}

/// State with the time in mind.
fn state_at(one: &Approval, now: DateTime<Utc>) -> ApprovalState {
    let live = matches!(one.state, ApprovalState::Pending | ApprovalState::Approved);
    if live && one.expires_at <= now { ApprovalState::TimedOut } else { one.state }
}

fn not_found(id: ApprovalId) -> ToolError {
    ToolError::new(Layer::Approval, codes::APPROVAL_NOT_FOUND, format!("no approval {id} waits"))
}

fn event(kind: &str, approval: &Approval) -> NewEvent {
    let call = &approval.call;
    NewEvent {
        kind: kind.to_owned(),
        subject: approval.id.to_string(),
        data: json!({ "tool": call.tool, "session": call.session, "user": call.user,
            "agent": call.agent, "input_digest": call.input_digest, "why": approval.why,
            "expires_at": approval.expires_at, "by": approval.decided_by }),
    }
}
