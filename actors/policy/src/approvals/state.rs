//! Approvals and grants as their records tell them: one event-sourced stream, `approval/all`.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::{ApprovalId, Door, GrantId, SessionId, User};
use hivekeep_ports::{UserQuestion, UserReply};
use hivekeep_runtime::log::Sourced;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ToolPattern;

/// Time that a finished approval is known for after its end, so that a second use is told as such.
const KEPT: TimeDelta = TimeDelta::hours(1);
/// Most finished approvals that are known.
const MAX_FINISHED: usize = 4_096;

/// Call that somebody wants to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WantedCall {
    /// The tool.
    pub tool: String,
    /// The session that calls.
    pub session: SessionId,
    /// User of the call: the session's, or an operator in another's session.
    pub user: User,
    /// The door it came through.
    pub door: Door,
    /// The agent that the session works for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The workspace that the caller says it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// SHA-256 of the input in its canonical form (RFC 8785).
    pub input_digest: String,
    /// The input as JSON, without credentials, as far as it is kept; for people only.
    pub input: String,
    /// Characters of all of it.
    #[serde(default)]
    pub input_chars: usize,
}

impl WantedCall {
    /// True for the same call: nothing that an approval is bound to differs.
    fn is(&self, other: &Self) -> bool {
        self.tool == other.tool
            && self.session == other.session
            && self.user == other.user
            && self.agent == other.agent
            && self.workspace == other.workspace
            && self.input_digest == other.input_digest
    }
}

/// Lifecycle state of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// The approval waits for a person.
    Pending,
    /// A person approved it; the call has not been made yet.
    Approved,
    /// A person denied it.
    Denied,
    /// Nobody answered in time, or the call was not made in time.
    TimedOut,
    /// The caller does not want it any more.
    Withdrawn,
    /// The call was let through, once.
    Used,
}

/// Request to a person: approve or deny a call, or answer a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// The call.
    #[serde(flatten)]
    pub call: WantedCall,
    /// Why a person is asked.
    pub why: String,
    /// When it was asked for.
    pub asked_at: DateTime<Utc>,
    /// When it is over.
    pub expires_at: DateTime<Utc>,
    /// Lifecycle state.
    pub state: ApprovalState,
    /// True while a call waits for the answer; false when the caller repeats the call.
    pub waits: bool,
    /// User and door that decided, as `uid:1000 (cli)`; for the caller's client the door is `elicitation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// When it was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<DateTime<Utc>>,
    /// The question, if it is one rather than a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<UserQuestion>,
    /// The reply to the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<UserReply>,
    /// Reason that was given with the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_why: Option<String>,
    /// SHA-256 of the token, if it was made as one. Never listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub(crate) token: Option<String>,
}

/// Remembered approval: calls that match need no person while it lasts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Grant {
    /// Its id.
    pub id: GrantId,
    /// Tools that it is for.
    pub tools: ToolPattern,
    /// The user that it is for.
    pub user: User,
    /// The only session that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// When it is over.
    pub until: DateTime<Utc>,
    /// User and door that gave it, as `decided_by` has them.
    pub by: String,
    /// When it was given.
    pub at: DateTime<Utc>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    Asked {
        approval: Box<Approval>,
    },
    Decided {
        id: ApprovalId,
        approved: bool,
        by: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
        at: DateTime<Utc>,
        /// An approved call that no one waits for is to be repeated until then.
        expires_at: DateTime<Utc>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant: Option<Box<Grant>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply: Option<UserReply>,
    },
    Ended {
        id: ApprovalId,
        state: ApprovalState,
        at: DateTime<Utc>,
    },
    GrantRevoked {
        id: GrantId,
        by: String,
        at: DateTime<Utc>,
    },
}

/// All approvals that are known, and all grants that hold.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ApprovalLedger {
    pub(crate) approvals: BTreeMap<ApprovalId, Approval>,
    pub(crate) grants: BTreeMap<GrantId, Grant>,
}

impl ApprovalLedger {
    /// An approval of this very call that was given and not used.
    pub(crate) fn approved(&self, call: &WantedCall, now: DateTime<Utc>) -> Option<&Approval> {
        let good = |one: &&Approval| {
            one.state == ApprovalState::Approved
                && one.token.is_none()
                && one.expires_at > now
                && one.call.is(call)
        };
        self.approvals.values().find(good)
    }

    /// A denial of this very call that is not over.
    pub(crate) fn denied(&self, call: &WantedCall, now: DateTime<Utc>) -> Option<&Approval> {
        let fresh = |one: &&Approval| {
            one.state == ApprovalState::Denied && one.expires_at > now && one.call.is(call)
        };
        self.approvals.values().rfind(fresh)
    }

    /// A pending approval of this very call, so that a repeated call asks nobody twice.
    pub(crate) fn asked(&self, call: &WantedCall, now: DateTime<Utc>) -> Option<&Approval> {
        let same = |one: &&Approval| {
            one.state == ApprovalState::Pending
                && !one.waits
                && one.expires_at > now
                && one.call.is(call)
        };
        self.approvals.values().find(same)
    }

    /// The approval that was made as this token.
    pub(crate) fn of_token(&self, hash: &str) -> Option<&Approval> {
        self.approvals.values().find(|one| one.token.as_deref() == Some(hash))
    }

    pub(crate) fn grant(&self, call: &WantedCall, now: DateTime<Utc>) -> Option<&Grant> {
        self.grants.values().find(|grant| {
            grant.until > now
                && grant.user == call.user
                && grant.session.is_none_or(|session| session == call.session)
                && grant.tools.matches(&call.tool)
        })
    }

    pub(crate) fn same_call(&self, id: ApprovalId, call: &WantedCall) -> bool {
        self.approvals.get(&id).is_some_and(|one| one.call.is(call))
    }

    /// Forgets what is long over, by the times of records alone, so that a replay does the same.
    fn prune(&mut self, now: DateTime<Utc>) {
        self.grants.retain(|_, grant| grant.until > now);
        self.approvals.retain(|_, one| one.expires_at + KEPT > now);
        let live = |state| matches!(state, ApprovalState::Pending | ApprovalState::Approved);
        let finished: Vec<_> =
            self.approvals.values().filter(|one| !live(one.state)).map(|one| one.id).collect();
        for id in finished.iter().take(finished.len().saturating_sub(MAX_FINISHED)) {
            self.approvals.remove(id);
        }
    }
}

impl Sourced for ApprovalLedger {
    const KIND: &'static str = "approval";
    const FOLD_EVERY: usize = 512;
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        let mut ledger = Self::default();
        ledger.apply(record)?;
        Ok(ledger)
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::Asked { approval } => {
                self.prune(approval.asked_at);
                self.approvals.insert(approval.id, *approval);
            }
            Record::Decided { id, approved, by, why, at, expires_at, grant, reply } => {
                if let Some(one) = self.approvals.get_mut(&id) {
                    one.state =
                        if approved { ApprovalState::Approved } else { ApprovalState::Denied };
                    (one.decided_by, one.decided_why, one.decided_at) = (Some(by), why, Some(at));
                    (one.expires_at, one.reply) = (expires_at, reply);
                    one.shorten();
                }
                self.grants.extend(grant.map(|grant| (grant.id, *grant)));
                self.prune(at);
            }
            Record::Ended { id, state, .. } => {
                if let Some(one) = self.approvals.get_mut(&id) {
                    one.state = state;
                    one.shorten();
                }
            }
            Record::GrantRevoked { id, .. } => drop(self.grants.remove(&id)),
        }
        Ok(())
    }

    fn fold(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(snapshot).map_err(|error| error.to_string())
    }
}
