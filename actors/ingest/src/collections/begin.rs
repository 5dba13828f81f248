//! Beginning of an ingestion: admitted, recorded, then given its actor.

use chrono::Utc;
use hivekeep_kernel::{Layer, PoolFull, ToolError, User, fault_point};
use hivekeep_runtime::{
    log::{Decision, LogError},
    saga::SagaHandle,
};

use super::{CollectionEntry, Collections, Inner, Msg, Running, key};
use crate::{
    codes,
    ingestion::Ingestion,
    options::MAX_RUNNING,
    point::CollectionId,
    state::{IngestionPlan, Made, Record, stream},
};

/// Request to begin an ingestion.
pub(super) struct IngestRequest {
    pub(super) user: User,
    pub(super) collection: String,
    pub(super) plan: IngestionPlan,
    /// Whether the ingestion replaces one that watches.
    pub(super) end_watch: bool,
    pub(super) reply: Running,
}

impl Collections {
    pub(super) fn begin(&mut self, request: IngestRequest) {
        if self.shared.closing.is_cancelled() {
            return drop(request.reply.send(Err(ToolError::daemon_stopping())));
        }
        let found = self.all.find_name(&key(request.user, &request.collection)).map(|(id, _)| id);
        match found {
            Some(id) => self.begin_in(id, request),
            None => self.begin_new(request),
        }
    }

    /// Begins an ingestion in an existing collection.
    fn begin_in(&mut self, id: CollectionId, request: IngestRequest) {
        let room = self.room(request.user, &request.plan);
        let Some(entry) = self.all.get_mut(id) else { return };
        let state = entry.log.state();
        let run = state.as_ref().and_then(|state| state.run.as_ref());
        let free = entry.waiting.is_none() && entry.removal.is_none() && !entry.beginning;
        let refused = match (&entry.handle, run) {
            _ if state.as_ref().is_some_and(|state| state.deleted) => {
                Err(deleting(&request.collection))
            }
            // The ingestion has ended, and its actor is about to.
            (Some(_), None) if free => {
                entry.waiting = Some(Box::new(request));
                return;
            }
            (Some(handle), Some(run)) if same(&run.plan, &request.plan) => Ok(handle.clone()),
            (Some(handle), Some(run)) if run.plan.watch && request.end_watch && free => {
                let handle = handle.clone();
                if handle.view(|view| view.given_up.is_none()) {
                    entry.waiting = Some(Box::new(request));
                    return self.cancel(handle);
                }
                Ok(handle)
            }
            (Some(_), Some(run)) if run.plan.watch => Err(watched(&request.collection)),
            (None, None) if free => match room {
                Ok(()) => return self.write(id, None, request),
                Err(error) => Err(error),
            },
            _ => Err(busy(&request.collection)),
        };
        drop(request.reply.send(refused));
    }

    /// Cancels an ingestion, which is over when its actor ends.
    pub(super) fn cancel(&self, handle: SagaHandle<Ingestion>) {
        let _detached = self.me.workers.spawn(async move {
            // A journal that fails ends the daemon.
            let _ended = handle.cancel().await;
        });
    }

    /// Whether one more ingestion of a user may run. Running ones are counted in the states of collections.
    fn room(&self, user: User, plan: &IngestionPlan) -> Result<(), ToolError> {
        let options = &self.shared.options;
        let (option, most) = match plan.watch {
            true => ("ingest.max_watched", options.max_watched),
            false => (MAX_RUNNING, options.max_running),
        };
        let running = self.running(plan.watch);
        let own = running.iter().filter(|owner| **owner == user).count();
        Ok(PoolFull::check(option, most, own, running.len())?)
    }

    fn begin_new(&mut self, request: IngestRequest) {
        let (owned, most) = (self.owned(request.user), self.shared.options.max_collections);
        if owned >= most {
            let message =
                format!("you have {owned} collections, as many as `ingest.max_collections` allows");
            let error = ToolError::new(Layer::Actor, codes::TOO_MANY_COLLECTIONS, message)
                .next("ingest into a collection that is there");
            return drop(request.reply.send(Err(error)));
        }
        if let Err(error) = self.room(request.user, &request.plan) {
            return drop(request.reply.send(Err(error)));
        }
        let id = CollectionId::new();
        let made =
            Made { id, owner: request.user, name: request.collection.clone(), at: Utc::now() };
        let log = self.shared.logs.begin(stream(id));
        // The name is free: it was looked up just now.
        let _inserted =
            self.all.insert(id, CollectionEntry::new(request.user, &request.collection, log));
        self.write(id, Some(made), request);
    }

    fn write(
        &mut self,
        id: CollectionId,
        made: Option<Made>,
        IngestRequest { plan, reply, .. }: IngestRequest,
    ) {
        let Some(entry) = self.all.get_mut(id) else { return };
        entry.watches = plan.watch;
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
            // If the manager is gone, the next one reads the record from the log.
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
        // The asker may have gone; the ingestion goes on.
        drop(reply.send(answer));
    }

    /// Owner of each ingestion that runs or begins: of the watching ones, or of the others.
    fn running(&self, watch: bool) -> Vec<User> {
        let runs = |entry: &CollectionEntry| {
            let run = entry
                .log
                .view(|state| state.and_then(|state| state.run.as_ref()).map(|run| run.plan.watch));
            run == Some(watch) || (run.is_none() && entry.beginning && entry.watches == watch)
        };
        let running = self.all.iter().filter(|(_, entry)| runs(entry));
        running.map(|(_, entry)| entry.owner).collect()
    }
}

/// Whether two ingestions do the same.
fn same(one: &IngestionPlan, other: &IngestionPlan) -> bool {
    let key = |plan: &IngestionPlan| (plan.place.clone(), plan.path.clone(), plan.watch);
    // A watching ingestion recreates its collection only once, so it equals a plan without `recreate`.
    key(one) == key(other) && (one.recreate == other.recreate || (one.watch && !other.recreate))
}

fn watched(collection: &str) -> ToolError {
    let message =
        format!("the collection `{collection}` is watched: what changes is ingested by itself");
    ToolError::new(Layer::Actor, codes::INGESTION_RUNNING, message)
        .next("rag_ingest with `watch` false ends the watching, and ingests")
}

fn deleting(collection: &str) -> ToolError {
    let message = format!("the collection `{collection}` is being removed");
    ToolError::new(Layer::Actor, codes::COLLECTION_DELETING, message)
        .next("repeat the call when it is gone; rag_delete says what keeps it")
        .retryable()
}

fn busy(collection: &str) -> ToolError {
    let message = format!("another ingestion writes the collection `{collection}`");
    ToolError::new(Layer::Actor, codes::INGESTION_RUNNING, message)
        .next(
            "repeat the call when it is over; rag_collections with show_stats shows how far it is",
        )
        .retryable()
}
