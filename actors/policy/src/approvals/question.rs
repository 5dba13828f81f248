//! Questions to people: approvals that carry a reply, and outlive the call that asked.

use std::time::Duration;

use chrono::Utc;
use hivekeep_kernel::ToolError;
use hivekeep_ports::{ClientPrompt, UserOutcome, UserQuestion, UserReply};
use hivekeep_runtime::log::Decision;

use super::{
    Approval, ApprovalAnswer, ApprovalState, Approvals, Remember, WantedCall, ended, event,
    state::Record,
};

/// Time that a question waits for a person.
const LASTS: Duration = Duration::from_secs(24 * 3600);

impl Approvals {
    /// Asks a question and waits for the reply, at most so long. Asked again, a question that waits is
    /// the same one, and one that was answered meanwhile is answered at once; a reply is given once.
    ///
    /// # Errors
    /// `approvals_full`, `journal_failed`.
    pub async fn ask_question(
        &self,
        call: WantedCall,
        question: UserQuestion,
        limit: Duration,
        client: Option<&dyn ClientPrompt>,
    ) -> Result<UserOutcome, ToolError> {
        let mut changes = self.changes();
        let asked = self.question(call, question.clone(), LASTS).await?;
        if let Some(client) = client.filter(|client| client.repeats()) {
            if self.get(asked.id).is_some_and(|one| one.state == ApprovalState::Pending) {
                // The reply comes with the next call, if it did not come with this one.
                let Some(reply) = client.ask(asked.id, &question).await else {
                    return Ok(UserOutcome::Unanswered(asked.id));
                };
                self.decide_at_client(asked.id, replied(reply)).await?;
            }
            let reply = self.take_reply(&asked).await?;
            client.used(asked.id);
            return Ok(UserOutcome::Replied(reply));
        }
        let waiting = async {
            loop {
                changes.borrow_and_update();
                let pending =
                    self.get(asked.id).is_some_and(|one| one.state == ApprovalState::Pending);
                if !pending {
                    return self.take_reply(&asked).await.map(UserOutcome::Replied);
                }
                if changes.changed().await.is_err() {
                    return Ok(UserOutcome::Unanswered(asked.id));
                }
            }
        };
        tokio::select! {
            outcome = waiting => outcome,
            never = self.reply_of(client, &question, &asked) => never,
            () = tokio::time::sleep(limit) => Ok(UserOutcome::Unanswered(asked.id)),
        }
    }

    /// The question as it waits, or was answered; a new one if there is none.
    pub(super) async fn question(
        &self,
        call: WantedCall,
        question: UserQuestion,
        lasts: Duration,
    ) -> Result<Approval, ToolError> {
        let now = Utc::now();
        let mut asked = None;
        let written = self.change::<ToolError>(|ledger| {
            let known = ledger.approved(&call, now).or_else(|| ledger.asked(&call, now));
            if let Some(known) = known {
                asked = Some(known.clone());
                return Ok(Decision::nothing());
            }
            self.room_to_wait(ledger, call.user, true, now)?;
            let new = Approval {
                expires_at: now + lasts,
                question: Some(question.clone()),
                ..self.new_approval(call, question.question, false, now)
            };
            let event = event("approval.requested", &new);
            let approval = asked.insert(new).clone();
            Ok(Decision::record(Record::Asked { approval: approval.into() }).event(event))
        })?;
        written.await?;
        asked.ok_or_else(|| ToolError::internal("no question was asked"))
    }

    /// The reply, which is used up by this. A question that was skipped, or is over, has an empty one.
    async fn take_reply(&self, asked: &Approval) -> Result<UserReply, ToolError> {
        let mut reply = UserReply::default();
        let written = self.change::<ToolError>(|ledger| {
            let one = ledger.approvals.get(&asked.id);
            let Some(one) = one.filter(|one| one.state == ApprovalState::Approved) else {
                return Ok(Decision::nothing());
            };
            reply = one.reply.clone().unwrap_or_default();
            Ok(ended(asked.id, ApprovalState::Used))
        })?;
        written.await?;
        Ok(reply)
    }

    /// Passes on what the person at the client replies.
    async fn reply_of<T>(
        &self,
        client: Option<&dyn ClientPrompt>,
        question: &UserQuestion,
        asked: &Approval,
    ) -> T {
        if let Some(client) = client
            && let Some(reply) = client.ask(asked.id, question).await
            && let Err(error) = self.decide_at_client(asked.id, replied(reply)).await
        {
            tracing::info!(%error, question = %asked.id, "the client's reply came to nothing");
        }
        std::future::pending().await
    }
}

fn replied(reply: UserReply) -> ApprovalAnswer {
    ApprovalAnswer { approved: true, why: None, remember: Remember::Once, reply: Some(reply) }
}
