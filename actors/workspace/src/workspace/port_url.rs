//! URLs for ports of a workspace, which the daemon serves.

use std::sync::Arc;

use hivekeep_kernel::{
    CallCx, Layer, Reply, ToolError,
    ports::{PortUrl, PortUrlWish, PortUrls},
};

use super::Workspace;
use crate::{
    api::network::{PortUrlInput, PortUrlResult, PublicUrl},
    codes,
    handle::WorkspaceHandle,
    records::Planned,
};

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
        let wish = PortUrlWish { public, expires_secs };
        let PortUrl { url, public, link } = urls.url(workspace_id, &name, port, wish).await?;
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
