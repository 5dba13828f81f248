//! Publish-subscribe door over WebSocket at `/ws`: processes, events, teams and ingestions, live, and where a page
//! of the dashboard is to go. It is a route
//! beside those of the HTTP API, and has a listener of its own where a tool or the configuration starts one.
//!
//! ```text
//! connection (bounds, TLS) ─▶ Host, Origin ─▶ credential ─▶ place ─▶ client ─┬─ follower of a channel
//!                                                                            └─ follower of another
//! ```
//! Each subscription is a task with a position of its own, which waits for its client alone: a client that
//! reads slowly falls behind, is told what it missed, and slows nobody.

mod client;
mod follow;
mod frame;
mod pages;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use axum::{
    Router,
    extract::{
        Request, State,
        ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::any,
};
use hivekeep_door_server::{
    DaemonServices,
    http::{caller::HttpCaller, door::DoorListener, hosts::AllowedHosts, server::ServerBounds},
};
use hivekeep_hub::codes;
use hivekeep_kernel::{Layer, SharedPool, ToolError, User, lock};
use hivekeep_ports::{HubCounts, HubDoor, HubListener, PersonPages};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Bytes of a message of a client.
const HEARD_BYTES: usize = 64 * 1024;
const CANNOT_LISTEN: &str = "choose another port, or end what uses it";

/// The hub. Listens when it is told to.
pub struct Hub {
    core: Arc<DaemonServices>,
    hosts: AllowedHosts,
    places: SharedPool,
    /// Channels with the number of their subscribers.
    channels: Mutex<HashMap<String, usize>>,
    pages: pages::OpenPages,
    listener: Mutex<Option<HubListener>>,
    inside: TaskTracker,
    end: CancellationToken,
}

impl Hub {
    /// A hub that does not listen yet.
    pub fn new(core: Arc<DaemonServices>, inside: TaskTracker, end: CancellationToken) -> Self {
        let http = &core.config.http;
        Self {
            hosts: AllowedHosts::new(&http.allowed_hosts, &http.allowed_origins),
            places: SharedPool::new("hub.max_clients", core.config.hub.max_clients),
            channels: Mutex::default(),
            pages: pages::OpenPages::default(),
            listener: Mutex::default(),
            core,
            inside,
            end,
        }
    }

    /// The one route, wherever it is served.
    pub fn routes(self: &Arc<Self>) -> Router {
        Router::new().route("/ws", any(enter)).with_state(self.clone())
    }

    /// Counts a subscriber of a channel for as long as the guard lives.
    fn seat(self: &Arc<Self>, channel: &str) -> ChannelSeat {
        *lock(&self.channels).entry(channel.to_owned()).or_default() += 1;
        ChannelSeat(self.clone(), channel.to_owned())
    }

    /// The listener that is there, or a new one. Legal in a runtime.
    fn opened(self: &Arc<Self>, address: SocketAddr) -> Result<HubListener, ToolError> {
        let mut listener = lock(&self.listener);
        if let Some(listener) = &*listener {
            return Ok(HubListener { started: false, ..listener.clone() });
        }
        let cannot = |why: String| ToolError::new(Layer::Door, codes::HUB_CANNOT_LISTEN, why);
        if self.end.is_cancelled() {
            return Err(cannot("the daemon stops".to_owned()));
        }
        let bound = DoorListener::bind_at("hub", &self.core.config.hub.listener, address);
        let bound = bound.map_err(|error| cannot(error.to_string()).next(CANNOT_LISTEN))?;
        let (address, url) =
            (bound.address, format!("{}://{}/ws", bound.scheme(["ws", "wss"]), bound.address));
        let bounds = ServerBounds::of(&self.core.config.http);
        self.inside.spawn(bound.serve(self.routes(), bounds, self.end.clone()));
        tracing::info!(%url, "the hub listens");
        Ok(listener.insert(HubListener { address, url, started: true }).clone())
    }
}

/// The hub, as the ports have it.
pub struct HubAsPort(pub Arc<Hub>);

#[async_trait]
impl HubDoor for HubAsPort {
    async fn start(&self, address: SocketAddr) -> Result<HubListener, ToolError> {
        let hub = self.0.clone();
        let opened = tokio::task::spawn_blocking(move || hub.opened(address)).await;
        opened.unwrap_or_else(|panic| Err(ToolError::internal(format!("the hub: {panic}"))))
    }

    fn counts(&self) -> HubCounts {
        let hub = &self.0;
        HubCounts { clients: hub.places.taken(), channels: lock(&hub.channels).len() }
    }
}

impl PersonPages for HubAsPort {
    fn connected(&self, user: User) -> bool {
        self.0.places.taken_by(&user) > 0
    }

    fn navigate(&self, user: User, path: &str) -> usize {
        self.0.pages.navigate(user, path)
    }
}

/// A subscriber of a channel, as it is counted.
struct ChannelSeat(Arc<Hub>, String);

impl Drop for ChannelSeat {
    fn drop(&mut self) {
        let mut channels = lock(&self.0.channels);
        if let Some(count) = channels.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                channels.remove(&self.1);
            }
        }
    }
}

/// Lets a client in, or says why not.
async fn enter(
    State(hub): State<Arc<Hub>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    request: Request,
) -> Response {
    let refused = |status: StatusCode, why: String| (status, format!("{why}\n")).into_response();
    if let Err(foreign) = hub.hosts.check_request(&request) {
        return refused(StatusCode::FORBIDDEN, foreign.why().to_owned());
    }
    let Some(caller) = HttpCaller::of(&request, &hub.core.credentials) else {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
        return (StatusCode::UNAUTHORIZED, challenge, "show a bearer credential\n").into_response();
    };
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(error) => return refused(error.status(), error.body_text()),
    };
    let place = match hub.places.take(caller.user) {
        Ok(place) => place,
        Err(full) => return refused(StatusCode::SERVICE_UNAVAILABLE, full.to_string()),
    };
    let upgrade = upgrade.max_message_size(HEARD_BYTES).max_frame_size(HEARD_BYTES);
    upgrade.on_upgrade(async move |socket| {
        client::serve(hub, caller, socket).await;
        drop(place);
    })
}
