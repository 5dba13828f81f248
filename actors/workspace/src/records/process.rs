//! Processes, as records have them.

use serde::{Deserialize, Serialize};

/// Process that was to be started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessEntry {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Working directory.
    pub workdir: String,
    /// Name of the place that it was started in.
    pub place: String,
    /// Whether it has a terminal.
    pub terminal: bool,
    /// When, Unix milliseconds.
    pub started_unix_ms: u64,
    /// Its first process in the guest; 0 before that is known.
    #[serde(default)]
    pub pid: u32,
    /// How it ended; means nothing while it is among the jobs that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<ProcessExit>,
}

/// End of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessExit {
    /// Exit status, if it exited.
    pub code: Option<i32>,
    /// Signal, if one ended it.
    pub signal: Option<i32>,
    /// When, Unix milliseconds of the guest.
    pub at_unix_ms: Option<u64>,
}
