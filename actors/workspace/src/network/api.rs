//! Policies of the network, and ports of the host that lead to a workspace.

use std::net::Ipv4Addr;

use chrono::{DateTime, Utc};
use hivekeep_kernel::WorkspaceId;
use hivekeep_ports::{NetworkGroup, Transport};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Set what a workspace may reach and who may reach it, or show it: without a
/// change it answers what is in force. What is left out stays as it is. Narrowing
/// ends running connections. Open port forwards stay.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkPolicy {
    /// Id or name of the workspace. It may be running, paused, stopped or crashed.
    pub workspace_id: String,
    /// Let it reach public addresses of the internet. Private, link-local and cloud metadata addresses and the host itself stay closed.
    pub allow_internet: Option<bool>,
    /// Let it and other workspaces that allow it too reach each other.
    pub allow_inter_vm: Option<bool>,
    /// The TCP and UDP ports on which other workspaces get in, where `allow_inter_vm` or their group lets them; an empty list is every port.
    pub allowed_ports: Option<Vec<u16>>,
    /// Further targets that it may reach, in place of the list before: names (`example.net`, `*.debian.org`), addresses or blocks, private ones included, each with ports if need be (`10.1.2.3:5432/tcp`, `example.org:443`).
    pub egress_allow: Option<Vec<String>>,
}

/// The policy in force.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct PolicyInForce {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The whole policy.
    pub network_policy: hivekeep_ports::ReachPolicy,
    /// Whether this call changed it.
    pub changed: bool,
    /// Always true: it decides about each packet from this answer on, or this would be an error.
    pub applied: bool,
    /// Always true: what the kernel keeps was compared with it, or this would be an error.
    pub verified: bool,
    /// From the call to this answer.
    pub took_ms: u64,
}

/// Lead ports of the host to a workspace, end that, or list what leads to it.
/// Forwards last until they are removed or the workspace is destroyed, over its
/// stops, changes of its policy and restarts of the daemon.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct PortForward {
    /// Id or name of the workspace. It may be running, paused, stopped or crashed.
    pub workspace_id: String,
    #[serde(flatten)]
    pub(crate) action: ForwardAction,
    /// Transport protocol of the ports.
    #[serde(default = "tcp")]
    pub protocol: Transport,
}

fn tcp() -> Transport {
    Transport::Tcp
}

/// Action on the forwards of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub(crate) enum ForwardAction {
    /// Lead a port of the host to the workspace.
    Add {
        /// The port in the workspace.
        guest_port: u16,
        /// The port of the host, 1024 or above; default: a free one.
        host_port: Option<u16>,
    },
    /// Remove forwards to a port of the workspace.
    Remove {
        /// The port in the workspace.
        guest_port: u16,
        /// Only the forward from this port of the host; default: all that lead to `guest_port`.
        host_port: Option<u16>,
    },
    /// List the forwards to the workspace.
    List {
        /// Only what leads to this port in the workspace; 0 is all.
        guest_port: u16,
    },
}

/// Result of an action on forwards.
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ForwardResult {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// add, remove: the port in the workspace.
    pub guest_port: Option<u16>,
    /// add: the port of the host.
    pub host_port: Option<u16>,
    /// add: the address of the host that has the port.
    pub host_ip: Option<Ipv4Addr>,
    /// add, remove: transport protocol of the ports.
    pub protocol: Option<Transport>,
    /// remove: the forwards that were removed.
    pub removed: Option<Vec<Forwarded>>,
    /// list: the forwards to the workspace.
    pub forwards: Option<Vec<Forwarded>>,
    /// list: ports that anybody reaches by a URL, see port_url.
    pub public_urls: Option<Vec<PublicUrl>>,
}

impl ForwardResult {
    pub(crate) fn of(workspace_id: WorkspaceId) -> Self {
        Self {
            workspace_id,
            guest_port: None,
            host_port: None,
            host_ip: None,
            protocol: None,
            removed: None,
            forwards: None,
            public_urls: None,
        }
    }
}

/// Port of the host that leads to a port in a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Forwarded {
    /// Port of the host.
    pub host_port: u16,
    /// Port in the workspace.
    pub guest_port: u16,
    /// Where the host listens; 0.0.0.0 is all its addresses.
    pub host_ip: Ipv4Addr,
    /// Transport protocol of the ports.
    pub protocol: Transport,
}

impl Forwarded {
    pub(crate) fn of(forward: &hivekeep_ports::ForwardedPort) -> Self {
        let hivekeep_ports::ForwardedPort { transport, host_ip, host_port, guest_port } = *forward;
        Self { host_port, guest_port, host_ip, protocol: transport }
    }
}

/// How a workspace is connected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkKind {
    /// By the daemon's bridge, where every policy can be kept.
    Bridge,
    /// By QEMU's own network stack: closed but for its forwards.
    User,
    /// The daemon gives guests no network.
    #[default]
    Off,
    /// This kind of workspace has none.
    None,
    /// Not known yet: the network is testing itself.
    Starting,
}

/// A workspace's network.
#[serde_with::skip_serializing_none]
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct NetworkState {
    /// Connection of the workspace.
    pub mode: NetworkKind,
    /// Why the workspace is not connected by a bridge.
    pub reason: Option<String>,
    /// Whether the workspace may reach public addresses of the internet.
    pub allow_internet: bool,
    /// Whether the workspace and others that allow it too may reach each other.
    pub allow_inter_vm: bool,
    /// Ports on which other workspaces get in; empty is every port.
    pub allowed_ports: Vec<u16>,
    /// Further targets that the workspace may reach.
    pub egress_allow: Vec<String>,
    /// The group whose members it reaches and who reach it, such as its team.
    pub group: Option<NetworkGroup>,
    /// Ports of the host forwarded to it.
    pub port_forwards: Vec<Forwarded>,
    /// Address of the workspace, with the length of its network's prefix.
    pub address: Option<String>,
    /// MAC address of the workspace's interface.
    pub mac: Option<String>,
    /// The next hop to everything else.
    pub gateway: Option<String>,
    /// Address of the name server.
    pub dns: Option<String>,
}

/// Port that anybody reaches by a URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PublicUrl {
    /// Port in the workspace.
    pub guest_port: u16,
    /// URL.
    pub url: String,
}

/// Get an HTTP URL for a port of a workspace, such as that of a web server in it, for a person to open. It
/// needs no network and no port_forward; WebSockets pass. A port is private unless `public` is set: `url` then
/// needs a credential, and `link` opens it until it expires.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortUrlInput {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// Port that the server in the workspace listens on.
    #[schemars(range(min = 1))]
    pub port: u16,
    /// true lets anybody in who reaches this host, until false; lasts as long as the workspace. Default: as it is.
    pub public: Option<bool>,
    /// How long `link` opens it.
    #[serde(default = "an_hour")]
    #[schemars(range(min = 1, max = 604_800))]
    pub expires_secs: u64,
}

fn an_hour() -> u64 {
    3600
}

/// URL of a port.
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct PortUrlResult {
    /// Workspace.
    pub workspace_id: WorkspaceId,
    /// URL, which stays the same. Of a private port it needs a bearer credential.
    pub url: String,
    /// Whether anybody is let in.
    pub public: bool,
    /// private: link that opens it in a browser without a credential. Whoever has it gets in.
    pub link: Option<String>,
    /// private: when `link` expires.
    pub expires_at: Option<DateTime<Utc>>,
}
