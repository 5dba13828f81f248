//! What is written of a desk.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use hivekeep_kernel::{Fault, MessageId, ToolError, fault_point};
use serde_json::{Value, json};

use super::{
    Reply, TaskQueue,
    ledger::{Kept, Outcome, Stand, Task},
    records::{self, Record},
};
use crate::pen;

/// Something to be written.
pub(crate) enum Entry {
    Assigned(Arc<Task>, Reply<Stand>),
    /// Nothing; answered in its turn.
    Repeat(Stand, Reply<Stand>),
    Ended(Arc<Kept>),
    Taken(Vec<MessageId>, Option<Reply<usize>>),
}

impl pen::Entry for Entry {
    fn record(&self) -> Option<Vec<u8>> {
        let record = match self {
            Self::Assigned(task, _) => Record::Assigned(Cow::Borrowed(task)),
            Self::Ended(kept) => Record::Ended(Cow::Borrowed(kept)),
            Self::Taken(ids, _) if !ids.is_empty() => {
                Record::Taken(ids.iter().copied().collect::<BTreeSet<_>>())
            }
            Self::Repeat(..) | Self::Taken(..) => return None,
        };
        Some(records::encode(&record))
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

impl TaskQueue {
    pub(super) fn write(&mut self, entry: Entry) {
        self.pen.write(&self.me, entry);
    }

    pub(super) fn written(&mut self, news: pen::News<Entry>) -> Result<(), Fault> {
        let Some((entries, upto)) = self.pen.hear(news)? else { return Ok(()) };
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
        // What was taken and is not written yet is remembered as such; that it was is true.
        self.pen.go_on(&self.me, upto, || {
            let durable = self.ledger.durable();
            move || records::snapshot(&durable)
        });
        self.serve();
        self.go_on();
        Ok(())
    }
}
