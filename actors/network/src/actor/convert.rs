//! Between the port's words and the plan's.

use hivekeep_kernel::ToolError;
use hivekeep_kernel::ports::{ForwardedPort, NetworkWish, ReachPolicy, Transport};

use crate::plan::{Egress, Forward, MemberPolicy, Protocol};

/// A policy with what a wish names changed.
///
/// # Errors
/// `invalid_input` for an invalid port or destination.
pub(super) fn wished(policy: &MemberPolicy, wish: NetworkWish) -> Result<MemberPolicy, ToolError> {
    let mut policy = policy.clone();
    if let Some(allow) = wish.allow_internet {
        policy.allow_internet = allow;
    }
    if let Some(allow) = wish.allow_inter_vm {
        policy.allow_inter_vm = allow;
    }
    if let Some(ports) = wish.allowed_ports {
        if ports.contains(&0) {
            return Err(ToolError::invalid("allowed_ports: 0 is not a valid port"));
        }
        policy.allowed_ports = ports.into_iter().collect();
    }
    if let Some(entries) = wish.egress_allow {
        let parse = |text: String| text.parse::<Egress>();
        let parsed: Result<_, _> = entries.into_iter().map(parse).collect();
        policy.egress_allow =
            parsed.map_err(|bad| ToolError::invalid(format!("egress_allow: {bad}")))?;
    }
    if let Some(change) = wish.group {
        policy.group = change.group();
    }
    Ok(policy)
}

pub(super) fn policy(policy: &MemberPolicy) -> ReachPolicy {
    ReachPolicy {
        allow_internet: policy.allow_internet,
        allow_inter_vm: policy.allow_inter_vm,
        allowed_ports: policy.allowed_ports.iter().copied().collect(),
        egress_allow: policy.egress_allow.iter().map(ToString::to_string).collect(),
        group: policy.group.clone(),
    }
}

pub(super) fn forward(forward: &Forward) -> ForwardedPort {
    let transport = match forward.protocol {
        Protocol::Tcp => Transport::Tcp,
        Protocol::Udp => Transport::Udp,
    };
    let Forward { host_ip, host_port, guest_port, .. } = *forward;
    ForwardedPort { transport, host_ip, host_port, guest_port }
}

pub(super) fn protocol(transport: Transport) -> Protocol {
    match transport {
        Transport::Tcp => Protocol::Tcp,
        Transport::Udp => Protocol::Udp,
    }
}
