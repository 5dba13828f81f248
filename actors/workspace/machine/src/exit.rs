//! Value of a machine's end: how its process went, when, and with which last words.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// End of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum ExitHow {
    /// By itself.
    Exited {
        /// The exit code.
        code: i32,
    },
    /// By a signal.
    Signaled {
        /// The signal's number.
        signal: i32,
    },
    /// The process is gone, but was not a child of this daemon, so the kernel reports its end to
    /// nobody.
    Unknown,
}

impl fmt::Display for ExitHow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code } => write!(f, "exit code {code}"),
            Self::Signaled { signal } => write!(f, "signal {signal}"),
            Self::Unknown => f.write_str("unknown status"),
        }
    }
}

/// The end of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineExit {
    /// The kind of end.
    pub how: ExitHow,
    /// Time at which the end was noticed.
    pub at: DateTime<Utc>,
    /// The end of its stderr, at most 4 KiB.
    pub stderr_tail: String,
}
