//! Removal of a collection: written down, then its points, then its records.
//!
//! ```text
//! asked ─▶ an ingestion that runs: cancelled, ended ─▶ deleted (durable) ─▶ points gone ─▶ stream gone ─▶ answered
//!                                                          └ cut anywhere here, the next start goes on
//! ```

use hivekeep_kernel::{Layer, ToolError, User, fault_point};
use hivekeep_runtime::log::{Decision, LogError};

use super::{Collections, Inner, Msg, Removal, key, no_collection};
use crate::{
    codes,
    point::CollectionId,
    state::{Record, stream},
};

impl Collections {
    pub(super) fn delete(&mut self, user: User, name: &str, reply: Removal) {
        let found = self.all.find_name(&key(user, name)).map(|(id, _)| id);
        let Some((id, entry)) = found.and_then(|id| Some((id, self.all.get_mut(id)?))) else {
            return drop(reply.send(Err(no_collection(name))));
        };
        if entry.beginning || entry.removal.is_some() || entry.waiting.is_some() {
            return drop(reply.send(Err(changing(name))));
        }
        match entry.handle.clone() {
            // Nothing runs after it was given up.
            Some(handle) if handle.view(|view| view.given_up.is_none()) => {
                entry.removal = Some(reply);
                self.cancel(handle);
            }
            _ => self.remove(id, Some(reply)),
        }
    }

    /// Removes one that nothing writes.
    pub(super) fn remove(&mut self, id: CollectionId, reply: Option<Removal>) {
        let Some(entry) = self.all.get_mut(id) else { return };
        entry.beginning = true;
        let written = entry.log.decide::<LogError>(|state| match state {
            Some(state) if state.deleted => Ok(Decision::nothing()),
            _ => Ok(Decision::record(Record::Deleted)),
        });
        let (shared, address) = (self.shared.clone(), self.me.address.clone());
        let _detached = self.me.workers.spawn(async move {
            let work = async {
                written?.await?;
                fault_point!("ingest.after_deleted");
                let name = id.to_string();
                shared.retried(|| shared.store.discard(&name)).await?;
                fault_point!("ingest.after_discard");
                shared.logs.forget(&stream(id)).await?;
                Ok::<_, ToolError>(())
            };
            let outcome = work.await;
            // A manager that is gone is followed by one that reads what is left.
            let _ = address.send(Msg(Inner::Removed(id, outcome, reply)));
        });
    }

    pub(super) fn removed(
        &mut self,
        id: CollectionId,
        outcome: Result<(), ToolError>,
        reply: Option<Removal>,
    ) {
        match (&outcome, self.all.get_mut(id)) {
            (Ok(()), _) => drop(self.all.remove(id)),
            (Err(error), Some(entry)) => {
                tracing::warn!(collection = %id, %error, "a collection is not removed yet");
                entry.beginning = false;
            }
            (Err(_), None) => {}
        }
        // The asker may have gone.
        drop(reply.map(|reply| reply.send(outcome)));
    }
}

fn changing(name: &str) -> ToolError {
    let message = format!("the collection `{name}` is about to change");
    ToolError::new(Layer::Actor, codes::INGESTION_RUNNING, message)
        .next("repeat the call")
        .retryable()
}
