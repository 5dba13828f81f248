//! What is written of a desk, one write at a time; what comes meanwhile goes together.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use hivekeep_kernel::{Fault, MessageId, ToolError, fault_point};
use hivekeep_store::{NewEvent, Seq};
use serde_json::{Value, json};

use super::{
    Desk, Msg, Reply,
    ledger::{Kept, Outcome, Stand, Task},
    records::{self, Record},
};
use crate::refuse;

/// Records that go together; with the longest contents they are 16 MiB.
const BATCH: usize = 64;
/// Records after which a stream is folded.
const FOLD_AFTER: usize = 512;

/// Something to be written.
pub(crate) enum Entry {
    Assigned(Arc<Task>, Reply<Stand>),
    /// Nothing; answered in its turn.
    Repeat(Stand, Reply<Stand>),
    Ended(Arc<Kept>),
    Taken(Vec<MessageId>, Option<Reply<usize>>),
}

impl Entry {
    fn record(&self) -> Option<Record<'_>> {
        match self {
            Self::Assigned(task, _) => Some(Record::Assigned(Cow::Borrowed(task))),
            Self::Ended(kept) => Some(Record::Ended(Cow::Borrowed(kept))),
            Self::Taken(ids, _) if !ids.is_empty() => {
                Some(Record::Taken(ids.iter().copied().collect::<BTreeSet<_>>()))
            }
            Self::Repeat(..) | Self::Taken(..) => None,
        }
    }

    fn event(&self) -> Option<(&'static str, Value)> {
        match self {
            Self::Assigned(task, _) => Some((
                "task.assigned",
                json!({
                    "task_id": task.work.task_id, "message_id": task.message, "from": task.from,
                }),
            )),
            Self::Ended(kept) => Some(("task.ended", ended(kept))),
            Self::Taken(ids, _) if !ids.is_empty() => {
                Some(("task.taken", json!({ "message_ids": ids })))
            }
            Self::Repeat(..) | Self::Taken(..) => None,
        }
    }

    fn fail(self, error: ToolError) {
        match self {
            Self::Assigned(_, reply) | Self::Repeat(_, reply) => drop(reply.send(Err(error))),
            Self::Taken(_, Some(reply)) => drop(reply.send(Err(error))),
            Self::Ended(_) | Self::Taken(_, None) => {}
        }
    }
}

fn ended(kept: &Kept) -> Value {
    let mut data = json!({
        "task_id": kept.task_id, "message_id": kept.message, "outcome": kept.outcome.word(),
        "elapsed_ms": kept.elapsed_ms,
    });
    match &kept.outcome {
        Outcome::Exited { exit_code } => data["exit_code"] = json!(exit_code),
        Outcome::Signalled { signal } => data["signal"] = json!(signal),
        Outcome::Invalid { code, .. } => data["code"] = json!(code),
        _ => {}
    }
    data
}

impl Desk {
    pub(super) fn write(&mut self, entry: Entry) {
        self.unwritten.push_back(entry);
        self.rest();
    }

    /// Writes what waits, unless something is being written.
    pub(super) fn rest(&mut self) {
        if self.writing {
            return;
        }
        if self.unwritten.is_empty() {
            // Who waited for the end may have gone.
            for done in self.closing.drain(..) {
                let _ = done.send(());
            }
            return;
        }
        self.writing = true;
        let batch = self.unwritten.len().min(BATCH);
        let entries: Vec<_> = self.unwritten.drain(..batch).collect();
        let records: Vec<_> =
            entries.iter().filter_map(Entry::record).map(|it| records::encode(&it)).collect();
        let events = entries.iter().filter_map(Entry::event);
        let events: Vec<_> = events.map(|(kind, data)| self.event(kind, data)).collect();
        let (journal, stream) = (self.seed.house.journal.clone(), self.stream.clone());
        let desk = self.me.address.clone();
        self.records += records.len();
        let _detached = self.me.workers.spawn(async move {
            let outcome = match records.is_empty() {
                true => Ok(Seq::ZERO),
                false => journal.append_and_publish(&stream, records, events).await,
            };
            // A desk that is gone is followed by one that reads the journal.
            let _ = desk.send(Msg::Written(entries, outcome));
        });
    }

    /// After a failure only the journal knows what is durable, so the next incarnation asks it.
    pub(super) fn written(
        &mut self,
        entries: Vec<Entry>,
        outcome: Result<Seq, hivekeep_store::Error>,
    ) -> Result<(), Fault> {
        let upto = match outcome {
            Ok(upto) => upto,
            Err(error) => {
                let waiting = entries.into_iter().chain(std::mem::take(&mut self.unwritten));
                waiting.for_each(|entry| entry.fail(refuse::store(&error)));
                return Err(Fault::new(format!("the tasks could not be recorded: {error}")));
            }
        };
        for entry in entries {
            match entry {
                Entry::Assigned(task, reply) => {
                    fault_point!("task.after_assigned");
                    self.ledger.arrive(&task.work.task_id);
                    drop(reply.send(Ok(Stand::New)));
                }
                Entry::Repeat(stand, reply) => drop(reply.send(Ok(stand))),
                Entry::Ended(kept) => {
                    fault_point!("task.after_kept");
                    self.lanes.owe(kept.task_id.clone());
                    self.ledger.keep(kept);
                }
                Entry::Taken(ids, Some(reply)) => drop(reply.send(Ok(ids.len()))),
                Entry::Taken(_, None) => {}
            }
        }
        if self.records >= FOLD_AFTER && upto > Seq::ZERO {
            self.fold(upto);
        } else {
            self.writing = false;
        }
        self.serve();
        self.rest();
        self.go_on();
        Ok(())
    }

    /// What was taken and is not written yet is remembered as such; that it was is true.
    fn fold(&mut self, upto: Seq) {
        self.records = 0;
        let bytes = records::snapshot(&self.ledger);
        let (journal, stream) = (self.seed.house.journal.clone(), self.stream.clone());
        let desk = self.me.address.clone();
        let _detached = self.me.workers.spawn(async move {
            if let Err(error) = journal.snapshot(&stream, upto, bytes).await {
                tracing::warn!(%stream, %error, "no snapshot was made; the stream stays long");
            }
            let _ = desk.send(Msg::Folded);
        });
    }

    /// An event of this member's.
    pub(super) fn event(&self, kind: &str, mut data: Value) -> NewEvent {
        data["member"] = json!(self.seed.member);
        NewEvent { kind: kind.to_owned(), subject: self.seed.team.to_string(), data }
    }
}
