//! Doors beside MCP and the control door: the HTTP API, E2B's, URLs for ports, the hub.

use std::sync::Arc;

use hivekeep_ports::HubDoor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{boot::Error, open_doors::Opened};
use crate::doors::{
    DaemonServices, e2b, http_api,
    hub::{Hub, HubAsPort},
    ports,
};

/// Binds those that are configured; the hub serves as soon as it is started.
pub(super) async fn open<'c>(
    core: &'c Arc<DaemonServices>,
    inside: &TaskTracker,
    end: &CancellationToken,
) -> Result<Vec<Opened<'c>>, Error> {
    let (http, mut opened) = (&core.config.http, Vec::new());
    if http.api.listener.enabled {
        let door = http_api::open(core.clone(), end.clone()).await?;
        opened.push(Opened { name: "HTTP API", told: &core.http_api, door });
    }
    if http.e2b.listener.enabled {
        let door = e2b::open(core.clone(), inside.clone(), end.clone()).await?;
        opened.push(Opened { name: "E2B", told: &core.e2b, door });
    }
    if http.ports.listener.enabled {
        let door = ports::open(core.clone(), inside.clone(), end.clone()).await?;
        opened.push(Opened { name: "URLs for ports", told: &core.port_urls, door });
    }
    let hub = Arc::new(HubAsPort(Arc::new(Hub::new(core.clone(), inside.clone(), end.clone()))));
    core.ports.offer::<dyn HubDoor>(hub.clone());
    let options = &core.config.hub.listener;
    if options.enabled {
        let address = options.address().map_err(Error::Hub)?;
        hub.start(address).await.map_err(|error| Error::Hub(error.message))?;
    }
    Ok(opened)
}
