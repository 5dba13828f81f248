//! Teams and swarms as families: two actors below the root that share what they call tools with.

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, RestartPolicy, ToolError, ToolInfo};
use hivekeep_runtime::{Daemon, Family, Mounted};

use crate::{Options, SwarmOptions, Swarms, TeamShared, Teams, TeamsHandle, codes, tools};

/// Offers [`SwarmOptions`] to [`TeamFamily`], which has the actors of both.
pub struct SwarmFamily;

impl Family for SwarmFamily {
    type Options = SwarmOptions;

    async fn mount(daemon: &Daemon, options: SwarmOptions) -> Result<Mounted, ToolError> {
        daemon.ports.offer(Arc::new(options));
        Ok(Mounted::default())
    }
}

/// Needs workspaces, the network, the vault and [`SwarmOptions`]; offers [`TeamsHandle`].
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
        let swarm = daemon.ports.need::<SwarmOptions>()?;
        let shared = TeamShared::new(daemon, options, SwarmOptions::clone(&swarm))?;
        let teams = daemon.address("teams", RestartPolicy::ESSENTIAL);
        let swarms = daemon.address("swarms", RestartPolicy::ESSENTIAL);
        daemon.ports.offer(Arc::new(TeamsHandle::new(teams.clone(), shared.clone())));
        Ok(Mounted::default()
            .serving::<Teams>(&teams, shared.clone())
            .serving::<Swarms>(&swarms, shared))
    }
}
