//! Tools of the hub.

use hivekeep_kernel::tools;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{address::DEFAULT, service::HubTools};

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
    DEFAULT.to_owned()
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

/// Who follows the hub.
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
