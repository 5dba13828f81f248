//! Decisions of people on approvals, and what they are remembered for.

use std::time::Duration;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{ApprovalId, GrantId, Layer, ToolError, User};
use hivekeep_runtime::log::Decision;
use hivekeep_store::NewEvent;
use serde_json::json;

use super::{
    Approval, ApprovalAnswer, ApprovalState, Approvals, Approver, Grant, Remember, not_found,
    state::Record, state_at,
};
use crate::{ToolPattern, codes};

/// Longest time that a grant lasts.
const MAX_GRANT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Time that a grant for a session lasts at most; it ends with the session anyway.
const SESSION_GRANT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Most grants.
const MAX_GRANTS: usize = 1_000;
/// Longest reason that is kept, in characters.
const MAX_WHY: usize = 1_000;

impl Approvals {
    /// Decides on an approval that waits; or takes back one that was given and not used.
    ///
    /// # Errors
    /// `approval_not_found`, `self_approval`, `invalid_input` for a reply that does not fit the question or is
    /// to be remembered, `journal_failed`.
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
                if remember != Remember::Once {
                    let why = "a reply to a question approves nothing that could be remembered";
                    return Err(ToolError::invalid(why).next("answer it, for this once"));
                }
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
            let decided = Record::Decided {
                id,
                approved,
                by,
                why,
                at: now,
                expires_at,
                grant: grant.map(Box::new),
                reply,
            };
            Ok(Decision::record(decided).event(event))
        })?
        .await?;
        self.get(id).ok_or_else(|| not_found(id))
    }

    /// Denies all that waits of a user, calls and questions, and tells how many that were.
    ///
    /// # Errors
    /// `journal_failed`.
    pub async fn deny_all_of(
        &self,
        user: User,
        approver: &Approver,
        why: Option<String>,
    ) -> Result<usize, ToolError> {
        let no = ApprovalAnswer { approved: false, why, remember: Remember::Once, reply: None };
        let mut denied = 0;
        for one in self.list(false).into_iter().filter(|one| one.call.user == user) {
            match self.decide(one.id, approver, no.clone()).await {
                Ok(_) => denied += 1,
                // The approval was decided, or ended, meanwhile.
                Err(error) if error.is(codes::APPROVAL_NOT_FOUND) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(denied)
    }

    /// Ends a grant.
    ///
    /// # Errors
    /// `grant_not_found`, `journal_failed`.
    pub async fn revoke_grant(&self, id: GrantId, by: &Approver) -> Result<(), ToolError> {
        let unknown = || {
            ToolError::not_found(Layer::Approval, codes::GRANT_NOT_FOUND, "grant", &id.to_string())
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
