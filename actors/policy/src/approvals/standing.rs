//! Questions of runs: approvals that stand as long as their run waits, and are settled by it.

use std::time::Duration;

use async_trait::async_trait;
use chrono::Utc;
use hivekeep_kernel::{ApprovalId, Door, ToolError};
use hivekeep_ports::{QuestionState, StandingQuestion, StandingQuestions};
use hivekeep_runtime::log::Decision;
use serde_json::{Map, json};
use tokio::sync::watch;

use super::{
    ApprovalState, Approvals, WantedCall, ended,
    input::{input_digest, input_text},
    state_at,
};

/// Time after which one that nobody answers is over. Whoever asked settles it before.
const LASTS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

#[async_trait]
impl StandingQuestions for Approvals {
    async fn put(&self, question: StandingQuestion) -> Result<ApprovalId, ToolError> {
        let StandingQuestion { session, user, tool, name, question } = question;
        let about = Map::from_iter([
            ("question".to_owned(), json!(question)),
            ("for".to_owned(), name.into()),
        ]);
        let (input, input_chars) = input_text(&about);
        let call = WantedCall {
            tool: tool.to_owned(),
            session,
            user,
            door: Door::Internal,
            agent: None,
            workspace: None,
            input_digest: input_digest(&about),
            input,
            input_chars,
        };
        let refused = |one| self.0.log.view(|ledger| Some(ledger?.denied(one, Utc::now())?.id));
        match refused(&call) {
            Some(id) => Ok(id),
            None => self.question(call, question, LASTS).await.map(|asked| asked.id),
        }
    }

    fn state(&self, id: ApprovalId) -> QuestionState {
        let Some(one) = self.get(id).filter(|one| one.question.is_some()) else {
            return QuestionState::Gone;
        };
        let by = one.decided_by.unwrap_or_default();
        match one.state {
            ApprovalState::Pending => QuestionState::Waits,
            ApprovalState::Approved => {
                QuestionState::Replied { by, reply: one.reply.unwrap_or_default() }
            }
            ApprovalState::Denied => QuestionState::Refused { by, why: one.decided_why },
            ApprovalState::TimedOut | ApprovalState::Withdrawn | ApprovalState::Used => {
                QuestionState::Gone
            }
        }
    }

    fn standing(&self, tool: &str) -> Vec<ApprovalId> {
        let all = self.list(true).into_iter();
        let stands = |one: &super::Approval| {
            one.question.is_some() && one.call.tool == tool && is_open(one.state)
        };
        all.filter(stands).map(|one| one.id).collect()
    }

    async fn settle(&self, id: ApprovalId) -> Result<(), ToolError> {
        let written = self.change::<ToolError>(|ledger| {
            let now = Utc::now();
            let one = ledger.approvals.get(&id).filter(|one| is_open(state_at(one, now)));
            Ok(match one.map(|one| one.state) {
                None => Decision::nothing(),
                Some(ApprovalState::Pending) => ended(id, ApprovalState::Withdrawn),
                Some(_) => ended(id, ApprovalState::Used),
            })
        })?;
        Ok(written.await?)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        Self::changes(self)
    }
}

fn is_open(state: ApprovalState) -> bool {
    matches!(state, ApprovalState::Pending | ApprovalState::Approved | ApprovalState::Denied)
}
