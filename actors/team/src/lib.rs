//! Teams: named members, each with a workspace and an inbox, kept by actors.
//!
//! ```text
//! teams ─── team*      its members' inboxes and tasks are values of it
//! ```
//! `directory` says what may be added, [`inbox`] what waits for a member, [`tasks::ledger`] what is
//! known of its tasks; all are pure.
//! Workspaces are made, looked at and removed through the daemon's own tools, in the session that
//! the team belongs to: this crate knows no other actor's.
//!
//! A team is planned in the journal before anything is made. A plan that did not come to its end
//! is undone, a removal that did not is continued, whatever died in between.

pub mod api;
mod cards;
pub mod codes;
mod directory;
pub mod inbox;
mod options;
mod rates;
mod records;
mod refuse;
mod shared;
mod status;
pub mod tasks;
mod team;
mod teams;
pub mod tools;
mod waiting;

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, RestartPolicy, ToolError, ToolInfo};
use hivekeep_ports::WaitingMessages;
use hivekeep_runtime::{
    Daemon, Family, Mounted,
    names::{KnownNames, Names},
};
use serde_json::{Map, Value};

pub use options::Options;
pub use shared::TeamShared;
pub use teams::{Msg, Picture, Seen, Teams, TeamsHandle};
pub use tools::catalogue;

/// Teams as a family: one actor below the root.
///
/// Needs workspaces, the network and the vault; offers [`TeamsHandle`], the limit of calls that
/// wait, and what waits for sessions.
pub struct TeamFamily;

impl Family for TeamFamily {
    type Options = Options;

    fn tools() -> Vec<&'static ToolInfo> {
        tools::catalogue()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let shared = TeamShared::new(daemon, options)?;
        let teams = daemon.address("teams", RestartPolicy::ESSENTIAL);
        daemon.ports.offer(shared.waiter_limit.clone());
        daemon.ports.offer(Arc::new(TeamsHandle::new(teams.clone(), shared.clone())));
        if shared.options.announce_waiting {
            daemon.ports.offer::<dyn WaitingMessages>(shared.waiting.clone());
        }
        Ok(Mounted::default().serving::<Teams>(&teams, shared).names(Arc::new(TeamNames)))
    }
}

/// Names of all teams.
struct TeamNames;

impl Names for TeamNames {
    fn kind(&self) -> &'static str {
        "team"
    }

    fn tool(&self) -> &'static str {
        "team"
    }

    fn args(&self) -> Map<String, Value> {
        Map::from_iter([("action".to_owned(), "list".into())])
    }

    fn known(&self, answer: Value) -> Result<KnownNames, ToolError> {
        let output: api::TeamResult = serde_json::from_value(answer)
            .map_err(|error| ToolError::internal(error.to_string()))?;
        let teams = output.teams.unwrap_or_default();
        Ok(KnownNames { names: teams.into_iter().map(|row| row.name).collect(), complete: true })
    }
}
