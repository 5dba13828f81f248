//! What is written of a team, in its stream `team/<team id>`.
//!
//! ```text
//! Planned ─► Ready ─► Ending ─► (forgotten)
//!    └── not made, or found without Ready at a start ─► Ending ─► (forgotten)
//! ```

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{SessionId, TeamId, WorkspaceId};
use hivekeep_store::{Journal, StreamId};
use serde::{Deserialize, Serialize};

use crate::directory::Entry;

const KIND: &str = "team";

/// All that a team is going to be, before anything of it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) id: TeamId,
    pub(crate) name: String,
    /// Who made it.
    pub(crate) owner: SessionId,
    pub(crate) parent: Option<TeamId>,
    /// The parent's name; absent of teams planned before it was recorded.
    #[serde(default)]
    pub(crate) parent_name: Option<String>,
    pub(crate) max_vms: u32,
    pub(crate) at: DateTime<Utc>,
    pub(crate) members: Vec<Member>,
    /// The snapshot that members are forks of; none when they are made from the default image.
    pub(crate) stem: Option<GoldenSnapshot>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// Unique in the team.
    pub(crate) name: String,
    pub(crate) role: String,
    pub(crate) skills: Vec<String>,
    pub(crate) description: Option<String>,
    /// Of its workspace.
    pub(crate) workspace: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GoldenSnapshot {
    /// Id or name of a workspace.
    pub(crate) golden: String,
    pub(crate) snapshot: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    /// It is going to be made.
    Planned(Box<Plan>),
    /// All members are there, in the plan's order.
    Ready { workspaces: Vec<WorkspaceId> },
    /// Another session operates it.
    Owned { by: SessionId },
    /// It is going to be removed.
    Ending {
        /// Numbers of members of which nothing was made, when it was not ready: whatever has the
        /// name of their workspace is another's.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        unmade: BTreeSet<usize>,
    },
}

impl Record {
    /// Of a team that is whole.
    pub(crate) fn ending() -> Self {
        Self::Ending { unmade: BTreeSet::new() }
    }
}

/// What the records add up to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) plan: Plan,
    pub(crate) owner: SessionId,
    pub(crate) workspaces: Option<Vec<WorkspaceId>>,
    pub(crate) ending: bool,
    /// Members that have no workspace, by number; as far as it is known of a plan that is undone.
    pub(crate) unmade: BTreeSet<usize>,
}

impl State {
    pub(crate) fn new(plan: Plan) -> Self {
        Self { owner: plan.owner, plan, workspaces: None, ending: false, unmade: BTreeSet::new() }
    }

    /// The word for it.
    pub(crate) fn word(&self) -> &'static str {
        match (self.ending, &self.workspaces) {
            (true, _) => "destroying",
            (false, Some(_)) => "ready",
            (false, None) => "creating",
        }
    }

    /// The team as the directory knows it.
    pub(crate) fn entry(&self) -> Entry {
        let Plan { name, parent, max_vms, members, at, .. } = &self.plan;
        Entry {
            name: name.clone(),
            parent: *parent,
            max_vms: *max_vms,
            members: u32::try_from(members.len()).unwrap_or(u32::MAX),
            closing: self.ending,
            at: *at,
        }
    }
}

pub(crate) fn stream(id: TeamId) -> StreamId {
    StreamId::new(KIND, &id.to_string()).expect("an id has only letters, digits and `_`")
}

pub(crate) fn encode(record: &Record) -> Vec<u8> {
    serde_json::to_vec(record).expect("plain data")
}

/// What the journal has of teams.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) teams: Vec<State>,
    /// Streams without a plan, of which nothing can be made.
    pub(crate) debris: Vec<StreamId>,
}

/// All teams that are recorded. Blocks.
///
/// # Errors
/// In words, when a stream cannot be read.
pub(crate) fn load_all(journal: &Journal) -> Result<Recorded, String> {
    let streams = journal.streams(&format!("{KIND}/")).map_err(|error| error.to_string())?;
    let mut all = Recorded::default();
    for stream in streams {
        match load(journal, &stream)? {
            Some(team) => all.teams.push(team),
            None => all.debris.push(stream),
        }
    }
    Ok(all)
}

/// One team; `None` when it is forgotten, or was never planned. Blocks.
///
/// # Errors
/// In words, when its stream cannot be read.
pub(crate) fn load(journal: &Journal, stream: &StreamId) -> Result<Option<State>, String> {
    let unreadable = |what: String| format!("the stream {stream}: {what}");
    let replay = journal.replay(stream).map_err(|error| unreadable(error.to_string()))?;
    let read = |(_, bytes): &(_, Vec<u8>)| serde_json::from_slice(bytes);
    let records: Result<Vec<Record>, _> = replay.records.iter().map(read).collect();
    let records = records.map_err(|error| unreadable(error.to_string()))?;
    if !records.iter().any(|record| matches!(record, Record::Planned(_))) {
        return Ok(None);
    }
    let mut state: Option<State> = None;
    for record in records {
        match (&mut state, record) {
            (None, Record::Planned(plan)) => state = Some(State::new(*plan)),
            (Some(state), Record::Ready { workspaces })
                if workspaces.len() == state.plan.members.len() =>
            {
                state.workspaces = Some(workspaces);
            }
            (Some(state), Record::Owned { by }) => state.owner = by,
            (Some(state), Record::Ending { unmade }) => {
                state.ending = true;
                state.unmade.extend(unmade);
            }
            (_, record) => return Err(unreadable(format!("{record:?} does not follow"))),
        }
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_was_recorded_without_what_was_not_made_is_read() {
        let read = serde_json::from_str(r#"{"record":"ending"}"#).expect("read");
        assert!(matches!(read, Record::Ending { unmade } if unmade.is_empty()));
        assert_eq!(encode(&Record::ending()), br#"{"record":"ending"}"#);
    }
}
