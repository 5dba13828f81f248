//! Discovery of tools: what an agent needs to find its way among many, of which few are listed to it.
//!
//! A caller finds what the view of its call lets it call, and nothing else. What is found can be
//! called at once, listed or not; [`toolset_load`](tools) has a family listed.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod index;
mod service;
mod tools;

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, RestartPolicy, ServiceActor, ToolError, ToolInfo};
use hivekeep_ports::ToolSearch;
use hivekeep_runtime::{Daemon, Family, Mounted, NoOptions};

use service::Discovery;

/// Family of the tools about tools; one actor below the root. Needs the daemon's ports
/// [`ToolCatalogue`](hivekeep_runtime::tool_catalogue::ToolCatalogue) and
/// [`SessionToolsets`](hivekeep_ports::SessionToolsets); offers [`ToolSearch`].
pub struct DiscoveryFamily;

impl Family for DiscoveryFamily {
    type Options = NoOptions;

    const INSTRUCTIONS: &'static str = "\
- aegis.tools.search finds a tool for a task among all that there are, also those that are not listed to \
you; tool_describe shows one in full; toolset_load has its family listed.";

    fn tools() -> Vec<&'static ToolInfo> {
        tools::FAMILY.rows.iter().map(|row| &row.0).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, _: NoOptions) -> Result<Mounted, ToolError> {
        let address = daemon.address("discovery", RestartPolicy::ENTITY);
        let service = Arc::new(Discovery::new(daemon)?);
        daemon.ports.offer::<dyn ToolSearch>(service.clone());
        let mounted = Mounted::default().serving::<ServiceActor<Discovery>>(&address, service);
        Ok(mounted.documents(Arc::new(tools::ToolDocuments)))
    }
}

#[cfg(test)]
mod tests;
