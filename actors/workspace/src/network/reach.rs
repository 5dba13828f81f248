//! The network as workspaces see it: who has one, and the network requests of creations and forks.

use std::time::Duration;

use hivekeep_kernel::{Layer, ToolError, WorkspaceId};
use hivekeep_machine::Isolation;
use hivekeep_ports::{
    GroupChange, InterfaceSettings, NetworkMode, NetworkRequest, NetworkView, ReachPolicy,
};

use crate::{
    codes,
    network::api::{Forwarded, NetworkKind, NetworkState},
    shared::Shared,
};

/// Wait for the mode of a network that is still testing itself; after it, the mode is left out.
const MODE_PATIENCE: Duration = Duration::from_millis(500);

impl Shared {
    /// The address of a workspace, as callers see it; `None` while it has none.
    pub(crate) fn ip(&self, id: WorkspaceId) -> Option<String> {
        self.network.view(id).map(|view| view.attachment.address.to_string())
    }

    /// Whether a machine of this kind gets an interface here.
    ///
    /// # Errors
    /// When the network does not start.
    pub(crate) async fn has_network(&self, isolation: Isolation) -> Result<bool, ToolError> {
        Ok(isolation == Isolation::Vm && missing(&self.network.mode().await?).is_none())
    }

    /// Refuses a request that a workspace of this kind cannot have here at all.
    ///
    /// # Errors
    /// `network_unavailable`, with the reason.
    pub(crate) async fn check_network(
        &self,
        isolation: Isolation,
        request: &NetworkRequest,
    ) -> Result<(), ToolError> {
        if asks_for_nothing(request) { Ok(()) } else { self.needs_network(isolation).await }
    }

    /// Refuses a workspace that has no interface.
    ///
    /// # Errors
    /// `network_unavailable`, with the reason.
    pub(super) async fn needs_network(&self, isolation: Isolation) -> Result<(), ToolError> {
        if isolation == Isolation::Sandbox {
            let message = "a sandbox has no network interface";
            return Err(ToolError::new(Layer::Machine, codes::NETWORK_UNAVAILABLE, message)
                .next("make the workspace with isolation `vm`"));
        }
        match missing(&self.network.mode().await?) {
            None => Ok(()),
            Some(reason) => {
                let message = format!("this daemon gives guests no network: {reason}");
                Err(ToolError::new(Layer::Machine, codes::NETWORK_UNAVAILABLE, message)
                    .next("leave the network out; move data with file_transfer"))
            }
        }
    }

    /// A workspace's network for `workspace_info`.
    pub(crate) async fn network_state(
        &self,
        id: WorkspaceId,
        isolation: Isolation,
    ) -> NetworkState {
        let (mode, reason) = match isolation {
            Isolation::Sandbox => {
                (NetworkKind::None, Some("a sandbox has no network interface".to_owned()))
            }
            Isolation::Vm => {
                let mode = tokio::time::timeout(MODE_PATIENCE, self.network.mode()).await;
                match mode {
                    Ok(Ok(NetworkMode::Bridge)) => (NetworkKind::Bridge, None),
                    Ok(Ok(NetworkMode::User { reason })) => (NetworkKind::User, Some(reason)),
                    Ok(Ok(NetworkMode::Off { reason })) => (NetworkKind::Off, Some(reason)),
                    Ok(Err(error)) => (NetworkKind::Off, Some(error.message)),
                    Err(_) => (NetworkKind::Starting, None),
                }
            }
        };
        NetworkState::new(mode, reason, self.network.view(id))
    }
}

impl NetworkState {
    /// Clears the state of a machine that was started without an interface.
    pub(crate) fn cut_off(&mut self) {
        if matches!(self.mode, NetworkKind::Off | NetworkKind::None) {
            return;
        }
        let reason = "its machine was started without a network: stop and start it";
        *self = Self { mode: self.mode, reason: Some(reason.to_owned()), ..Self::default() };
    }

    fn new(mode: NetworkKind, reason: Option<String>, view: Option<NetworkView>) -> Self {
        let (place, policy, forwards) = match view {
            Some(view) => (Some(view.attachment), view.policy, view.forwards),
            None => Default::default(),
        };
        let InterfaceSettings { mac, address, prefix_len, gateway, dns } = match place {
            Some(place) => place,
            None => return Self { mode, reason, ..Self::default() },
        };
        Self {
            mode,
            reason,
            allow_internet: policy.allow_internet,
            allow_inter_vm: policy.allow_inter_vm,
            allowed_ports: policy.allowed_ports,
            egress_allow: policy.egress_allow,
            group: policy.group,
            port_forwards: forwards.iter().map(Forwarded::of).collect(),
            address: Some(format!("{address}/{prefix_len}")),
            mac: Some(mac_text(mac)),
            gateway: Some(gateway.to_string()),
            dns: dns.map(|dns| dns.to_string()),
        }
    }
}

/// A MAC address as text.
pub(super) fn mac_text(mac: [u8; 6]) -> String {
    let [a, b, c, d, e, f] = mac;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

/// The reason why machines get no interface; `None` if they do.
fn missing(mode: &NetworkMode) -> Option<&str> {
    match mode {
        NetworkMode::Bridge | NetworkMode::User { .. } => None,
        NetworkMode::Off { reason } => Some(reason),
    }
}

/// Whether a request asks for nothing that needs a network.
fn asks_for_nothing(request: &NetworkRequest) -> bool {
    let NetworkRequest { allow_internet, allow_inter_vm, allowed_ports: _, egress_allow, group } =
        request;
    allow_internet != &Some(true)
        && allow_inter_vm != &Some(true)
        && egress_allow.as_ref().is_none_or(Vec::is_empty)
        && !matches!(group, Some(GroupChange::Join(_)))
}

/// Default network request of forks: all of their source's policy except its group, which only a team gives.
/// Forwards stay with the source.
pub(crate) fn inherited(shared: &Shared, source: WorkspaceId) -> NetworkRequest {
    let Some(view) = shared.network.view(source) else { return NetworkRequest::default() };
    let ReachPolicy { allow_internet, allow_inter_vm, allowed_ports, egress_allow, group: _ } =
        view.policy;
    NetworkRequest {
        allow_internet: Some(allow_internet),
        allow_inter_vm: Some(allow_inter_vm),
        allowed_ports: Some(allowed_ports),
        egress_allow: Some(egress_allow),
        group: None,
    }
}

/// The part of a creation's request that holds for a workspace that joins the network later: all but the
/// group. A workspace that had no group, or left it with the network, joins none, even if a group has
/// that name by now.
pub(crate) fn later(request: &NetworkRequest) -> NetworkRequest {
    NetworkRequest { group: None, ..request.clone() }
}

/// Merges two requests: `other` has the values that `request` leaves open.
pub(crate) fn over(request: NetworkRequest, other: NetworkRequest) -> NetworkRequest {
    NetworkRequest {
        allow_internet: request.allow_internet.or(other.allow_internet),
        allow_inter_vm: request.allow_inter_vm.or(other.allow_inter_vm),
        allowed_ports: request.allowed_ports.or(other.allowed_ports),
        egress_allow: request.egress_allow.or(other.egress_allow),
        group: request.group.or(other.group),
    }
}
