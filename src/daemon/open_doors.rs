//! Open doors: serving clients until the daemon stops.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

#[cfg(feature = "full")]
use hivekeep_door_http_api::hub::{Hub, HubAsPort};
use hivekeep_door_server::{DaemonServices, HttpDoor, http::guests::GuestHttpServer};
use hivekeep_ports::GuestHttp;
#[cfg(feature = "full")]
use hivekeep_ports::{HubDoor, PersonPages};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    boot::{Error, alive},
    root::Places,
    service,
    socket::{self, Rooms, Socket},
};
use crate::control;

/// Time that clients may take to leave when they are asked to.
const LEAVING: Duration = Duration::from_secs(10);
/// Interval of counting running calls while they are waited for.
const COUNT_EVERY: Duration = Duration::from_millis(25);

/// A door over HTTP that is bound and serves nobody yet.
pub(super) struct Opened<'c> {
    pub(super) name: &'static str,
    /// Where its URL is kept for whoever asks.
    pub(super) told: &'c OnceLock<String>,
    pub(super) door: HttpDoor,
}

/// The doors, open.
pub(super) struct Doors {
    core: Arc<DaemonServices>,
    closing: CancellationToken,
    end: CancellationToken,
    inside: TaskTracker,
}

impl Doors {
    /// Opens them and tells the service manager.
    pub(super) async fn open(core: Arc<DaemonServices>, places: Places) -> Result<Self, Error> {
        let (closing, end) = (CancellationToken::new(), CancellationToken::new());
        let inside = TaskTracker::new();
        let mut opened = Vec::new();
        if core.config.http.mcp.listener.enabled {
            let door = hivekeep_door_mcp::http::open(core.clone(), end.clone()).await?;
            opened.push(Opened { name: "MCP over HTTP", told: &core.mcp_http, door });
        }
        core.ports.offer::<dyn GuestHttp>(Arc::new(GuestHttpServer::new(&core)));
        let routes = control::routes(core.clone(), end.clone());
        #[cfg(feature = "full")]
        let routes = routes.merge(open_more(&core, &mut opened, &inside, &end).await?);
        let path = &core.folders.socket;
        let listener =
            socket::bind(path).map_err(|source| Error::Socket { path: path.clone(), source })?;
        let socket = Socket {
            core: core.clone(),
            routes,
            listener,
            closing: closing.clone(),
            end: end.clone(),
            inside: inside.clone(),
            rooms: Rooms::new(core.config.daemon.max_connections),
        };
        inside.spawn(socket.serve());
        for Opened { name, told, door } in opened {
            tracing::info!(url = %door.url, "{name}");
            let _set_once = told.set(door.url.clone());
            inside.spawn(door.serve());
        }
        let beat = end.clone();
        inside.spawn(async move {
            service::watchdog(beat, || {
                let places = places.clone();
                async move { alive(&places).await }
            })
            .await;
        });
        service::ready(&format!("serving on {}", path.display()));
        Ok(Self { core, closing, end, inside })
    }

    /// Closes them: no new clients, then calls that run get some time, then
    /// everybody leaves. `at_once` leaves out the waiting.
    pub(super) async fn close(self, at_once: bool) {
        let drain = Duration::from_secs(self.core.config.daemon.drain_timeout_secs);
        service::stopping(drain + Duration::from_secs(180));
        self.closing.cancel();
        if let Err(error) = std::fs::remove_file(&self.core.folders.socket) {
            tracing::debug!(%error, "the socket was gone already");
        }
        if !at_once {
            self.drain(Instant::now() + drain).await;
        }
        self.end.cancel();
        self.inside.close();
        if tokio::time::timeout(LEAVING, self.inside.wait()).await.is_err() {
            tracing::warn!(left = self.inside.len(), "clients did not leave in time");
        }
    }

    async fn drain(&self, until: Instant) {
        loop {
            let rows = self.core.sessions.list().await;
            let running: u32 = rows.iter().map(|row| row.calls_in_flight).sum();
            if running == 0 {
                return;
            }
            if Instant::now() >= until {
                tracing::warn!(running, "calls are cut short");
                return;
            }
            tokio::time::sleep(COUNT_EVERY).await;
        }
    }
}

/// Binds doors beside MCP where they are configured; the hub's own serves as soon as it is started. Returns the
/// routes of the API and the hub, which the socket has, too.
#[cfg(feature = "full")]
async fn open_more<'c>(
    core: &'c Arc<DaemonServices>,
    opened: &mut Vec<Opened<'c>>,
    inside: &TaskTracker,
    end: &CancellationToken,
) -> Result<axum::Router, Error> {
    let http = &core.config.http;
    let hub = Arc::new(Hub::new(core.clone(), inside.clone(), end.clone()));
    let routes =
        hivekeep_door_http_api::routes(core.clone(), end.clone()).await?.merge(hub.routes());
    if http.api.listener.enabled {
        let door = hivekeep_door_http_api::open(core, routes.clone(), end.clone())?;
        opened.push(Opened { name: "HTTP API", told: &core.http_api, door });
    }
    if http.e2b.listener.enabled {
        let door = hivekeep_door_e2b::open(core.clone(), inside.clone(), end.clone()).await?;
        opened.push(Opened { name: "E2B", told: &core.e2b, door });
    }
    if http.ports.listener.enabled {
        let door = hivekeep_door_ports::open(core.clone(), inside.clone(), end.clone()).await?;
        opened.push(Opened { name: "URLs for ports", told: &core.port_urls, door });
    }
    let hub = Arc::new(HubAsPort(hub));
    core.ports.offer::<dyn HubDoor>(hub.clone());
    core.ports.offer::<dyn PersonPages>(hub.clone());
    let options = &core.config.hub.listener;
    if options.enabled {
        let address = options.address().map_err(Error::Hub)?;
        hub.start(address).await.map_err(|error| Error::Hub(error.message))?;
    }
    Ok(routes)
}
