//! A machine's place in the network: its interface before it starts, its address once it answers.
//!
//! ```text
//! join ─── while the plan becomes durable     settled ──── while the machine boots
//! interface ─ while the disk is prepared      SetNetwork ─ beside what the guest is told of itself
//!                                              plug ─────── after that, for a copy of another one
//! ```
//! A workspace joins after its plan is on its way into the journal, and leaves before its records
//! are forgotten: what a crash leaves in between is either undone with the plan or, without one,
//! dismissed by the next start. A machine that runs has a member behind it.

use std::time::Duration;

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_link::{CallTerms, Link};
use hivekeep_machine::{Driver, Isolation, MachineHandle, Nic, NicEnd};
use hivekeep_ports::{InterfaceSettings, Netdev, NetworkMode, ReachPolicy};
use hivekeep_protocol::{NetworkSet, SetNetwork};

use crate::{
    codes,
    handle::WorkspaceHandle,
    network::reach::{later, mac_text},
    records::Planned,
};

/// Time for the guest to set its interface and to hear of its gateway, under emulation.
const GUEST_PATIENCE: Duration = Duration::from_secs(30);

/// The guest asks for its gateway for a second each time; on a host with more machines than
/// processors that can be too short.
const GATEWAY_TRIES: u32 = 5;
const GATEWAY_PAUSE: Duration = Duration::from_millis(100);

/// Interface settings promised to a machine that starts or runs.
pub(crate) struct NetworkLease {
    attachment: InterfaceSettings,
    /// Whether the connection is by a bridge, whose gateway answers.
    bridge: bool,
}

/// Lease of a workspace; `None` where it has none. A workspace made before there was a network
/// joins now, with what its creation asked for.
async fn lease(
    workspace: &WorkspaceHandle,
    plan: &Planned,
) -> Result<Option<NetworkLease>, ToolError> {
    if plan.spec.isolation == Isolation::Sandbox {
        return Ok(None);
    }
    let network = &workspace.shared.network;
    let bridge = match network.mode().await? {
        NetworkMode::Bridge => true,
        NetworkMode::User { .. } => false,
        NetworkMode::Off { .. } => return Ok(None),
    };
    let attachment = match network.view(workspace.id) {
        Some(view) => view.attachment,
        None => network.join(workspace.id, later(&plan.network)).await?,
    };
    Ok(Some(NetworkLease { attachment, bridge }))
}

/// Lease and interface of a workspace whose machine is about to be launched. A workspace that wakes
/// still counts as parked meanwhile; it gets its forwards when it goes on.
///
/// # Errors
/// When the network does not start, refuses the workspace, or an earlier machine holds the interface.
pub(crate) async fn interface(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    wakes: bool,
) -> Result<(Option<NetworkLease>, Option<Nic>), ToolError> {
    let Some(lease) = lease(workspace, plan).await? else { return Ok((None, None)) };
    if !wakes {
        workspace.shared.network.set_parked(workspace.id, false).await?;
    }
    let InterfaceSettings { mac, .. } = lease.attachment;
    let end = match workspace.shared.network.cable(workspace.id).await? {
        Netdev::Tap(queue) => NicEnd::Tap(queue),
        Netdev::User(forwards) => NicEnd::User { attachment: lease.attachment, forwards },
    };
    Ok((Some(lease), Some(Nic { mac, end })))
}

/// Waits until the kernel enforces what was promised to a launched machine.
///
/// A machine whose memory has no interface has no lease: its workspace is out of the network until
/// its next start.
///
/// # Errors
/// When the kernel could not be set up; `guest_network_failed` when a machine without an interface
/// was promised more than an address.
pub(crate) async fn settled(
    workspace: &WorkspaceHandle,
    lease: Option<NetworkLease>,
    handle: &MachineHandle,
) -> Result<Option<NetworkLease>, ToolError> {
    let (Some(lease), network) = (lease, &workspace.shared.network) else { return Ok(None) };
    if handle.nic {
        network.set_parked(workspace.id, false).await?;
        network.settled(workspace.id).await?;
        return Ok(Some(lease));
    }
    let closed = network
        .view(workspace.id)
        .is_none_or(|view| view.policy == ReachPolicy::default() && view.forwards.is_empty());
    if !closed {
        let message = "the memory it begins with was saved without a network interface";
        return Err(failed(message.to_owned()).next("begin without the snapshot's memory"));
    }
    network.leave(workspace.id).await?;
    Ok(None)
}

/// Has the guest set its interface, and checks its answer.
///
/// A machine that begins with saved memory is `unplugged`: it is plugged in only once its guest has
/// given up the address in that memory, and its gateway is checked after that.
///
/// # Errors
/// `guest_network_failed`; when the machine cannot be plugged in.
pub(crate) async fn configure(
    lease: Option<NetworkLease>,
    link: &Link,
    unplugged: Option<(&dyn Driver, &MachineHandle)>,
) -> Result<(), ToolError> {
    let Some(lease) = lease else { return Ok(()) };
    if let Some((driver, handle)) = unplugged {
        lease.check(&lease.ask(link).await?)?;
        driver.plug(handle).await?;
        if !lease.bridge {
            return Ok(());
        }
    }
    for _ in 0..GATEWAY_TRIES {
        let set = lease.ask(link).await?;
        lease.check(&set)?;
        // In user mode there is no gateway that would have to answer.
        if set.gateway_answers || !lease.bridge {
            return Ok(());
        }
        tokio::time::sleep(GATEWAY_PAUSE).await;
    }
    let gateway = lease.attachment.gateway;
    Err(failed(format!(
        "the guest's interface is not as asked: its gateway {gateway} does not answer"
    )))
}

/// Checks that a machine that outlived the daemon still has the network that it was promised.
///
/// # Errors
/// Those of [`settled`] and [`configure`].
pub(crate) async fn verify(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    link: &Link,
    driver: &dyn Driver,
    handle: &MachineHandle,
) -> Result<(), ToolError> {
    if !handle.nic {
        return Ok(());
    }
    let lease = settled(workspace, lease(workspace, plan).await?, handle).await?;
    // The daemon may have crashed before the machine was plugged in, or got a forward.
    let has_a_place = lease.is_some();
    configure(lease, link, Some((driver, handle))).await?;
    match has_a_place {
        true => has_its_forwards(workspace, driver, handle).await,
        false => Ok(()),
    }
}

/// Prepares the network for a park: connections to the machine's forwards wake it from here on.
///
/// # Errors
/// When the kernel could not be set up, or the machine keeps its ports.
pub(crate) async fn falls_asleep(
    workspace: &WorkspaceHandle,
    driver: &dyn Driver,
    handle: &MachineHandle,
) -> Result<(), ToolError> {
    if !handle.nic {
        return Ok(());
    }
    let network = &workspace.shared.network;
    if let NetworkMode::User { .. } = network.mode().await? {
        driver.set_forwards(handle, &[]).await?;
    }
    network.set_parked(workspace.id, true).await
}

/// Leads the forwards to a machine again that was parked, or about to be.
///
/// # Errors
/// Those of [`falls_asleep`]; then the daemon carries the connections until the next start.
pub(crate) async fn stays_awake(
    workspace: &WorkspaceHandle,
    driver: &dyn Driver,
    handle: &MachineHandle,
) -> Result<(), ToolError> {
    if !handle.nic {
        return Ok(());
    }
    workspace.shared.network.set_parked(workspace.id, false).await?;
    has_its_forwards(workspace, driver, handle).await
}

/// Sets the hypervisor's forwards to those promised, and repeats while others change meanwhile. Does
/// nothing where the forwards are the kernel's.
///
/// # Errors
/// When the hypervisor has other forwards afterwards.
pub(super) async fn has_its_forwards(
    workspace: &WorkspaceHandle,
    driver: &dyn Driver,
    handle: &MachineHandle,
) -> Result<(), ToolError> {
    const CHANGES: usize = 64;
    let NetworkMode::User { .. } = workspace.shared.network.mode().await? else { return Ok(()) };
    let promised =
        || workspace.shared.network.view(workspace.id).map_or(Vec::new(), |view| view.forwards);
    for _ in 0..CHANGES {
        let wanted = promised();
        driver.set_forwards(handle, &wanted).await?;
        if promised() == wanted {
            return Ok(());
        }
    }
    Err(ToolError::new(Layer::Actor, codes::BUSY, "the forwards change all the time").retryable())
}

/// Tells the network again that a workspace is parked.
pub(crate) async fn is_parked(workspace: &WorkspaceHandle) {
    if let Err(error) = workspace.shared.network.set_parked(workspace.id, true).await {
        tracing::warn!(workspace = %workspace.id, %error, "connections to its forwards may not wake it");
    }
}

/// Gives up the place of a workspace that could not be made.
pub(crate) async fn leave(workspace: &WorkspaceHandle) {
    if let Err(left) = workspace.shared.network.leave(workspace.id).await {
        // The daemon's next start dismisses what no living record names.
        tracing::error!(workspace = %workspace.id, %left, "a place in the network stays taken");
    }
}

impl NetworkLease {
    async fn ask(&self, link: &Link) -> Result<NetworkSet, ToolError> {
        let InterfaceSettings { mac, address, prefix_len, gateway, dns } = self.attachment;
        let request = SetNetwork {
            mac,
            address: address.octets(),
            prefix_len,
            gateway: gateway.octets(),
            dns: dns.map(|dns| dns.octets()),
        };
        link.ask(request, CallTerms::at_most(GUEST_PATIENCE)).await.map_err(|error| {
            let error = hivekeep_link::link_error(error);
            match error.layer {
                Layer::Guest => failed(format!("the guest could not: {}", error.message)),
                _ => error,
            }
        })
    }

    fn check(&self, set: &NetworkSet) -> Result<(), ToolError> {
        let InterfaceSettings { mac, address, prefix_len, gateway, dns } = self.attachment;
        let wrong = match () {
            () if set.mac != mac => format!("its own address is {}", mac_text(set.mac)),
            () if (set.address, set.prefix_len) != (address.octets(), prefix_len) => {
                format!("its address is {}/{}", dotted(set.address), set.prefix_len)
            }
            () if set.gateway != gateway.octets() => {
                format!("its gateway is {}", dotted(set.gateway))
            }
            () if set.dns != dns.map(|dns| dns.octets()) => "it asks another name server".into(),
            () => return Ok(()),
        };
        Err(failed(format!("the guest's interface is not as asked: {wrong}"))
            .detail("address", address.to_string()))
    }
}

fn dotted(address: [u8; 4]) -> String {
    std::net::Ipv4Addr::from(address).to_string()
}

fn failed(message: String) -> ToolError {
    ToolError::new(Layer::Guest, codes::GUEST_NETWORK_FAILED, message)
        .next("workspace_logs shows the guest's console")
}
