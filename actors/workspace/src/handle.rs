//! A handle on one workspace, as work beside its mailbox has it.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{Address, CallCx, SessionId, ToolError, WorkspaceId};
use hivekeep_runtime::log::Decision;
use hivekeep_store::NewEvent;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::{
    messages::{Msg, WorkMsg},
    phase::Phase,
    records::Record,
    shared::Shared,
};

/// Time for an actor to take up durable records.
const TAKEN_UP: Duration = Duration::from_secs(10);

/// Handle of a workspace for workers: records become durable first, then known to the actor. Outlives
/// incarnations of the actor.
#[derive(Clone)]
pub(crate) struct WorkspaceHandle {
    pub(crate) id: WorkspaceId,
    pub(crate) shared: Arc<Shared>,
    pub(crate) actor: Address<Msg>,
}

impl WorkspaceHandle {
    /// Commits records, with an event in the same commit, and waits until the actor has taken them up.
    /// Dropping the wait stops nothing.
    ///
    /// # Errors
    /// When the records could not be made durable; then nothing was acknowledged.
    pub(crate) async fn commit(
        &self,
        records: Vec<Record>,
        event: Option<(&str, Value)>,
    ) -> Result<(), ToolError> {
        let mut records = records.into_iter();
        let first = records.next().ok_or_else(|| ToolError::internal("a commit of nothing"))?;
        let mut decision = records.fold(Decision::record(first), Decision::and);
        if let Some((kind, data)) = event {
            let (kind, subject) = (kind.to_owned(), self.id.to_string());
            decision = decision.event(NewEvent { kind, subject, data });
        }
        let (written, outcome) = oneshot::channel();
        let (taken_up, known) = oneshot::channel();
        let actor = self.actor.clone();
        self.shared.logs.decide(self.id, decision, move |durable| {
            if durable.is_ok() {
                // An actor that is gone starts from the durable records when it comes back.
                let _gone = actor.send(WorkMsg::Recorded(taken_up).into());
            }
            // The caller may have stopped waiting.
            let _asker_gone = written.send(durable);
        })?;
        outcome.await.map_err(|_| ToolError::internal("a record without an outcome"))??;
        let _known = tokio::time::timeout(TAKEN_UP, known).await;
        Ok(())
    }

    /// Commits one record without an event.
    pub(crate) async fn note(&self, record: Record) -> Result<(), ToolError> {
        self.commit(vec![record], None).await
    }

    /// Reports the end of a change of phase.
    pub(crate) fn settle(&self, phase: Phase, reason: Option<String>) {
        // An actor that is gone derives the phase from its records when it returns.
        let _gone = self.actor.send(WorkMsg::Settled(phase, reason).into());
    }

    /// A context for work that no client asked for.
    pub(crate) fn internal_cx(&self) -> CallCx {
        let patience = Duration::from_secs(self.shared.options.boot_timeout_secs * 2);
        let span = tracing::info_span!("recover", workspace = %self.id);
        CallCx::internal(SessionId::new(), patience, Default::default(), span)
    }

    /// Publishes an event of this workspace.
    pub(crate) fn publish(&self, kind: &str, data: Value) {
        self.shared.publish(kind, self.id, data);
    }
}
