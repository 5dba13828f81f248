//! A line of shell, and a thought.

use hivekeep_kernel::{WorkspaceId, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MAX_PLACE_CHARS, cmd::MAX_WORD_CHARS, with_place};
use crate::commands::CommandService;

/// Time limit of a call that names none.
const TIMEOUT_SECS: u64 = 120;
/// Longest time limit.
const MAX_TIMEOUT_SECS: u64 = 600;

/// Run a line or script of bash in your place and wait for its end: pipes, loops and the rest of the
/// language. Each call begins anew in the place's root.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bash {
    /// The script.
    #[schemars(length(min = 1, max = MAX_WORD_CHARS))]
    pub(crate) command: String,
    /// Time limit in seconds, 1 to 600, at which it is killed with all that it started.
    #[schemars(range(min = 1, max = MAX_TIMEOUT_SECS))]
    #[serde(default = "default_timeout")]
    pub(crate) timeout: u64,
    /// Name of the place, or `[USER@]WORKSPACE[:FOLDER]`. Default: the session's.
    #[schemars(length(max = MAX_PLACE_CHARS))]
    pub(crate) place: Option<String>,
}

fn default_timeout() -> u64 {
    TIMEOUT_SECS
}

/// What a script wrote, and how it ended.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BashEnd {
    /// stdout, then after a line `STDERR:` what it wrote to stderr; of each the first 100,000 characters.
    pub(crate) output: String,
    /// True if it exited with another status than 0, was killed or reached its limit.
    pub(crate) is_error: bool,
    /// Exit status; 128 and the signal's number when a signal ended it.
    pub(crate) exit_code: i32,
    /// True if it reached its limit.
    pub(crate) timed_out: bool,
    /// True if some of its output is left out.
    pub(crate) truncated: bool,
    /// Shell that ran it: `bash`, or `sh` where there is no bash.
    pub(crate) shell: String,
    /// Wall-clock time in the guest.
    pub(crate) elapsed_ms: u64,
    /// Place that it ran in.
    pub(crate) place: String,
    /// Workspace of the place.
    #[schemars(with = "String")]
    pub(crate) workspace_id: WorkspaceId,
}

/// Write a thought down: a plan, a conclusion, what to do next. It becomes an event of the session and
/// changes nothing else.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Think {
    /// The thought.
    #[schemars(length(min = 1, max = 16_384))]
    pub(crate) thought: String,
}

/// A thought that is recorded.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Thought {
    /// `recorded`: it is on the disk.
    pub(crate) status: String,
    /// Number of the event `session.thought`.
    pub(crate) event: u64,
}

tools! { pub(crate) FAMILY: "agent" for service CommandService, singleton commands;
    bash: Bash => BashEnd = CommandService::bash {
        title: "Run a script of bash", rate: RateClass::Exec, open_world: true,
        timeout_secs: TIMEOUT_SECS, result_budget_bytes: 16 * 1024 * 1024,
        limit_secs: |input| with_place(input, "timeout", TIMEOUT_SECS),
    };
    think: Think => Thought = CommandService::think {
        title: "Write a thought down",
    };
}
