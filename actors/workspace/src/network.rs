//! Tools of the network: policies, ports of the host that lead to a workspace, and URLs.

pub(crate) mod api;
pub(crate) mod lease;
pub(crate) mod policy;
pub(crate) mod ports;
pub(crate) mod reach;

use std::sync::Arc;

use hivekeep_kernel::{CallCx, Layer, Reply, ToolError, tools};
use hivekeep_ports::{NetworkRequest, PortUrl, PortUrlRequest, PortUrls};

use self::api::{
    ForwardResult, NetworkPolicy, PolicyInForce, PortForward, PortUrlInput, PortUrlResult,
    PublicUrl,
};
use crate::{codes, handle::WorkspaceHandle, records::Planned, state::Workspace};

tools! { pub FAMILY: "networking" for Workspace, addressed workspace by workspace_id;
    network_policy: NetworkPolicy => PolicyInForce = on_network_policy {
        title: "Network policy of a workspace", effect: Idempotent, risk: Risk::Medium,
    };
    port_forward: PortForward => ForwardResult = policy::port_forward {
        title: "Port forwards to a workspace", effect: Destroy, risk: Risk::Medium,
    };
    port_url: PortUrlInput => PortUrlResult = port_url {
        title: "URL of a port in a workspace", effect: Idempotent, risk: Risk::Medium,
    };
}

fn on_network_policy(
    state: &mut Workspace,
    _: &CallCx,
    input: NetworkPolicy,
) -> Result<Reply<PolicyInForce>, ToolError> {
    let NetworkPolicy { allow_internet, allow_inter_vm, allowed_ports, egress_allow, .. } = input;
    if allowed_ports.as_ref().is_some_and(|ports| ports.contains(&0)) {
        return Err(ToolError::invalid("allowed_ports must be 1 to 65535"));
    }
    policy::network_policy(
        state,
        NetworkRequest { allow_internet, allow_inter_vm, allowed_ports, egress_allow, group: None },
    )
}

/// `port_url`.
///
/// # Errors
/// `port_urls_off` where the daemon serves none.
pub(crate) fn port_url(
    state: &mut Workspace,
    _: &CallCx,
    input: PortUrlInput,
) -> Result<Reply<PortUrlResult>, ToolError> {
    let PortUrlInput { port, public, expires_secs, .. } = input;
    let urls = urls(&state.handle).ok_or_else(|| {
        let why = "URLs for ports are not served: `http.ports.enabled` is false";
        ToolError::new(Layer::Actor, codes::PORT_URLS_OFF, why)
            .next("port_forward leads a port of the host there, where there is a network")
    })?;
    let (workspace_id, name) = (state.handle.id, state.ledger.plan.name.to_string());
    Ok(Reply::later(async move {
        let request = PortUrlRequest { public, expires_secs };
        let PortUrl { url, public, link } = urls.url(workspace_id, &name, port, request).await?;
        let (link, expires_at) = link.unzip();
        Ok(PortUrlResult { workspace_id, url, public, link, expires_at })
    }))
}

/// Ports that anybody reaches by a URL; `None` where no URLs are served.
pub(super) fn public_urls(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    guest_port: u16,
) -> Option<Vec<PublicUrl>> {
    let public = urls(workspace)?.public(workspace.id, plan.name.as_str());
    let asked = public.into_iter().filter(|(port, _)| [0, *port].contains(&guest_port));
    Some(asked.map(|(guest_port, url)| PublicUrl { guest_port, url }).collect())
}

fn urls(workspace: &WorkspaceHandle) -> Option<Arc<dyn PortUrls>> {
    workspace.shared.daemon.ports.find::<dyn PortUrls>()
}
