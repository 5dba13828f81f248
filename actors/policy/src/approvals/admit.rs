//! Admission of calls: an approval is used up, by what it is bound to or by its token.

use chrono::{DateTime, Utc};
use hivekeep_kernel::{ApprovalId, Layer, ToolError};
use hivekeep_runtime::log::Decision;

use super::{
    Approval, ApprovalLedger, ApprovalState, Approvals, Approver, MintedToken, WantedCall, ended,
    event, state::Record, state_at, token,
};
use crate::codes;

impl Approvals {
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

    /// Gives an approval, or the reply to a question, back to a call that did nothing with it but ask for
    /// more, and comes again. The one given back is another one, and the first gives none a second time. A
    /// token stays burnt.
    ///
    /// # Errors
    /// `journal_failed`.
    pub async fn give_back(&self, id: ApprovalId) -> Result<(), ToolError> {
        let until = Utc::now() + self.timeout();
        let written = self.change::<ToolError>(|ledger| {
            let used = |one: &&Approval| one.state == ApprovalState::Used && one.token.is_none();
            let Some(one) = ledger.approvals.get(&id).filter(used) else {
                return Ok(Decision::nothing());
            };
            let approval = Approval {
                id: ApprovalId::new(),
                state: ApprovalState::Approved,
                expires_at: one.expires_at.max(until),
                ..one.clone()
            };
            let event = event("approval.given_back", &approval);
            let over = Record::Ended { id, state: ApprovalState::Withdrawn, at: Utc::now() };
            Ok(Decision::record(over).and(Record::Asked { approval: approval.into() }).event(event))
        })?;
        Ok(written.await?)
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
        self.change::<ToolError>(|ledger| {
            self.room(ledger, approval.call.user, |one| {
                one.token.is_some() && state_at(one, now) == ApprovalState::Approved
            })?;
            let event = event("approval.minted", &approval);
            Ok(Decision::record(Record::Asked { approval: approval.into() }).event(event))
        })?
        .await?;
        Ok(MintedToken { token, approval: Approval { token: None, ..made } })
    }
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
