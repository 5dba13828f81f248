//! One program, waited for.

use std::collections::BTreeMap;

use hivekeep_kernel::{WorkspaceId, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MAX_PLACE_CHARS, with_place};
use crate::commands::CommandService;

/// Longest time limit.
const MAX_TIMEOUT_SECS: u64 = 24 * 60 * 60;
/// Time limit of a call that names none.
const TIMEOUT_SECS: u64 = 600;
/// Most output of one stream.
const MAX_OUTPUT_BYTES: u64 = 1024 * 1024;
/// Longest command, and longest argument, in characters: a system takes 128 KiB in one piece.
pub(super) const MAX_WORD_CHARS: usize = 32_000;

/// Argument of a program.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(transparent)]
pub(crate) struct Argument(#[schemars(length(max = MAX_WORD_CHARS))] pub(crate) String);

/// Run one program in your place and wait for its end. Another exit code than 0 is a result, not an
/// error. Processes that it leaves behind are ended with it; for those use process_start.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CmdRun {
    /// Program. Without `args` also a line of a program and its arguments, quoted as in a shell. `script:NAME` is a
    /// script of your library, by its name or id.
    #[schemars(length(max = MAX_WORD_CHARS))]
    pub(crate) command: String,
    /// Arguments, passed as they are.
    #[schemars(length(max = 1000))]
    pub(crate) args: Option<Vec<Argument>>,
    /// True runs the entry point of the place's container image: `command`, which may be empty, and `args` are its
    /// arguments, without any it gets the image's. Runs in the image's working directory unless there is `cwd`.
    #[serde(default)]
    pub(crate) entrypoint: bool,
    /// Version of the script that `command` names; default the newest.
    #[schemars(range(min = 1))]
    pub(crate) script_version: Option<u64>,
    /// Folder to run in, below the place's root; default the root.
    #[schemars(length(max = 4096))]
    pub(crate) cwd: Option<String>,
    /// Environment variables for this command.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 256))]
    pub(crate) env_additions: BTreeMap<String, Argument>,
    /// Time limit in seconds, at which it is killed with all that it started; default 600.
    #[schemars(range(min = 1, max = MAX_TIMEOUT_SECS))]
    #[serde(default = "default_timeout_secs")]
    pub(crate) timeout_secs: u64,
    /// Most bytes of each stream to return, the last ones; default 65536.
    #[schemars(range(min = 1, max = MAX_OUTPUT_BYTES))]
    #[serde(default = "default_output_bytes")]
    pub(crate) max_output_bytes: u64,
    /// Name of the place, or `[USER@]WORKSPACE[:FOLDER]`. Default: the session's.
    #[schemars(length(max = MAX_PLACE_CHARS))]
    pub(crate) place: Option<String>,
}

fn default_timeout_secs() -> u64 {
    TIMEOUT_SECS
}

fn default_output_bytes() -> u64 {
    64 * 1024
}

/// How a program ended.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CmdEnd {
    /// The last that it wrote to its standard output.
    pub(crate) stdout: String,
    /// The last that it wrote to its standard error.
    pub(crate) stderr: String,
    /// Exit status; 128 and the signal's number when a signal ended it.
    pub(crate) exit_code: i32,
    /// Signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<i32>,
    /// Bytes of stdout left out before what is shown.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) stdout_omitted_bytes: u64,
    /// Bytes of stderr left out before what is shown.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) stderr_omitted_bytes: u64,
    /// Processes that it left behind, which were killed.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) killed_stragglers: u64,
    /// Wall-clock time in the guest.
    pub(crate) elapsed_ms: u64,
    /// True if a shell ran the line.
    pub(crate) shell: bool,
    /// Version of the script that ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) script_version: Option<u64>,
    /// With `entrypoint`, the line that ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) argv: Option<Vec<String>>,
    /// Place that it ran in.
    pub(crate) place: String,
    /// Workspace of the place.
    #[schemars(with = "String")]
    pub(crate) workspace_id: WorkspaceId,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

tools! { pub(crate) FAMILY: "dispatch" for service CommandService, singleton commands;
    cmd_run: CmdRun => CmdEnd = CommandService::run {
        name: "cmd.run", title: "Run a program", rate: RateClass::Exec, open_world: true,
        timeout_secs: TIMEOUT_SECS, result_budget_bytes: 16 * 1024 * 1024,
        limit_secs: |input| with_place(input, "timeout_secs", TIMEOUT_SECS),
    };
}
