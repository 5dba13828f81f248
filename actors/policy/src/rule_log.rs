//! Rules that were added at run time: one event-sourced stream, `policy/rules`.

use chrono::{DateTime, Utc};
use hivekeep_runtime::log::{Sourced, stream};
use hivekeep_store::StreamId;
use serde::{Deserialize, Serialize};

use crate::RuleOptions;

/// Most rules that can be added.
pub(crate) const MAX_RULES: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum RuleRecord {
    Added { rule: RuleOptions, by: String, at: DateTime<Utc> },
    Removed { name: String, by: String, at: DateTime<Utc> },
}

/// Added rules, the newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct AddedRules(pub(crate) Vec<RuleOptions>);

impl Sourced for AddedRules {
    const KIND: &'static str = "policy";
    const FOLD_EVERY: usize = 256;
    type Record = RuleRecord;

    fn begin(record: RuleRecord) -> Result<Self, RuleRecord> {
        let mut rules = Self::default();
        rules.apply(record)?;
        Ok(rules)
    }

    fn apply(&mut self, record: RuleRecord) -> Result<(), RuleRecord> {
        match record {
            RuleRecord::Added { rule, .. } => self.0.insert(0, rule),
            RuleRecord::Removed { name, .. } => self.0.retain(|rule| rule.name != name),
        }
        Ok(())
    }

    fn fold(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(snapshot).map_err(|error| error.to_string())
    }
}

pub(crate) fn rules_stream() -> StreamId {
    stream::<AddedRules>("rules").expect("a plain name")
}
