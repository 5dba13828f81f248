//! Calls that need an approval: asked for, waited for, and used up, by what it is bound to or by its
//! token. Tokens are random, shown once, and kept as a hash.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::{DateTime, Utc};
use hivekeep_kernel::{ApprovalId, Layer, ToolError};
use hivekeep_runtime::log::Decision;
use sha2::{Digest, Sha256};

use super::{
    Approval, ApprovalLedger, ApprovalState, Approvals, Approver, MintedToken, WantedCall, ended,
    event, input::hexadecimal, not_found, state::Record, state_at,
};
use crate::codes;

/// Random bytes of a token: 43 characters of base64url.
const TOKEN_BYTES: usize = 32;

impl Approvals {
    /// Asks for a person's approval. One that was asked for this very call and is still pending stays
    /// the only one, unless a call `waits` for it.
    ///
    /// # Errors
    /// `approvals_full`, `journal_failed`; `approval_denied` for a call that does not wait, while a denial
    /// of this very call is fresh.
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
            // Whoever repeats a call hears what a person said to it, and asks nobody again so soon.
            if let Some(one) = ledger.denied(&call, now).filter(|_| !waits) {
                return Err(denied(Some(one)));
            }
            self.room_to_wait(ledger, call.user, false, now)?;
            let approval = asked.insert(self.new_approval(call, why, waits, now)).clone();
            let event = event("approval.requested", &approval);
            Ok(Decision::record(Record::Asked { approval: approval.into() }).event(event))
        })?;
        written.await?;
        asked.ok_or_else(|| ToolError::internal("no approval was made"))
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
                let id = checked(ledger, &hash_of(token), call, now)?;
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
        let (now, (token, hash)) = (Utc::now(), new_token()?);
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

/// A token, and the hash that is kept of it.
fn new_token() -> Result<(String, String), ToolError> {
    let mut random = [0; TOKEN_BYTES];
    getrandom::fill(&mut random).map_err(|error| ToolError::internal(error.to_string()))?;
    let token = URL_SAFE_NO_PAD.encode(random);
    let hash = hash_of(&token);
    Ok((token, hash))
}

/// Hash of a token. Looking one up by its hash tells nothing of the tokens that are there.
fn hash_of(token: &str) -> String {
    hexadecimal(&Sha256::digest(token))
}
