//! What is recorded of a counter, in its stream `counter/NAME`.

use hivekeep_kernel::SessionId;
use hivekeep_runtime::log::Sourced;
use serde::{Deserialize, Serialize};

/// A number with an owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counter {
    pub(crate) owner: SessionId,
    pub(crate) value: i64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    Created { owner: SessionId },
    Added { amount: i64 },
}

impl Sourced for Counter {
    const KIND: &'static str = "counter";
    const FOLD_EVERY: usize = 64;
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        match record {
            Record::Created { owner } => Ok(Self { owner, value: 0 }),
            other => Err(other),
        }
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::Added { amount } => {
                self.value = self.value.checked_add(amount).ok_or(Record::Added { amount })?;
                Ok(())
            }
            other => Err(other),
        }
    }

    fn fold(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(snapshot).map_err(|error| error.to_string())
    }
}
