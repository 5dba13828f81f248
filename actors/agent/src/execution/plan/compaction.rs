//! Setting of an execution for long conversations.

use hivekeep_manifest::agent::AgentCompaction;
use serde::{Deserialize, Serialize};

use crate::Options;

/// Turns that stay where nobody says how many.
const KEEP_TURNS: u64 = 4;

/// Setting of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CompactionPlan {
    pub(crate) tokens: u64,
    pub(crate) keep_turns: usize,
}

impl CompactionPlan {
    /// The manifest's setting, and else the operator's.
    pub(crate) fn of(manifest: Option<AgentCompaction>, options: &Options) -> Option<Self> {
        let (tokens, keep_turns) = match manifest {
            Some(own) => (own.tokens, own.keep_turns.unwrap_or(KEEP_TURNS)),
            None => (options.compaction.tokens, options.compaction.keep_turns),
        };
        let keep_turns = usize::try_from(keep_turns).unwrap_or(usize::MAX).max(1);
        (tokens > 0).then_some(Self { tokens, keep_turns })
    }
}
