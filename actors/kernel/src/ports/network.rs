//! The network as a workspace sees it.
//!
//! ```text
//! join ─► cable ─► the machine is launched ─► settled ─► the guest takes its Attachment ─► leave
//!            a policy or a forward may be changed at any time in between and later
//! ```

mod group;

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::OwnedFd,
    sync::Arc,
};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ToolError, WorkspaceId};

pub use group::{BadGroup, GroupChange, NetworkGroup};

/// What a workspace may reach, and who may reach it. The default allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkPolicy {
    /// Public addresses of the internet. Never private, link-local or metadata addresses, nor the
    /// host.
    pub allow_internet: bool,
    /// Other workspaces that allow it too.
    pub allow_inter_vm: bool,
    /// The ports on which other workspaces get in, those of its group too; empty is every port.
    pub allowed_ports: Vec<u16>,
    /// What else it may reach: addresses, blocks or names, each with ports if need be.
    pub egress_allow: Vec<String>,
    /// The group whose other members it reaches and who reach it, whatever `allow_inter_vm` says;
    /// on `allowed_ports` only where there are some. Absent where it is in none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<NetworkGroup>,
}

/// A change of a policy. What is `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkWish {
    /// See [`NetworkPolicy::allow_internet`].
    pub allow_internet: Option<bool>,
    /// See [`NetworkPolicy::allow_inter_vm`].
    pub allow_inter_vm: Option<bool>,
    /// See [`NetworkPolicy::allowed_ports`].
    pub allowed_ports: Option<Vec<u16>>,
    /// See [`NetworkPolicy::egress_allow`].
    pub egress_allow: Option<Vec<String>>,
    /// See [`NetworkPolicy::group`].
    pub group: Option<GroupChange>,
}

/// What carries ports.
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
pub struct PortForward {
    /// TCP or UDP.
    pub transport: Transport,
    /// Where the host listens.
    pub host_ip: Ipv4Addr,
    /// Where the host listens.
    pub host_port: u16,
    /// Where it leads.
    pub guest_port: u16,
}

impl PortForward {
    /// The host's end.
    pub fn host(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.host_ip, self.host_port)
    }
}

/// How the guest has to set its interface. The same for the workspace's whole life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The interface's own address.
    pub mac: [u8; 6],
    /// The guest's address.
    pub address: Ipv4Addr,
    /// Bits of the address that name its network.
    pub prefix_len: u8,
    /// The next hop to everything else.
    pub gateway: Ipv4Addr,
    /// Who answers names; `None` when nobody does.
    pub dns: Option<Ipv4Addr>,
}

/// The host's end of a machine's cable.
#[derive(Debug, Clone)]
pub enum Netdev {
    /// A queue of the workspace's tap: non-blocking, with a virtio header before each frame. One
    /// machine at a time.
    Tap(Arc<OwnedFd>),
    /// The hypervisor's own network stack, cut off from everything but these forwards.
    User(Vec<PortForward>),
}

/// How the daemon connects machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum NetworkMode {
    /// A bridge of our own with rules that were proved with packets.
    Bridge,
    /// Each machine alone, with forwards; there is no bridge because of `reason`.
    User {
        /// What is missing for a bridge.
        reason: String,
    },
    /// Machines have no network.
    Off {
        /// Why.
        reason: String,
    },
}

/// What is in force for one workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkView {
    /// Its place.
    pub attachment: Attachment,
    /// What it may reach.
    pub policy: NetworkPolicy,
    /// What leads to it.
    pub forwards: Vec<PortForward>,
}

/// The keeper of addresses, policies and forwards.
#[async_trait]
pub trait Network: Send + Sync {
    /// How machines are connected. Waits until the self-test of the start is over.
    ///
    /// # Errors
    /// When the network does not start.
    async fn mode(&self) -> Result<NetworkMode, ToolError>;

    /// Takes a workspace in with a policy, durably; for one that is in, changes what the wish
    /// names. Does not wait for the kernel: [`Network::settled`] does.
    ///
    /// # Errors
    /// `network_unavailable` where there is no network; `policy_unavailable` for a wish that this
    /// host cannot keep, with the reason; what is wrong with the wish.
    async fn join(&self, id: WorkspaceId, wish: NetworkWish) -> Result<Attachment, ToolError>;

    /// The cable of a machine that is about to be launched. Legal after [`Network::join`] and
    /// while no machine has it. Waits for the kernel where that is still being brought to a plan
    /// without this workspace.
    ///
    /// # Errors
    /// When the machine before still holds it.
    async fn cable(&self, id: WorkspaceId) -> Result<Netdev, ToolError>;

    /// Returns once the kernel keeps what the plan says of this workspace.
    ///
    /// # Errors
    /// When it could not be brought there.
    async fn settled(&self, id: WorkspaceId) -> Result<(), ToolError>;

    /// Changes a policy: durable, applied and verified when it returns.
    ///
    /// # Errors
    /// As [`Network::join`]; then nothing changed.
    async fn set_policy(
        &self,
        id: WorkspaceId,
        wish: NetworkWish,
    ) -> Result<NetworkPolicy, ToolError>;

    /// Leads a port of the host to the workspace: durable and applied when it returns. Without
    /// `host_port` it is a free one. The caller tells a running machine in user mode about it.
    ///
    /// # Errors
    /// `port_taken`, by whom; `too_many_forwards`.
    async fn add_forward(
        &self,
        id: WorkspaceId,
        transport: Transport,
        guest_port: u16,
        host_port: Option<u16>,
    ) -> Result<PortForward, ToolError>;

    /// Ends the forwards to a guest's port, or the one of them from `host_port`.
    ///
    /// # Errors
    /// `forward_not_found`.
    async fn remove_forward(
        &self,
        id: WorkspaceId,
        transport: Transport,
        guest_port: u16,
        host_port: Option<u16>,
    ) -> Result<Vec<PortForward>, ToolError>;

    /// What is in force; `None` for a workspace that is not in.
    fn view(&self, id: WorkspaceId) -> Option<NetworkView>;

    /// Takes a workspace out with everything of it. Legal when its machine has ended; success
    /// for one that is not in.
    ///
    /// # Errors
    /// When it could not be made durable.
    async fn leave(&self, id: WorkspaceId) -> Result<(), ToolError>;

    /// Takes all others out; said once after a start, when it is known which workspaces exist.
    ///
    /// # Errors
    /// When it could not be made durable.
    async fn retain(&self, ids: Vec<WorkspaceId>) -> Result<(), ToolError>;
}
