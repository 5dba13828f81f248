//! The records of a team, in its stream `team/<team id>`.
//!
//! ```text
//! Planned ─► Ready ─► Ending ─► (forgotten)
//!    └── not made, or found without Ready at a start ─► Ending ─► (forgotten)
//! ```

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{SessionId, TeamId, ToolError, User, WorkspaceId};
use hivekeep_runtime::log::{self, Sourced};
use hivekeep_store::{NewEvent, StreamId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{directory::TeamEntry, refuse};

/// A team as it is going to be, before anything of it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) id: TeamId,
    pub(crate) name: String,
    /// The session that made the team.
    pub(crate) owner: SessionId,
    /// The user of that session; not there in plans of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<User>,
    pub(crate) parent: Option<TeamId>,
    /// The parent's name; absent of teams planned before it was recorded.
    #[serde(default)]
    pub(crate) parent_name: Option<String>,
    pub(crate) max_vms: u32,
    pub(crate) at: DateTime<Utc>,
    pub(crate) members: Vec<MemberPlan>,
    /// The snapshot that members are forks of; none when they are made from the default image.
    #[serde(rename = "stem")]
    pub(crate) source: Option<GoldenSnapshot>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberPlan {
    /// Unique in the team.
    pub(crate) name: String,
    pub(crate) role: String,
    pub(crate) skills: Vec<String>,
    pub(crate) description: Option<String>,
    /// Name of the member's workspace.
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
    /// The team is going to be made.
    Planned(Box<Plan>),
    /// All members are there, in the plan's order.
    Ready { workspaces: Vec<WorkspaceId> },
    /// Another session operates it.
    Owned {
        by: SessionId,
        /// The user of that session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<User>,
    },
    /// The team is going to be removed.
    Ending {
        /// Numbers of members of which nothing was made, when it was not ready: whatever has the
        /// name of their workspace is another's.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        unmade: BTreeSet<usize>,
    },
}

/// The state of a team.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) plan: Plan,
    pub(crate) owner: SessionId,
    pub(crate) user: Option<User>,
    pub(crate) workspaces: Option<Vec<WorkspaceId>>,
    pub(crate) ending: bool,
    /// Members that have no workspace, by number; as far as it is known of a plan that is undone.
    pub(crate) unmade: BTreeSet<usize>,
}

impl State {
    pub(crate) fn new(plan: Plan) -> Self {
        let (owner, user) = (plan.owner, plan.user);
        Self { plan, owner, user, workspaces: None, ending: false, unmade: BTreeSet::new() }
    }

    /// The word for it.
    pub(crate) fn word(&self) -> &'static str {
        match (self.ending, &self.workspaces) {
            (true, _) => "destroying",
            (false, Some(_)) => "ready",
            (false, None) => "creating",
        }
    }

    /// The number of a member.
    ///
    /// # Errors
    /// `member_not_found`.
    pub(crate) fn member(&self, name: &str) -> Result<usize, ToolError> {
        let members = &self.plan.members;
        let found = members.iter().position(|member| member.name == name);
        let all = || members.iter().map(|member| member.name.clone()).collect();
        found.ok_or_else(|| refuse::no_member(&self.plan.name, name, all()))
    }

    /// Refuses what only a ready team does.
    ///
    /// # Errors
    /// `team_state`.
    pub(crate) fn ready(&self) -> Result<(), ToolError> {
        match self.word() {
            "ready" => Ok(()),
            "creating" => Err(refuse::creating(&self.plan.name)),
            _ => Err(refuse::destroying(&self.plan.name)),
        }
    }

    /// An event of the team's, for the session that operates it.
    pub(crate) fn event(&self, kind: &str, mut data: Value) -> NewEvent {
        data["name"] = json!(self.plan.name);
        data["session"] = json!(self.owner);
        NewEvent { kind: kind.to_owned(), subject: self.plan.id.to_string(), data }
    }

    /// The team as the directory knows it.
    pub(crate) fn entry(&self) -> TeamEntry {
        let Plan { name, parent, max_vms, members, at, .. } = &self.plan;
        TeamEntry {
            name: name.clone(),
            owner: self.owner,
            user: self.user,
            parent: *parent,
            max_vms: *max_vms,
            members: u32::try_from(members.len()).unwrap_or(u32::MAX),
            at: *at,
        }
    }
}

pub(crate) fn stream(id: TeamId) -> StreamId {
    log::stream::<State>(id).expect("an id has only letters, digits and `_`")
}

impl Sourced for State {
    const KIND: &'static str = "team";
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        match record {
            Record::Planned(plan) => Ok(Self::new(*plan)),
            other => Err(other),
        }
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::Ready { workspaces } if workspaces.len() == self.plan.members.len() => {
                self.workspaces = Some(workspaces);
            }
            Record::Owned { by, user } => (self.owner, self.user) = (by, user),
            Record::Ending { unmade } => {
                self.ending = true;
                self.unmade.extend(unmade);
            }
            other => return Err(other),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hivekeep_runtime::log::LogRecord;

    use super::*;

    #[test]
    fn the_source_of_members_keeps_its_recorded_name() {
        let plan = json!({
            "id": TeamId::new(), "name": "crew", "owner": SessionId::new(), "parent": null,
            "parent_name": null, "max_vms": 1, "at": "2026-01-01T00:00:00Z", "members": [],
            "stem": { "golden": "g", "snapshot": "base" },
        });
        let read: Plan = serde_json::from_value(plan.clone()).expect("read");
        assert_eq!(read.source.as_ref().map(|source| source.golden.as_str()), Some("g"));
        assert_eq!(serde_json::to_value(read).expect("plain data"), plan);
    }

    #[test]
    fn an_end_that_was_recorded_without_what_was_not_made_is_read() {
        let read = serde_json::from_str(r#"{"record":"ending"}"#).expect("read");
        assert!(matches!(read, Record::Ending { unmade } if unmade.is_empty()));
        let ending = Record::Ending { unmade: BTreeSet::new() };
        assert_eq!(LogRecord::encode(&ending).as_deref(), Ok(&br#"{"record":"ending"}"#[..]));
    }
}
