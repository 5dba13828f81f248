//! Beginning of an ingestion: admitted, written down, then given its actor.

use chrono::Utc;
use hivekeep_kernel::{Layer, ToolError, User, fault_point};
use hivekeep_runtime::log::{Decision, LogError};

use super::{
    Collections, Inner, Msg, Running,
    member::{CollectionEntry, key},
};
use crate::{
    codes,
    point::CollectionId,
    state::{IngestionPlan, Made, Record, stream},
};

/// Ingestion that somebody wants.
pub(super) struct Wish {
    pub(super) user: User,
    pub(super) collection: String,
    pub(super) plan: IngestionPlan,
    pub(super) reply: Running,
}

impl Collections {
    pub(super) fn begin(&mut self, wish: Wish) {
        if self.shared.closing.is_cancelled() {
            return drop(wish.reply.send(Err(ToolError::daemon_stopping())));
        }
        let found = self.all.find_name(&key(wish.user, &wish.collection)).map(|(id, _)| id);
        match found {
            Some(id) => self.begin_in(id, wish),
            None => self.begin_new(wish),
        }
    }

    /// In a collection that is there.
    fn begin_in(&mut self, id: CollectionId, wish: Wish) {
        let running = self.running();
        let Some(entry) = self.all.get_mut(id) else { return };
        let state = entry.log.state();
        let run = state.as_ref().and_then(|state| state.run.as_ref());
        match (&entry.handle, run) {
            // It has ended, and its actor is about to.
            (Some(_), None) if entry.waiting.is_none() && !entry.beginning => {
                entry.waiting = Some(Box::new(wish));
            }
            (Some(handle), Some(run)) if same(&run.plan, &wish.plan) => {
                drop(wish.reply.send(Ok(handle.clone())));
            }
            (None, None) if !entry.beginning => match running < self.shared.options.max_running {
                true => self.write(id, None, wish),
                false => drop(wish.reply.send(Err(too_many_running(running)))),
            },
            _ => drop(wish.reply.send(Err(busy(&wish.collection)))),
        }
    }

    fn begin_new(&mut self, wish: Wish) {
        let (owned, most) = (self.list(wish.user).len(), self.shared.options.max_collections);
        let running = self.running();
        if owned >= most {
            let message =
                format!("you have {owned} collections, as many as `ingest.max_collections` allows");
            let error = ToolError::new(Layer::Actor, codes::TOO_MANY_COLLECTIONS, message)
                .next("ingest into a collection that is there");
            return drop(wish.reply.send(Err(error)));
        }
        if running >= self.shared.options.max_running {
            return drop(wish.reply.send(Err(too_many_running(running))));
        }
        let id = CollectionId::new();
        let made = Made { id, owner: wish.user, name: wish.collection.clone(), at: Utc::now() };
        let log = self.shared.logs.begin(stream(id));
        // Nobody has the name: it was looked for just now.
        let _inserted =
            self.all.insert(id, CollectionEntry::new(key(wish.user, &wish.collection), log));
        self.write(id, Some(made), wish);
    }

    fn write(&mut self, id: CollectionId, made: Option<Made>, Wish { plan, reply, .. }: Wish) {
        let Some(entry) = self.all.get_mut(id) else { return };
        let begun = Decision::record(Record::Begun(plan.clone()));
        let decision = match made {
            Some(made) => Decision::record(Record::Made(made)).and(Record::Begun(plan)),
            None => begun,
        };
        entry.beginning = true;
        let written = entry.log.decide::<LogError>(|_| Ok(decision));
        let address = self.me.address.clone();
        let _detached = self.me.workers.spawn(async move {
            let outcome = match written {
                Ok(written) => written.await,
                Err(error) => Err(error),
            };
            fault_point!("ingest.after_plan");
            // A manager that is gone is followed by one that reads what was written.
            let _ = address.send(Msg(Inner::Begun(id, outcome.map_err(ToolError::from), reply)));
        });
    }

    pub(super) fn begun(
        &mut self,
        id: CollectionId,
        outcome: Result<(), ToolError>,
        reply: Running,
    ) {
        let Some(entry) = self.all.get_mut(id) else { return };
        entry.beginning = false;
        let answer = match outcome {
            Ok(()) => self.run(id).map_err(|fault| ToolError::internal(fault.0)),
            Err(error) => {
                if entry.log.state().is_none() {
                    self.all.remove(id);
                }
                Err(error)
            }
        };
        // Whoever asked may have gone; the ingestion goes on.
        drop(reply.send(answer));
    }

    /// Number of ingestions that run or begin.
    fn running(&self) -> usize {
        let runs = |entry: &CollectionEntry| {
            entry.beginning
                || entry.log.view(|state| state.is_some_and(|state| state.run.is_some()))
        };
        self.all.iter().filter(|(_, entry)| runs(entry)).count()
    }
}

/// Whether two ingestions do the same.
fn same(one: &IngestionPlan, other: &IngestionPlan) -> bool {
    (&one.place, &one.path, one.recreate) == (&other.place, &other.path, other.recreate)
}

fn busy(collection: &str) -> ToolError {
    let message = format!("another ingestion writes the collection `{collection}`");
    ToolError::new(Layer::Actor, codes::INGESTION_RUNNING, message)
        .next(
            "repeat the call when it is over; rag_collections with show_stats shows how far it is",
        )
        .retryable()
}

fn too_many_running(running: usize) -> ToolError {
    let message = format!("{running} ingestions run, as many as `ingest.max_running` allows");
    ToolError::new(Layer::Actor, codes::TOO_MANY_INGESTIONS, message)
        .next("repeat the call when one of them is over")
        .retryable()
}
