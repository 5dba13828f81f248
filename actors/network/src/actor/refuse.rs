//! Errors that callers get when something is refused or fails.

use hivekeep_kernel::{Layer, ToolError, WorkspaceId};

use crate::Error;
use crate::codes;
use crate::plan::{MAX_FORWARDS, PlanError, Protocol};

pub(super) fn off(reason: &str) -> ToolError {
    let message = format!("workspaces have no network: {reason}");
    ToolError::new(Layer::Machine, codes::NETWORK_UNAVAILABLE, message)
        .next("`network.mode` in the configuration says what is wanted; `hivekeep check` looks")
}

pub(super) fn policy(why: impl std::fmt::Display) -> ToolError {
    ToolError::new(Layer::Machine, codes::POLICY_UNAVAILABLE, why.to_string())
        .next("run `hivekeep check` on the host to see what is missing")
}

pub(super) fn unproven(why: String) -> ToolError {
    ToolError::new(Layer::Machine, codes::POLICY_UNPROVEN, why)
        .next("ask again: the daemon repeats the self-test; `hivekeep ps` shows what is open")
        .retryable()
}

pub(super) fn stranger(id: WorkspaceId) -> ToolError {
    ToolError::new(
        Layer::Machine,
        codes::NOT_IN_NETWORK,
        format!("{id} has no place in the network"),
    )
}

pub(super) fn port(protocol: Protocol, port: u16, by: &str) -> ToolError {
    let message = format!("{protocol} port {port} of the host leads to {by} already");
    ToolError::new(Layer::Machine, codes::PORT_TAKEN, message)
        .next("choose another port, or none to be given a free one")
        .detail("by", by)
}

pub(super) fn no_forward(protocol: Protocol, guest_port: u16) -> ToolError {
    let message = format!("no forward leads to {protocol} port {guest_port}");
    ToolError::new(Layer::Machine, codes::FORWARD_NOT_FOUND, message)
        .next("workspace_info lists the forwards")
}

/// Error for a request that the plan does not admit.
pub(super) fn plan(refused: PlanError) -> ToolError {
    let message = refused.to_string();
    match refused {
        PlanError::PortTaken { protocol, host_port, by } => {
            port(protocol, host_port, &by.to_string())
        }
        PlanError::TooMany { limit: MAX_FORWARDS, what: "port forwards" } => {
            ToolError::new(Layer::Machine, codes::TOO_MANY_FORWARDS, message).detail("limit", 64)
        }
        PlanError::SubnetFull(_) => ToolError::new(Layer::Machine, codes::SUBNET_FULL, message)
            .next("destroy a workspace, or set `network.subnet` to a larger network"),
        PlanError::TooMany { .. } | PlanError::BadForward(..) => ToolError::invalid(message),
        _ => ToolError::internal(message),
    }
}

/// Error for a request that the host does not carry out.
pub(super) fn host(error: &Error) -> ToolError {
    let message = error.to_string();
    match error {
        Error::PortTaken { .. } => ToolError::new(Layer::Machine, codes::PORT_TAKEN, message)
            .next("choose another port, or none to be given a free one")
            .detail("by", "another program"),
        Error::NotOurAddress(_) => {
            ToolError::new(Layer::Machine, codes::ADDRESS_UNAVAILABLE, message)
                .next("set `network.forward_host_ip` to an address of this host")
        }
        Error::TapBusy { .. } => ToolError::new(Layer::Machine, codes::CABLE_TAKEN, message)
            .next("the machine before still holds it; wait for its end")
            .retryable(),
        _ => ToolError::new(Layer::Machine, codes::NETWORK_FAILED, message)
            .next("`hivekeep ps` says whether the network is degraded; the daemon tries again")
            .retryable(),
    }
}
