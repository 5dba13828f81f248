//! Asking for a person's approval, and waiting for the answer.

use chrono::Utc;
use hivekeep_kernel::{ApprovalId, Layer, ToolError};
use hivekeep_runtime::log::Decision;

use super::{
    Approval, ApprovalState, Approvals, WantedCall, ended, event, not_found, state::Record,
};
use crate::codes;

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
