//! Network ports: how a workspace joins the network, gets its connection and leaves; connections to its TCP
//! ports over the link to its guest; URLs for them, which a door serves.
//!
//! ```text
//! join ─► cable ─► the machine is launched ─► settled ─► the guest takes its InterfaceSettings ─► leave
//!            a policy or a forward may be changed at any time in between and later
//! ```

mod group;

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use hivekeep_kernel::{CallCx, ToolError, WorkspaceId};

pub use group::{BadGroup, GroupChange, NetworkGroup};

/// Network policy of a workspace: where it may connect to, and who may connect to it. The default
/// allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReachPolicy {
    /// Public addresses of the internet. Never private, link-local or metadata addresses, nor the
    /// host.
    pub allow_internet: bool,
    /// Other workspaces that allow it too.
    pub allow_inter_vm: bool,
    /// The ports on which other workspaces get in, those of its group too; empty is every port.
    pub allowed_ports: Vec<u16>,
    /// Further destinations: addresses, blocks or names, each with ports if need be.
    pub egress_allow: Vec<String>,
    /// The group whose other members it reaches and who reach it, whatever `allow_inter_vm` says;
    /// on `allowed_ports` only where there are some. Absent where it is in none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<NetworkGroup>,
}

/// Partial change of a policy; a field that is `None` stays unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkRequest {
    /// See [`ReachPolicy::allow_internet`].
    pub allow_internet: Option<bool>,
    /// See [`ReachPolicy::allow_inter_vm`].
    pub allow_inter_vm: Option<bool>,
    /// See [`ReachPolicy::allowed_ports`].
    pub allowed_ports: Option<Vec<u16>>,
    /// See [`ReachPolicy::egress_allow`].
    pub egress_allow: Option<Vec<String>>,
    /// See [`ReachPolicy::group`].
    pub group: Option<GroupChange>,
}

/// Transport protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// A port of the host that leads to a port of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForwardedPort {
    /// TCP or UDP.
    pub transport: Transport,
    /// Where the host listens.
    pub host_ip: Ipv4Addr,
    /// Where the host listens.
    pub host_port: u16,
    /// Where it leads.
    pub guest_port: u16,
}

impl ForwardedPort {
    /// The host's end.
    pub fn host(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.host_ip, self.host_port)
    }
}

/// Interface settings of the guest; constant for the workspace's whole life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceSettings {
    /// MAC address of the interface.
    pub mac: [u8; 6],
    /// IP address of the guest.
    pub address: Ipv4Addr,
    /// Length of the network prefix in bits.
    pub prefix_len: u8,
    /// Address of the next hop to everything else.
    pub gateway: Ipv4Addr,
    /// Address of the resolver; `None` where there is none.
    pub dns: Option<Ipv4Addr>,
}

/// Host side of a machine's network card.
#[derive(Debug, Clone)]
pub enum Netdev {
    /// Queue of the workspace's tap: non-blocking, with a virtio header before each frame. One
    /// machine uses it at a time.
    Tap(Arc<OwnedFd>),
    /// User-mode network stack of the hypervisor, cut off from everything but these forwards.
    User(Vec<ForwardedPort>),
}

/// How the daemon connects machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum NetworkMode {
    /// A bridge of our own with rules that were proved with packets.
    Bridge,
    /// Each machine alone, with forwards; there is no bridge because of `reason`.
    User {
        /// Requirement of a bridge that the host does not meet.
        reason: String,
    },
    /// Machines have no network.
    Off {
        /// Why.
        reason: String,
    },
}

/// Network state in force for one workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkView {
    /// Interface settings.
    pub attachment: InterfaceSettings,
    /// Policy of the workspace.
    pub policy: ReachPolicy,
    /// Port forwards that lead to the workspace.
    pub forwards: Vec<ForwardedPort>,
}

/// Policies of all workspaces, for what others do on a workspace's behalf.
pub trait ReachRules: Send + Sync {
    /// True if a workspace's policy lets it reach a TCP port of a host, a name in lower case or an
    /// address: as one of the public internet, or by an entry of `egress_allow`. Whether an address
    /// is public is for the caller to check. Nothing is admitted for a workspace without a network.
    fn admits(&self, id: WorkspaceId, host: &str, port: u16) -> bool;
}

/// Addresses, policies and port forwards of all workspaces.
#[async_trait]
pub trait Network: Send + Sync {
    /// Mode in which machines are connected. Waits until the self-test of the start is over.
    ///
    /// # Errors
    /// Fails when the network does not start.
    async fn mode(&self) -> Result<NetworkMode, ToolError>;

    /// Admits a workspace with a policy, durably; for one that was admitted before, changes what
    /// the request names. Does not wait for the kernel: [`Network::settled`] does.
    ///
    /// # Errors
    /// `network_unavailable` where there is no network; `policy_unavailable`, with the reason, for
    /// a request that this host cannot enforce; `invalid_input` for a request that is wrong in itself.
    async fn join(
        &self,
        id: WorkspaceId,
        request: NetworkRequest,
    ) -> Result<InterfaceSettings, ToolError>;

    /// Opens the host side of the card of a machine that is about to be launched. Legal after
    /// [`Network::join`] and while no machine uses it. Waits while the kernel is still being
    /// brought to a plan without this workspace.
    ///
    /// # Errors
    /// Fails while the previous machine still uses it.
    async fn cable(&self, id: WorkspaceId) -> Result<Netdev, ToolError>;

    /// Waits until the kernel enforces what the plan says about this workspace.
    ///
    /// # Errors
    /// Fails when the kernel could not be brought to the plan.
    async fn settled(&self, id: WorkspaceId) -> Result<(), ToolError>;

    /// Changes a policy; durable, applied and verified on return.
    ///
    /// # Errors
    /// See [`Network::join`]; nothing has changed then.
    async fn set_policy(
        &self,
        id: WorkspaceId,
        request: NetworkRequest,
    ) -> Result<ReachPolicy, ToolError>;

    /// Forwards a port of the host to the workspace; durable and applied on return. Without
    /// `host_port` a free port is chosen. The caller updates a running machine in user mode.
    ///
    /// # Errors
    /// `port_taken`, with the owner of the port; `too_many_forwards`.
    async fn add_forward(
        &self,
        id: WorkspaceId,
        transport: Transport,
        guest_port: u16,
        host_port: Option<u16>,
    ) -> Result<ForwardedPort, ToolError>;

    /// Removes the forwards to a guest's port, or only the one from `host_port`.
    ///
    /// # Errors
    /// `forward_not_found`.
    async fn remove_forward(
        &self,
        id: WorkspaceId,
        transport: Transport,
        guest_port: u16,
        host_port: Option<u16>,
    ) -> Result<Vec<ForwardedPort>, ToolError>;

    /// Says, durably, whether a workspace's machine is parked. While it is, the kernel leads no
    /// connection to its TCP forwards: they are accepted here and carried by
    /// [`WorkspacePorts::dial_forward`](super::WorkspacePorts::dial_forward), which wakes it. Where
    /// there is a bridge, any other packet for it has it woken and is kept until it goes on. In force
    /// on return. Success for a workspace that has not joined. In user mode the machine has no
    /// forwards itself while this is so.
    ///
    /// # Errors
    /// Fails when the kernel could not be brought there; nothing has changed then.
    async fn set_parked(&self, id: WorkspaceId, parked: bool) -> Result<(), ToolError>;

    /// State in force; `None` for a workspace that has not joined.
    fn view(&self, id: WorkspaceId) -> Option<NetworkView>;

    /// Removes a workspace with everything recorded for it. Legal when its machine has ended;
    /// success for one that has not joined.
    ///
    /// # Errors
    /// Fails when the removal could not be made durable.
    async fn leave(&self, id: WorkspaceId) -> Result<(), ToolError>;

    /// Removes all workspaces but these; called once after a start, when the existing ones are
    /// known.
    ///
    /// # Errors
    /// Fails when the removal could not be made durable.
    async fn retain(&self, ids: Vec<WorkspaceId>) -> Result<(), ToolError>;
}

/// Connection as a value: bytes both ways, half-closed by a shutdown, ended by being dropped.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Ports of workspaces.
#[async_trait]
pub trait WorkspacePorts: Send + Sync {
    /// Connects to a port of a workspace of the caller's session: of its loopback, or of an address that it
    /// has. The call's deadline and cancellation bound the connecting alone. Needs no network of the
    /// workspace.
    ///
    /// # Errors
    /// `workspace_not_found`; `not_owner`; `workspace_state` when it does not run; `port_closed`;
    /// `guest_unreachable`; `guest_unsupported` for a guest of an older daemon; those of the link.
    async fn dial(
        &self,
        cx: &CallCx,
        workspace: WorkspaceId,
        port: u16,
    ) -> Result<Box<dyn ByteStream>, ToolError>;

    /// The same for whoever connects to a forward of the workspace, on its owner's behalf. Within
    /// the patience it also waits for workspaces that a daemon that starts has not taken up yet.
    ///
    /// # Errors
    /// As [`Self::dial`]; `not_owner` for a workspace that nobody owns.
    async fn dial_forward(
        &self,
        workspace: WorkspaceId,
        port: u16,
        patience: Duration,
    ) -> Result<Box<dyn ByteStream>, ToolError>;

    /// Has the machine of a workspace awake, for packets that came for it, on its owner's behalf.
    ///
    /// # Errors
    /// As [`Self::dial_forward`], without those of the port.
    async fn wake(&self, workspace: WorkspaceId, patience: Duration) -> Result<(), ToolError>;
}

/// Connections that programs in workspaces make to the daemon.
#[async_trait]
pub trait ProgramConnections: Send + Sync {
    /// Takes the next connection to a port of 127.0.0.1 in a workspace of the caller's session, where its guest
    /// listens for the daemon: from the first call on, and for ten minutes after the last. What connects while nobody
    /// waits is queued there. The call's deadline and cancellation bound the waiting alone.
    ///
    /// # Errors
    /// As [`WorkspacePorts::dial`]; `guest_port_taken` when a program of the workspace listens there.
    async fn accept(
        &self,
        cx: &CallCx,
        workspace: WorkspaceId,
        port: u16,
    ) -> Result<Box<dyn ByteStream>, ToolError>;
}

/// Request for a port's URL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortUrlRequest {
    /// Makes the port public, or private again; `None` leaves it.
    pub public: Option<bool>,
    /// Time that a signed link opens a private port.
    pub expires_secs: u64,
}

/// URL of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortUrl {
    /// URL, which stays the same.
    pub url: String,
    /// True if it needs no credential.
    pub public: bool,
    /// Signed link to a private port, and when it expires.
    pub link: Option<(String, DateTime<Utc>)>,
}

/// URLs of ports. Offered only while they are served. Whose the workspace is has been judged by the caller.
#[async_trait]
pub trait PortUrls: Send + Sync {
    /// Gives a port's URL, after what is asked about it is durable.
    ///
    /// # Errors
    /// `too_many_public_ports`; `journal_failed`.
    async fn url(
        &self,
        workspace: WorkspaceId,
        name: &str,
        port: u16,
        request: PortUrlRequest,
    ) -> Result<PortUrl, ToolError>;

    /// Public ports of a workspace with their URLs, in order.
    fn public(&self, workspace: WorkspaceId, name: &str) -> Vec<(u16, String)>;
}
