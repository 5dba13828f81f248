//! Control plane of the hub: the tools that start its WebSocket listener and count its clients.
//!
//! The hub itself is a door of the daemon, reached through the port
//! [`HubDoor`](hivekeep_ports::HubDoor); what is decided here is who may listen where.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod tools;

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, RestartPolicy, ServiceActor, ToolError, ToolInfo};
use hivekeep_runtime::{Daemon, Family, Mounted};

use tools::HubTools;
pub use tools::Options;

/// Family of the hub's tools.
pub struct HubFamily;

impl Family for HubFamily {
    type Options = Options;

    const INSTRUCTIONS: &'static str = "\
- ws_start opens a WebSocket over which people's programs follow processes, events and teams live.";

    fn tools() -> Vec<&'static ToolInfo> {
        tools::FAMILY.rows.iter().map(|row| &row.0).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let address = daemon.address("hub", RestartPolicy::ENTITY);
        let hub = Arc::new(HubTools { options, ports: daemon.ports.clone() });
        Ok(Mounted::default().serving::<ServiceActor<HubTools>>(&address, hub))
    }
}

#[cfg(test)]
mod tests;
