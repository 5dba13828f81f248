//! `network_policy` and `port_forward`. The network's actor publishes the changes.

use std::{sync::Arc, time::Instant};

use hivekeep_kernel::{CallCx, Layer, Reply, ToolError, WorkspaceId};
use hivekeep_machine::{Driver, MachineHandle};
use hivekeep_ports::{NetworkRequest, NetworkView, Transport};

use crate::{
    codes,
    handle::WorkspaceHandle,
    network::{
        api::{ForwardAction, ForwardResult, Forwarded, PolicyInForce, PortForward},
        lease::has_its_forwards,
        public_urls,
        reach::later,
    },
    phase::{Phase, Want},
    records::Planned,
    state::Workspace,
};

/// Lowest port of the host for forwards; those below are for its own services.
const FIRST_PORT: u16 = 1024;

/// `network_policy`.
///
/// # Errors
/// When the workspace is changing its phase, or has no network.
pub(crate) fn network_policy(
    state: &mut Workspace,
    request: NetworkRequest,
) -> Result<Reply<PolicyInForce>, ToolError> {
    state.on(Want::Network)?;
    let begun = Instant::now();
    let (workspace, plan) = (state.handle.clone(), state.ledger.plan.clone());
    let launched = state.ledger.handle().is_some();
    Ok(Reply::later(async move {
        let before = member(&workspace, &plan, launched).await?.policy;
        let network = &workspace.shared.network;
        let policy = if request == NetworkRequest::default() {
            // An empty request only reads: the policy is looked up once the kernel enforces it.
            network.settled(workspace.id).await?;
            network.view(workspace.id).map_or(before.clone(), |view| view.policy)
        } else {
            network.set_policy(workspace.id, request).await?
        };
        let changed = policy != before;
        Ok(PolicyInForce {
            workspace_id: workspace.id,
            network_policy: policy,
            changed,
            applied: true,
            verified: true,
            took_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }))
}

/// `port_forward`.
///
/// # Errors
/// When the workspace is changing its phase, has no network, or a port is invalid.
pub(crate) fn port_forward(
    state: &mut Workspace,
    _: &CallCx,
    input: PortForward,
) -> Result<Reply<ForwardResult>, ToolError> {
    let (adds, guest_port, host_port) = match input.action {
        ForwardAction::List { guest_port } => return Ok(Reply::Now(forwards(state, guest_port))),
        ForwardAction::Add { guest_port, host_port } => (true, guest_port, host_port),
        ForwardAction::Remove { guest_port, host_port } => (false, guest_port, host_port),
    };
    let ends = Ends { protocol: input.protocol, guest_port, host_port };
    check(&ends, adds)?;
    state.on(Want::Network)?;
    let (workspace, plan) = (state.handle.clone(), state.ledger.plan.clone());
    let machine = match (state.status.phase, state.ledger.handle()) {
        (Phase::Running | Phase::Paused | Phase::HostDiskFull, Some(handle)) => {
            let driver = state.handle.shared.driver(plan.spec.isolation)?;
            Some((driver, handle.clone()))
        }
        _ => None,
    };
    // A start waits for this change: the machine would be launched with the old forwards.
    let under_way = Arc::clone(&state.status.forwarding);
    Ok(Reply::later(async move {
        member(&workspace, &plan, machine.is_some()).await?;
        let done = match adds {
            true => add(&workspace, &ends, machine.as_ref()).await,
            false => remove(&workspace, &ends, machine.as_ref()).await,
        };
        drop(under_way);
        done
    }))
}

fn forwards(state: &Workspace, guest_port: u16) -> ForwardResult {
    let forwards = state.handle.shared.network.view(state.handle.id).map(|view| view.forwards);
    let forwards = forwards.iter().flatten().map(Forwarded::of);
    let asked = |forward: &Forwarded| [0, forward.guest_port].contains(&guest_port);
    ForwardResult {
        forwards: Some(forwards.filter(asked).collect()),
        public_urls: public_urls(&state.handle, &state.ledger.plan, guest_port),
        ..ForwardResult::of(state.handle.id)
    }
}

/// A workspace's place in the network. A workspace made before there was a network gets its place
/// now, unless its machine runs without an interface.
async fn member(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    launched: bool,
) -> Result<NetworkView, ToolError> {
    workspace.shared.needs_network(plan.spec.isolation).await?;
    let network = &workspace.shared.network;
    if network.view(workspace.id).is_none() {
        if launched {
            let message = "its machine was started without a network";
            return Err(ToolError::new(Layer::Machine, codes::NETWORK_UNAVAILABLE, message)
                .next("call workspace_stop and workspace_start"));
        }
        network.join(workspace.id, later(&plan.network)).await?;
    }
    network.view(workspace.id).ok_or_else(|| ToolError::internal("a member without a place"))
}

/// Ends of a forward.
struct Ends {
    protocol: Transport,
    guest_port: u16,
    host_port: Option<u16>,
}

fn check(ends: &Ends, adds: bool) -> Result<(), ToolError> {
    if ends.guest_port == 0 {
        return Err(ToolError::invalid("guest_port must be 1 to 65535"));
    }
    if let (true, Some(port)) = (adds, ends.host_port.filter(|port| *port < FIRST_PORT)) {
        return Err(ToolError::invalid(format!(
            "host_port must be {FIRST_PORT} or above, not {port}"
        ))
        .next("leave host_port out for a free one"));
    }
    Ok(())
}

async fn add(
    workspace: &WorkspaceHandle,
    ends: &Ends,
    machine: Option<&Running>,
) -> Result<ForwardResult, ToolError> {
    let Ends { protocol, guest_port, host_port } = *ends;
    let network = &workspace.shared.network;
    let added = network.add_forward(workspace.id, protocol, guest_port, host_port).await;
    let added = added.map_err(|error| name_holder(workspace, error))?;
    if let Err(error) = tell_machine(workspace, machine).await {
        // The forward was not promised, so it must not come with the machine's next start either.
        network.remove_forward(workspace.id, protocol, guest_port, Some(added.host_port)).await?;
        return Err(error);
    }
    let forward = Forwarded::of(&added);
    Ok(ForwardResult {
        guest_port: Some(forward.guest_port),
        host_port: Some(forward.host_port),
        host_ip: Some(forward.host_ip),
        protocol: Some(protocol),
        ..ForwardResult::of(workspace.id)
    })
}

async fn remove(
    workspace: &WorkspaceHandle,
    ends: &Ends,
    machine: Option<&Running>,
) -> Result<ForwardResult, ToolError> {
    let Ends { protocol, guest_port, host_port } = *ends;
    let network = &workspace.shared.network;
    let removed = network.remove_forward(workspace.id, protocol, guest_port, host_port).await?;
    if let Err(error) = tell_machine(workspace, machine).await {
        // The forward may still work, so it stays listed and can be removed again.
        for one in &removed {
            network
                .add_forward(workspace.id, protocol, one.guest_port, Some(one.host_port))
                .await?;
        }
        return Err(error.next("the forward is still there: repeat the call"));
    }
    let removed: Vec<_> = removed.iter().map(Forwarded::of).collect();
    Ok(ForwardResult {
        guest_port: Some(guest_port),
        protocol: Some(protocol),
        removed: Some(removed),
        ..ForwardResult::of(workspace.id)
    })
}

/// A running machine, whose forwards may have to be set.
type Running = (Arc<dyn Driver>, MachineHandle);

/// Sets the hypervisor's forwards to those promised: in user mode they are its own. Also sets those
/// that an earlier call could not, and repeats while others change meanwhile.
async fn tell_machine(
    workspace: &WorkspaceHandle,
    machine: Option<&Running>,
) -> Result<(), ToolError> {
    let Some((driver, handle)) = machine else { return Ok(()) };
    has_its_forwards(workspace, driver.as_ref(), handle).await
}

/// Adds the holder's name to an error of the network, which knows ids only.
fn name_holder(workspace: &WorkspaceHandle, error: ToolError) -> ToolError {
    let by = error.details.get("by").and_then(|id| id.as_str());
    let by = by.and_then(|id| id.parse::<WorkspaceId>().ok()).map(|id| id.to_string());
    let card = by.as_ref().and_then(|id| workspace.shared.directory.card(id).ok());
    let (Some(by), Some(card)) = (by, card) else { return error };
    let message = error.message.replace(&by, &format!("workspace `{}`", card.name));
    ToolError { message, ..error }.detail("workspace", card.name.to_string())
}
