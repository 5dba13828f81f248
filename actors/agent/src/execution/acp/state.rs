//! Records of a program that speaks the Agent Client Protocol, and what they add up to: how far its output is read, and
//! which of its requests have no answer.

use std::collections::BTreeSet;

use hivekeep_kernel::JobId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Bytes that are kept of what it said last.
const SAID_BYTES: usize = 64 * 1024;
/// Update that is a piece of what the program says.
pub(super) const SAYS: &str = "agent_message_chunk";

/// Something that happened between the daemon and a program. Places are offsets in its output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum AcpChange {
    /// A process of it runs.
    Started { process: JobId },
    /// A session was opened or loaded, and can be loaded again or not.
    Session { id: String, loads: bool, read: u64 },
    /// The message is in its input.
    Prompted,
    /// The program told something.
    Updated { update: Value, read: u64 },
    /// The program wants something.
    Asked { method: String, about: String, from: u64, read: u64 },
    /// An answer is in its input, which says no where there is an error.
    Answered { from: u64, error: Option<String> },
}

impl AcpChange {
    /// Change as clients are shown it.
    pub(crate) fn event(&self) -> (&'static str, Value) {
        match self {
            Self::Started { process } => ("program_started", json!({ "process": process })),
            Self::Session { id, loads, .. } => {
                ("program_session", json!({ "session": id, "loads": loads }))
            }
            Self::Prompted => ("program_prompted", json!({})),
            Self::Updated { update, .. } => ("program_update", update.clone()),
            Self::Asked { method, about, from, .. } => {
                ("program_asked", json!({ "method": method, "about": about, "request": from }))
            }
            Self::Answered { from, error } => {
                ("program_told", json!({ "request": from, "error": error }))
            }
        }
    }
}

/// See the module. Of one iteration.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AcpState {
    pub(super) process: Option<JobId>,
    /// Number of processes so far.
    pub(super) starts: u32,
    pub(super) session: Option<String>,
    pub(super) loads: bool,
    prompted: bool,
    /// Place behind what is recorded.
    pub(super) read: u64,
    /// Places of requests without an answer.
    pub(super) open: BTreeSet<u64>,
    /// Number of updates and requests.
    pub(super) told: usize,
    /// End of what it said last.
    pub(super) said: String,
    /// True while it says more.
    says: bool,
}

impl AcpState {
    /// True if the process can be talked with on. Whether it has a message that is not in its input for certain is not
    /// known.
    pub(super) fn goes_on(&self) -> bool {
        self.session.is_some() && self.prompted
    }

    /// Place from which its output is to be read again.
    pub(super) fn resumes_at(&self) -> u64 {
        self.open.first().map_or(self.read, |open| self.read.min(*open))
    }

    pub(crate) fn follow(&mut self, change: &AcpChange) {
        match change {
            AcpChange::Started { process } => {
                let (starts, session, loads) = (self.starts + 1, self.session.take(), self.loads);
                let told = self.told;
                *self = Self {
                    process: Some(*process),
                    starts,
                    session,
                    loads,
                    told,
                    ..Self::default()
                };
            }
            AcpChange::Session { id, loads, read } => {
                (self.session, self.loads, self.read) = (Some(id.clone()), *loads, *read);
            }
            AcpChange::Prompted => self.prompted = true,
            AcpChange::Updated { update, read } => {
                self.told += 1;
                self.read = self.read.max(*read);
                let says = update["sessionUpdate"] == SAYS;
                if says && !self.says {
                    self.said.clear();
                }
                self.says = says;
                if says {
                    self.said += update["content"]["text"].as_str().unwrap_or_default();
                    let from = self.said.len().saturating_sub(SAID_BYTES);
                    self.said.drain(..self.said.ceil_char_boundary(from));
                }
            }
            AcpChange::Asked { from, read, .. } => {
                self.told += 1;
                self.read = self.read.max(*read);
                self.open.insert(*from);
            }
            AcpChange::Answered { from, .. } => {
                self.open.remove(from);
            }
        }
    }
}
