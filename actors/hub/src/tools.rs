//! Tools of the hub, its section `[hub]`, and who may have it listen where.

use std::{net::SocketAddr, sync::Arc};

use hivekeep_kernel::{CallCx, Layer, Service, ServiceActor, Tier, ToolError, ToolGroup, tools};
use hivekeep_ports::HubDoor;
use hivekeep_runtime::{FamilyOptions, ListenerOptions, Ports};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::codes;

/// Address of a call that names none: the configured one, wherever that is.
const DEFAULT_ADDRESS: &str = ":8080";

/// The hub at `/ws`: processes, events, teams and ingestions, followed live over WebSocket. Clients show a
/// bearer credential, as at the HTTP API. Hosts, origins and bounds are those of `[http]`. If it is not
/// enabled, the tool `ws_start` opens it until the daemon stops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Address and TLS.
    #[serde(flatten)]
    pub listener: ListenerOptions,
    /// Clients at once; one credential has half of them at most. One more is answered 503.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_clients: usize,
    /// Channels that one client may subscribe to.
    #[schemars(range(min = 1, max = 1_000))]
    pub max_channels: usize,
    /// Messages that wait for a client that reads slowly, of each of its channels; it is told what it missed
    /// beyond them.
    #[schemars(range(min = 1, max = 1_000))]
    pub max_behind: usize,
    /// Interval of pings. A client that has sent nothing for twice that is cut off.
    #[schemars(range(min = 1, max = 3_600))]
    pub ping_secs: u64,
    /// Shortest time between two reads of a process that is followed. Each is a call in its session.
    #[schemars(range(min = 20, max = 60_000))]
    pub poll_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listener: ListenerOptions::at("127.0.0.1:8080"),
            max_clients: 256,
            max_channels: 64,
            max_behind: 256,
            ping_secs: 30,
            poll_ms: 1_000,
        }
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        self.listener.problems()
    }
}

/// Open the hub, a WebSocket at `/ws` over which programs with a credential follow processes, events, teams
/// and ingestions live; or tell where it listens already.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartHub {
    /// Address as host:port. The default is the one that the operator configured; only operators choose
    /// another.
    #[serde(default = "default_addr")]
    #[schemars(length(max = 80))]
    pub(crate) addr: String,
}

fn default_addr() -> String {
    DEFAULT_ADDRESS.to_owned()
}

/// The hub that listens.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HubStarted {
    /// True: it listens at `addr`.
    pub(crate) success: bool,
    /// Address that it is bound to.
    pub(crate) addr: String,
    /// Its URL, and whether it was started now.
    pub(crate) message: String,
}

/// Count who follows the hub.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LookAtHub {}

/// Clients and subscribed channels of the hub.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HubInfo {
    /// Connected clients; none while it does not listen.
    pub(crate) clients: usize,
    /// Channels with at least one subscriber.
    pub(crate) channels: usize,
}

tools! { pub(crate) FAMILY: "ws" for service HubTools, singleton hub;
    ws_start: StartHub => HubStarted = HubTools::start {
        title: "Start the WebSocket hub", effect: Idempotent, risk: Risk::Medium,
    };
    ws_info: LookAtHub => HubInfo = HubTools::info {
        title: "Count the hub's clients", effect: Read,
    };
}

/// The hub, as sessions have it.
pub(crate) struct HubTools {
    pub(crate) options: Options,
    pub(crate) ports: Ports,
}

impl Service for HubTools {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = &[&FAMILY];
}

impl HubTools {
    /// The door, which opens after the families are mounted.
    fn door(&self) -> Result<Arc<dyn HubDoor>, ToolError> {
        self.ports.find::<dyn HubDoor>().ok_or_else(|| {
            ToolError::new(Layer::Actor, codes::ACTOR_UNAVAILABLE, "the daemon is still starting")
                .retryable()
        })
    }

    pub(crate) async fn start(
        self: Arc<Self>,
        cx: CallCx,
        input: StartHub,
    ) -> Result<HubStarted, ToolError> {
        let operator = cx.view.reaches(Tier::Operator);
        let address = wanted_address(&self.options.listener, Some(&input.addr), operator)?;
        let hub = self.door()?.start(address).await?;
        let (url, same) = (&hub.url, address.port() == 0 || hub.address == address);
        let message = match hub.started {
            true => format!("it listens at {url} until the daemon stops"),
            false if same => format!("it listened already, at {url}"),
            false => format!("it listened already, at {url}; {address} was not opened"),
        };
        Ok(HubStarted { success: true, addr: hub.address.to_string(), message })
    }

    pub(crate) async fn info(
        self: Arc<Self>,
        _: CallCx,
        _: LookAtHub,
    ) -> Result<HubInfo, ToolError> {
        let counts = self.door()?.counts();
        Ok(HubInfo { clients: counts.clients, channels: counts.channels })
    }
}

/// Address that a caller gets: the configured one, or, for an operator, another.
///
/// # Errors
/// `invalid_input`, `hub_address_refused`.
pub(crate) fn wanted_address(
    options: &ListenerOptions,
    asked: Option<&str>,
    operator: bool,
) -> Result<SocketAddr, ToolError> {
    let refused = |why: String| ToolError::new(Layer::Policy, codes::HUB_ADDRESS_REFUSED, why);
    let own = options.address().map_err(refused)?;
    let Some(asked) = asked.map(str::trim).filter(|asked| !asked.is_empty()) else {
        return Ok(own);
    };
    let address = match asked.strip_prefix(':') {
        Some(port) => port.parse().map(|port| SocketAddr::new(own.ip(), port)).ok(),
        None => match asked.strip_prefix("localhost:") {
            Some(port) => port.parse().map(|port| SocketAddr::from(([127, 0, 0, 1], port))).ok(),
            None => asked.parse().ok(),
        },
    };
    let Some(address) = address else {
        let shown: String = asked.chars().take(80).collect();
        return Err(ToolError::invalid(format!("`{shown}` is not a valid address"))
            .next("give `:8080` or `127.0.0.1:8080`"));
    };
    if address == own || address.port() == 8080 && asked == DEFAULT_ADDRESS {
        return Ok(own);
    }
    if !operator {
        let why = format!("{address} is not the address that the operator configured, {own}");
        return Err(refused(why).next("call ws_start without `addr`"));
    }
    options.reachable(address).map_err(refused)?;
    Ok(address)
}
