//! Doors beside MCP and the control door: the HTTP API, E2B's, URLs for ports, the hub.

use std::sync::Arc;

use hivekeep_kernel::ports::HubDoor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::boot::Error;
use crate::doors::{
    DaemonServices, e2b, http_api,
    hub::{Hub, HubAsPort},
    ports,
};

/// Those that are configured, bound and not served yet; the hub serves as soon as it is started.
pub(super) struct MoreDoors {
    api: Option<http_api::ApiDoor>,
    e2b: Option<e2b::E2bDoor>,
    port_urls: Option<ports::PortsDoor>,
}

impl MoreDoors {
    pub(super) async fn open(
        core: &Arc<DaemonServices>,
        inside: &TaskTracker,
        end: &CancellationToken,
    ) -> Result<Self, Error> {
        let api = match core.config.http_api.enabled {
            true => Some(http_api::open(core.clone(), end.clone()).await?),
            false => None,
        };
        let e2b = match core.config.doors.e2b.enabled {
            true => Some(e2b::open(core.clone(), inside.clone(), end.clone()).await?),
            false => None,
        };
        let port_urls = match core.config.port_urls.enabled {
            true => Some(ports::open(core.clone(), inside.clone(), end.clone()).await?),
            false => None,
        };
        let hub = Hub::new(core.clone(), inside.clone(), end.clone());
        let hub = Arc::new(HubAsPort(Arc::new(hub)));
        core.ports.offer::<dyn HubDoor>(hub.clone());
        if core.config.hub.enabled {
            let address = core.config.hub.address().map_err(Error::Hub)?;
            let listener = hub.start(address).await;
            let listener = listener.map_err(|error| Error::Hub(error.message))?;
            tracing::info!(url = %listener.url, "hub");
        }
        Ok(Self { api, e2b, port_urls })
    }

    pub(super) fn serve(self, core: &DaemonServices, inside: &TaskTracker) {
        if let Some(door) = self.api {
            tracing::info!(url = %door.url, "HTTP API");
            let _set_once = core.http_api.set(door.url.clone());
            inside.spawn(door.serve());
        }
        if let Some(door) = self.e2b {
            tracing::info!(url = %door.url, "E2B");
            let _set_once = core.e2b.set(door.url.clone());
            inside.spawn(door.serve());
        }
        if let Some(door) = self.port_urls {
            tracing::info!(url = %door.example, "URLs for ports");
            let _set_once = core.port_urls.set(door.example.clone());
            inside.spawn(door.serve());
        }
    }
}
