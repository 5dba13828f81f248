//! Teams as a family: one actor below the root.

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, RestartPolicy, ToolError, ToolInfo, ports::WaitingMessages};
use hivekeep_runtime::{Daemon, Family, Mounted};

use crate::{Options, TeamShared, Teams, TeamsHandle, codes, names::TeamNames, tools};

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
