//! What a team writes of itself: one record at a time, and none once it is being cleared away.
//!
//! Whoever wants another one, or wants the team gone, waits for the one that is being written. So
//! nothing is written of a team whose stream is removed: it would be a stream without a plan.

use hivekeep_kernel::{SessionId, ToolError, fault_point};
use hivekeep_store::NewEvent;
use serde_json::{Value, json};

use super::{Msg, Reply, Team};
use crate::{
    records::{self, Record, State},
    refuse,
    shared::TeamShared,
};

/// A session that owns the members' workspaces wants the team.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Takeover {
    pub(crate) by: SessionId,
    /// Whose it was when that was looked at.
    pub(crate) from: SessionId,
}

/// What was written.
pub(crate) enum Wrote {
    Owner(SessionId),
    Ending,
}

impl Team {
    pub(super) fn own(&mut self, take: Takeover, reply: Reply<()>) {
        let Takeover { by, from } = take;
        let outcome = if self.state.owner == by {
            Ok(false)
        } else if self.unbuilt || self.building.is_some() {
            Err(refuse::creating(&self.state.plan.name))
        } else if self.ending.is_some() || self.gone.is_some() {
            // Its members are being removed in the name of whoever has it, or are gone.
            Err(refuse::destroying(&self.state.plan.name).retryable())
        } else if self.state.owner != from {
            Err(refuse::not_owner(&self.state.plan.name))
        } else {
            Ok(true)
        };
        match outcome {
            Ok(true) => {
                let event = ("team.adopted", json!({ "by": by, "from": from }));
                self.write(Record::Owned { by }, Some(event), Wrote::Owner(by), reply);
            }
            // Whoever asked may have gone.
            Ok(false) => drop(reply.send(Ok(()))),
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    pub(super) fn want_end(&mut self, reply: Reply<()>) {
        if self.unbuilt || self.building.is_some() {
            return drop(reply.send(Err(refuse::creating(&self.state.plan.name))));
        }
        // Recorded already, or about to be.
        if self.state.ending {
            return drop(reply.send(Ok(())));
        }
        self.write(Record::ending(), None, Wrote::Ending, reply);
    }

    fn write(
        &mut self,
        record: Record,
        event: Option<(&'static str, Value)>,
        what: Wrote,
        reply: Reply<()>,
    ) {
        self.writing = true;
        let write = commit(&self.seed.house, &self.state, record, event);
        let team = self.me.address.clone();
        let _detached = self.me.workers.spawn(async move {
            let outcome = write.await;
            if matches!(what, Wrote::Ending) {
                fault_point!("team.after_destroy_wanted");
            }
            // A team that is gone is followed by one that reads the journal.
            let _ = team.send(Msg::Wrote(what, outcome, reply));
        });
    }

    /// Gives what waited for a record to be written.
    pub(super) fn wrote(
        &mut self,
        what: Wrote,
        outcome: Result<(), ToolError>,
        reply: Reply<()>,
    ) -> Vec<Msg> {
        self.writing = false;
        match (&outcome, what) {
            (Ok(()), Wrote::Owner(by)) => {
                self.change(|state| state.owner = by);
                // From now on they are looked at in the new owner's name.
                if self.keeping.is_some() {
                    self.keep_cards(None);
                }
            }
            (Ok(()), Wrote::Ending) => {
                self.end_recorded = true;
                self.change(|state| state.ending = true);
            }
            (Err(_), _) => {}
        }
        // Whoever asked may have gone.
        drop(reply.send(outcome));
        std::mem::take(&mut self.held)
    }
}

/// Writes a record of a team.
pub(super) fn commit(
    house: &TeamShared,
    state: &State,
    record: Record,
    event: Option<(&'static str, Value)>,
) -> impl Future<Output = Result<(), ToolError>> + Send + 'static {
    let (journal, stream) = (house.journal.clone(), records::stream(state.plan.id));
    let events = event.map(|(kind, mut data)| {
        data["name"] = json!(state.plan.name);
        NewEvent { kind: kind.to_owned(), subject: state.plan.id.to_string(), data }
    });
    async move {
        let records = vec![records::encode(&record)];
        let written = journal.append_and_publish(&stream, records, events.into_iter().collect());
        written.await.map(drop).map_err(|error| refuse::store(&error))
    }
}
