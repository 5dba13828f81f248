//! What the actors of this crate share; it outlives their restarts.

use std::sync::Arc;

use hivekeep_kernel::{
    Census, SwarmId, ToolError,
    ports::{Sessions, Tasks},
};
use hivekeep_runtime::{Daemon, ToolClient, WaiterLimit, Waiters};
use hivekeep_store::{Events, Journal};
use tokio_util::sync::CancellationToken;

use crate::Options;

/// See the module.
pub struct SwarmShared {
    pub(crate) options: Options,
    pub(crate) journal: Journal,
    pub(crate) events: Events,
    pub(crate) sessions: Arc<dyn Sessions>,
    pub(crate) census: Census,
    pub(crate) closing: CancellationToken,
    pub(crate) tasks: Arc<dyn Tasks>,
    /// Calls that wait for the end of a swarm.
    pub(crate) waiters: Waiters,
    pub(crate) tools: ToolClient<SwarmId>,
}

impl SwarmShared {
    /// Shares what the daemon brings.
    ///
    /// # Errors
    /// When a port that swarms need is not offered.
    pub(crate) fn new(daemon: &Daemon, options: Options) -> Result<Arc<Self>, ToolError> {
        let Daemon { journal, census, sessions, tools, ports, closing, .. } = daemon.clone();
        Ok(Arc::new(Self {
            options,
            events: journal.events(),
            journal,
            sessions,
            census,
            closing,
            tasks: ports.need()?,
            waiters: ports.need::<WaiterLimit>()?.of("swarm"),
            tools: ToolClient::new(tools),
        }))
    }
}
