//! Approvals by people: asked for by calls, decided by people, each good for one call.
//!
//! ```text
//! asked ─▶ pending ─┬─▶ approved ─▶ used        let through once, durable before the call is made
//! minted ───────────┘   denied, timed out, withdrawn
//! ```
//! One log orders all of them, so an approval is burnt at most once however many calls try.

mod question;
mod state;
mod token;

use std::{fmt, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures::{FutureExt, future::BoxFuture};
use hivekeep_kernel::{ApprovalId, Door, GrantId, Layer, ToolError, User, ports::UserReply};
use hivekeep_runtime::log::{Decision, Log, LogError, stream};
use hivekeep_store::{Journal, NewEvent, StreamId};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::watch;

use crate::{ApprovalOptions, ToolPattern, codes};
use state::{ApprovalLedger, Record};

pub use state::{Approval, ApprovalState, Grant, WantedCall};

/// Longest time that a grant lasts.
const MAX_GRANT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Time that a grant for a session lasts at most; it ends with the session anyway.
const SESSION_GRANT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Most grants.
const MAX_GRANTS: usize = 1_000;
/// Longest reason that is kept, in characters.
const MAX_WHY: usize = 1_000;

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

/// What an approval is remembered for.
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
    /// What it is remembered for, if it is a yes.
    #[serde(default)]
    pub remember: Remember,
    /// The reply, if it was a question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<UserReply>,
}

/// A token as it is shown, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MintedToken {
    /// The token.
    pub token: String,
    /// The approval that it is.
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
    /// The approvals of before. Calls that waited then are gone, and what they asked is withdrawn.
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

    /// Approvals that are known, the oldest first; those that wait for a person if not `all`.
    pub fn list(&self, all: bool) -> Vec<Approval> {
        let now = Utc::now();
        let rows = self.0.log.view(|ledger| {
            let known = ledger.into_iter().flat_map(|it| it.approvals.values());
            known.map(|one| shown(one, now)).collect::<Vec<_>>()
        });
        rows.into_iter().filter(|one| all || one.state == ApprovalState::Pending).collect()
    }

    /// One approval.
    pub fn get(&self, id: ApprovalId) -> Option<Approval> {
        let now = Utc::now();
        self.0.log.view(|ledger| ledger?.approvals.get(&id).map(|one| shown(one, now)))
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

    /// Lets a call through that was approved, or that a grant covers; `None` when a person has to be
    /// asked. An approval is used up when this returns, and durably so.
    ///
    /// # Errors
    /// Of a token: that it is for something else, too old, or used. `journal_failed`.
    pub async fn admit(
        &self,
        call: &WantedCall,
        token: Option<&str>,
    ) -> Result<Option<String>, ToolError> {
        let (now, mut by) = (Utc::now(), None);
        let written = self.change::<ToolError>(|ledger| {
            if let Some(token) = token {
                let id = checked(ledger, &token::hash(token), call, now)?;
                by = Some(id.to_string());
                return Ok(ended(id, ApprovalState::Used));
            }
            if let Some(grant) = ledger.grant(call, now) {
                by = Some(grant.id.to_string());
                return Ok(Decision::nothing());
            }
            let found = ledger.approved(call, now).map(|one| one.id);
            let Some(id) = found else { return Ok(Decision::nothing()) };
            by = Some(id.to_string());
            Ok(ended(id, ApprovalState::Used))
        })?;
        written.await?;
        Ok(by)
    }

    /// Asks for a person's approval. One that was asked for this very call and is still pending stays
    /// the only one, unless a call `waits` for it.
    ///
    /// # Errors
    /// `approvals_full`, `journal_failed`.
    pub async fn ask(
        &self,
        call: WantedCall,
        why: String,
        waits: bool,
    ) -> Result<Approval, ToolError> {
        let now = Utc::now();
        let mut asked = None;
        let written = self.change::<ToolError>(|ledger| {
            if let Some(known) = ledger.asked(&call, now).filter(|_| !waits) {
                asked = Some(known.clone());
                return Ok(Decision::nothing());
            }
            self.room(ledger, now)?;
            let approval = asked.insert(self.new_approval(call, why, waits, now)).clone();
            let event = event("approval.requested", &approval);
            Ok(Decision::record(Record::Asked { approval }).event(event))
        })?;
        written.await?;
        asked.ok_or_else(|| ToolError::internal("no approval was made"))
    }

    /// Makes an approval as a token, before the call is made. The approver answers for it.
    ///
    /// # Errors
    /// `self_approval`, `approvals_full`, `journal_failed`.
    pub async fn mint(
        &self,
        call: WantedCall,
        approver: &Approver,
    ) -> Result<MintedToken, ToolError> {
        self.other_than_caller(&call, approver)?;
        let (now, (token, hash)) = (Utc::now(), token::made()?);
        let approval = Approval {
            state: ApprovalState::Approved,
            decided_by: Some(approver.to_string()),
            decided_at: Some(now),
            token: Some(hash),
            ..self.new_approval(call, "a token was asked for".to_owned(), false, now)
        };
        let made = approval.clone();
        let most = self.0.options.max_pending;
        self.change::<ToolError>(|ledger| {
            let tokens = |one: &&Approval| {
                one.token.is_some() && state_at(one, now) == ApprovalState::Approved
            };
            if ledger.approvals.values().filter(tokens).count() >= most {
                let message = format!("{most} tokens are out");
                return Err(
                    ToolError::new(Layer::Approval, codes::APPROVALS_FULL, message).retryable()
                );
            }
            let event = event("approval.minted", &approval);
            Ok(Decision::record(Record::Asked { approval }).event(event))
        })?
        .await?;
        Ok(MintedToken { token, approval: Approval { token: None, ..made } })
    }

    /// Decides on an approval that waits; or takes back one that was given and not used.
    ///
    /// # Errors
    /// `approval_not_found`, `self_approval`, `journal_failed`.
    pub async fn decide(
        &self,
        id: ApprovalId,
        approver: &Approver,
        answer: ApprovalAnswer,
    ) -> Result<Approval, ToolError> {
        let now = Utc::now();
        let found = self.get(id).ok_or_else(|| not_found(id))?;
        if answer.approved && found.question.is_none() {
            self.other_than_caller(&found.call, approver)?;
        }
        self.decide_by(id, approver.to_string(), answer, now).await
    }

    /// Decides by the person at the caller's own client, where that is allowed.
    ///
    /// # Errors
    /// As [`Self::decide`].
    pub async fn decide_at_client(
        &self,
        id: ApprovalId,
        answer: ApprovalAnswer,
    ) -> Result<Approval, ToolError> {
        let found = self.get(id).ok_or_else(|| not_found(id))?;
        let by = format!("{} (elicitation)", found.call.user);
        self.decide_by(id, by, answer, Utc::now()).await
    }

    async fn decide_by(
        &self,
        id: ApprovalId,
        by: String,
        answer: ApprovalAnswer,
        now: DateTime<Utc>,
    ) -> Result<Approval, ToolError> {
        let ApprovalAnswer { approved, why, remember, reply } = answer;
        let why = why.map(|why| why.chars().take(MAX_WHY).collect::<String>());
        self.change::<ToolError>(|ledger| {
            let one = ledger.approvals.get(&id).ok_or_else(|| not_found(id))?;
            let may = match state_at(one, now) {
                ApprovalState::Pending => true,
                ApprovalState::Approved => !approved,
                _ => false,
            };
            if !may {
                return Err(not_found(id).detail("state", json!(state_at(one, now))));
            }
            if let Some(question) = &one.question {
                let reply = reply.clone().unwrap_or_default();
                question.takes(&reply).map_err(ToolError::invalid)?;
            }
            let grant = if approved { granted(one, &remember, &by, now) } else { None };
            if grant.is_some() && ledger.grants.len() >= MAX_GRANTS {
                let message = format!("there are {MAX_GRANTS} grants");
                return Err(ToolError::new(Layer::Approval, codes::APPROVALS_FULL, message));
            }
            let event = NewEvent {
                kind: "approval.decided".to_owned(),
                subject: id.to_string(),
                data: json!({ "approved": approved, "by": by, "why": why, "tool": one.call.tool,
                    "session": one.call.session, "grant": grant }),
            };
            let expires_at = one.expires_at.max(now + self.timeout());
            let reply = one.question.as_ref().and(reply);
            let decided =
                Record::Decided { id, approved, by, why, at: now, expires_at, grant, reply };
            Ok(Decision::record(decided).event(event))
        })?
        .await?;
        self.get(id).ok_or_else(|| not_found(id))
    }

    /// Ends a grant.
    ///
    /// # Errors
    /// `rule_not_found`, `journal_failed`.
    pub async fn revoke_grant(&self, id: GrantId, by: &Approver) -> Result<(), ToolError> {
        let unknown = || {
            ToolError::not_found(Layer::Approval, codes::RULE_NOT_FOUND, "grant", &id.to_string())
        };
        let written = self.change::<ToolError>(|ledger| {
            ledger.grants.get(&id).ok_or_else(unknown)?;
            let event = NewEvent {
                kind: "approval.grant_revoked".to_owned(),
                subject: id.to_string(),
                data: json!({ "by": by.to_string() }),
            };
            let record = Record::GrantRevoked { id, by: by.to_string(), at: Utc::now() };
            Ok(Decision::record(record).event(event))
        })?;
        Ok(written.await?)
    }

    /// Waits for the answer to an approval, up to its end, and uses it up. Dropping the future
    /// withdraws it.
    ///
    /// # Errors
    /// `approval_denied`, `approval_timed_out`, `journal_failed`.
    pub async fn wait(&self, approval: &Approval) -> Result<(), ToolError> {
        let mut left = Withdraw { approvals: self, id: Some(approval.id) };
        let mut changes = self.0.changes.subscribe();
        loop {
            changes.borrow_and_update();
            let now = self.get(approval.id);
            match now.as_ref().map(|one| one.state) {
                Some(ApprovalState::Pending) => {}
                Some(ApprovalState::Approved) => {
                    left.id = None;
                    return self.use_up(approval.id).await;
                }
                Some(ApprovalState::Denied) => {
                    left.id = None;
                    return Err(denied(now.as_ref()));
                }
                _ => break,
            }
            let rest = (approval.expires_at - Utc::now()).to_std().unwrap_or_default();
            // The sender is this value's own.
            if tokio::time::timeout(rest, changes.changed()).await.is_err() {
                break;
            }
        }
        left.id = None;
        self.change::<ToolError>(|_| Ok(ended(approval.id, ApprovalState::TimedOut)))?.await?;
        Err(self.timed_out(approval))
    }

    async fn use_up(&self, id: ApprovalId) -> Result<(), ToolError> {
        let written = self.change::<ToolError>(|ledger| {
            let one = ledger.approvals.get(&id).ok_or_else(|| not_found(id))?;
            match one.state {
                ApprovalState::Approved => Ok(ended(id, ApprovalState::Used)),
                // Taken back before the call was made.
                _ => Err(denied(Some(one))),
            }
        })?;
        Ok(written.await?)
    }

    fn timed_out(&self, approval: &Approval) -> ToolError {
        let secs = self.0.options.timeout_secs;
        let message = format!("nobody approved `{}` within {secs} s", approval.call.tool);
        ToolError::new(Layer::Approval, codes::APPROVAL_TIMED_OUT, message)
            .next("do without it, or repeat the call when somebody looks at `hivekeep approvals`")
            .detail("approval", approval.id.to_string())
    }

    /// Refuses one more that would wait.
    fn room(&self, ledger: &ApprovalLedger, now: DateTime<Utc>) -> Result<(), ToolError> {
        let most = self.0.options.max_pending;
        if ledger.pending(now) < most {
            return Ok(());
        }
        let message = format!("{most} calls wait for approvals");
        Err(ToolError::new(Layer::Approval, codes::APPROVALS_FULL, message).retryable())
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

    /// Separation of duties: whoever calls does not approve it.
    fn other_than_caller(&self, call: &WantedCall, approver: &Approver) -> Result<(), ToolError> {
        let same = call.user == approver.user && call.door == approver.door;
        if !same || self.0.options.self_approval {
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

/// Withdraws an approval whose caller has gone.
struct Withdraw<'a> {
    approvals: &'a Approvals,
    id: Option<ApprovalId>,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        if let Err(error) =
            self.approvals.change::<ToolError>(|_| Ok(ended(id, ApprovalState::Withdrawn)))
        {
            tracing::warn!(%error, %id, "an approval could not be withdrawn; it times out");
        }
    }
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

/// The approval of a token, if it is for this call and good now.
fn checked(
    ledger: &ApprovalLedger,
    hash: &str,
    call: &WantedCall,
    now: DateTime<Utc>,
) -> Result<ApprovalId, ToolError> {
    let refuse = |code, message: &str| Err(ToolError::new(Layer::Approval, code, message));
    let Some(one) = ledger.of_token(hash).filter(|one| ledger.same_call(one.id, call)) else {
        return refuse(codes::APPROVAL_TOKEN_MISMATCH, "the approval token is not for this call");
    };
    match state_at(one, now) {
        ApprovalState::Approved => Ok(one.id),
        ApprovalState::Used => {
            refuse(codes::APPROVAL_TOKEN_REPLAYED, "the approval token was used")
        }
        ApprovalState::TimedOut => {
            refuse(codes::APPROVAL_TOKEN_EXPIRED, "the approval token is too old")
        }
        _ => refuse(codes::APPROVAL_TOKEN_MISMATCH, "the approval was taken back"),
    }
}

/// An approval as it is told: with the time in mind, and without its token.
fn shown(one: &Approval, now: DateTime<Utc>) -> Approval {
    Approval { token: None, state: state_at(one, now), ..one.clone() }
}

/// State with the time in mind.
fn state_at(one: &Approval, now: DateTime<Utc>) -> ApprovalState {
    let live = matches!(one.state, ApprovalState::Pending | ApprovalState::Approved);
    if live && one.expires_at <= now { ApprovalState::TimedOut } else { one.state }
}

fn granted(one: &Approval, remember: &Remember, by: &str, now: DateTime<Utc>) -> Option<Grant> {
    let exact = || ToolPattern::try_from(one.call.tool.clone()).ok();
    let (tools, session, lasts) = match remember {
        Remember::Once => return None,
        Remember::Session => (exact()?, Some(one.call.session), SESSION_GRANT),
        Remember::Tools { tools, secs } => {
            (tools.clone(), None, Duration::from_secs(*secs).min(MAX_GRANT))
        }
    };
    let (user, by) = (one.call.user, by.to_owned());
    Some(Grant { id: GrantId::new(), tools, user, session, until: now + lasts, by, at: now })
}

fn not_found(id: ApprovalId) -> ToolError {
    ToolError::new(Layer::Approval, codes::APPROVAL_NOT_FOUND, format!("no approval {id} waits"))
}

fn denied(one: Option<&Approval>) -> ToolError {
    let by = one.and_then(|one| one.decided_by.as_deref()).unwrap_or("somebody");
    let why = one.and_then(|one| one.decided_why.clone());
    let message = match &why {
        Some(why) => format!("{by} denied the call: {why}"),
        None => format!("{by} denied the call"),
    };
    ToolError::new(Layer::Approval, codes::APPROVAL_DENIED, message)
        .next("do without it, or ask the person")
        .detail("why", why)
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
