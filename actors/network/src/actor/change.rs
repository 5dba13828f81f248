//! Change of the plan, from the decision to the answer.

use hivekeep_kernel::{ToolError, WorkspaceId};
use hivekeep_store::NewEvent;
use serde_json::json;
use tokio::sync::oneshot;

use super::convert;
use crate::plan::NetworkMember;

/// Time at which the caller of a change is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// When the change is in the journal.
    Durable,
    /// When the kernel has applied the change. A change that the kernel refuses is undone.
    Applied,
}

type Answer = Box<dyn FnOnce(Result<(), ToolError>) + Send + Sync>;

/// A change that was decided.
pub(super) struct Change {
    pub(super) id: WorkspaceId,
    pub(super) before: Option<NetworkMember>,
    pub(super) after: Option<NetworkMember>,
    pub(super) when: When,
    answer: Option<Answer>,
}

impl Change {
    /// Change that nobody waits for.
    pub(super) fn quiet(
        id: WorkspaceId,
        before: Option<NetworkMember>,
        after: Option<NetworkMember>,
    ) -> Self {
        Self { id, before, after, when: When::Durable, answer: None }
    }

    /// Answers with a value when it is time.
    pub(super) fn answering<T: Send + Sync + 'static>(
        mut self,
        when: When,
        reply: oneshot::Sender<Result<T, ToolError>>,
        value: T,
    ) -> Self {
        self.when = when;
        self.answer = Some(Box::new(move |outcome| {
            // Whoever asked may have gone; the change holds all the same.
            let _ = reply.send(outcome.map(|()| value));
        }));
        self
    }

    pub(super) fn done(self, outcome: Result<(), ToolError>) {
        if let Some(answer) = self.answer {
            answer(outcome);
        }
    }

    /// True when anything changes.
    pub(super) fn is_any(&self) -> bool {
        self.before != self.after
    }

    /// The change back, which answers with the error that made it necessary.
    pub(super) fn undone(self, error: ToolError) -> Self {
        let Self { id, before, after, answer, .. } = self;
        let answer = answer.map(|answer| -> Answer {
            // If this is not written either, that is what is to be said.
            Box::new(move |outcome| answer(outcome.and(Err(error))))
        });
        Self { id, before: after, after: before, when: When::Durable, answer }
    }

    /// Event about the change. A workspace's actor itself reports that the workspace came or went.
    pub(super) fn event(&self) -> Option<NewEvent> {
        let (Some(before), Some(after)) = (&self.before, &self.after) else { return None };
        let (kind, data) = if before.policy != after.policy {
            ("network.policy_changed", json!({ "policy": convert::policy(&after.policy) }))
        } else if before.forwards != after.forwards {
            let all: Vec<_> = after.forwards.iter().map(convert::forward).collect();
            ("network.forwards_changed", json!({ "forwards": all }))
        } else if before.lease == after.lease {
            return None;
        } else {
            ("network.moved", json!({ "from": before.lease.address, "to": after.lease.address }))
        };
        Some(NewEvent { kind: kind.to_owned(), subject: self.id.to_string(), data })
    }
}
