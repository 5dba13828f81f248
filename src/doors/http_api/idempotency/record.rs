//! Event-sourced key: its request, and the outcome.

use chrono::{DateTime, Utc};
use hivekeep_kernel::User;
use hivekeep_policy::input_digest;
use hivekeep_runtime::log::Sourced;
use serde::{Deserialize, Serialize};

use crate::doors::http_api::{
    descriptor::tool_id,
    invoke::{KeptOutcome, ToolRun},
};

/// A request that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Begun {
    pub(super) user: User,
    pub(super) key: String,
    pub(super) tool: String,
    /// Digest of the input and of what else the request says.
    pub(super) request: String,
    pub(super) at: DateTime<Utc>,
}

impl Begun {
    pub(super) fn of(key: String, run: &ToolRun) -> Self {
        let mut said = run.input.clone();
        // A field of its own beside the input's: a slash is in no name of a tool's field.
        let session = run.scope.session.map(|session| session.to_string());
        let beside = serde_json::json!([session, run.scope.workspace, run.scope.agent()]);
        said.insert("/scope".to_owned(), beside);
        let request = input_digest(&said);
        let (user, tool) = (run.caller.user, tool_id(&run.tool.spec));
        Self { user, key, tool, request, at: Utc::now() }
    }
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    Begun(Begun),
    Ended { outcome: KeptOutcome, at: DateTime<Utc> },
}

/// A key as its records tell it.
#[derive(Debug, Clone)]
pub(in super::super) struct KeyState {
    pub(super) begun: Begun,
    pub(super) outcome: Option<KeptOutcome>,
}

impl Sourced for KeyState {
    const KIND: &'static str = "idempotency";
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        match record {
            Record::Begun(begun) => Ok(Self { begun, outcome: None }),
            other => Err(other),
        }
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::Ended { outcome, .. } if self.outcome.is_none() => {
                self.outcome = Some(outcome);
                Ok(())
            }
            other => Err(other),
        }
    }
}
