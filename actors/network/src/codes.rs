//! Error codes of the network of workspaces.

pub(crate) use hivekeep_kernel::codes::*;

hivekeep_kernel::codes! {
    /// The self-test has not shown that network policies hold.
    POLICY_UNPROVEN = "policy_unproven" {
        cause: "A part of the last self-test could not be run to its end.",
        next: "Repeat the call: the daemon repeats the self-test; `hivekeep ps` shows what is open.",
    }
    /// The workspace has no place in the network.
    NOT_IN_NETWORK = "not_in_network" {
        cause: "It was made while there was no network, or is being removed.",
        next: "Stop the workspace and start it again.",
    }
    /// The port of the host is in use.
    PORT_TAKEN = "port_taken" {
        cause: "Another forward or another program has it; `details.by` says which.",
        next: "Choose another port, or leave it out to be given a free one.",
    }
    /// No forward leads to this port of the guest.
    FORWARD_NOT_FOUND = "forward_not_found" {
        cause: "The port or the protocol is wrong, or the forward was removed.",
        next: "`workspace_info` lists the forwards.",
    }
    /// The workspace has as many port forwards as it may.
    TOO_MANY_FORWARDS = "too_many_forwards" {
        cause: "Forwards are not removed when they are not needed any more.",
        next: "Remove some with `port_forward`.",
    }
    /// The network has no free address.
    SUBNET_FULL = "subnet_full" {
        cause: "There are as many workspaces as `network.subnet` has addresses.",
        next: "Destroy a workspace, or set `network.subnet` to a larger network.",
    }
    /// The configured address is not one of this host.
    ADDRESS_UNAVAILABLE = "address_unavailable" {
        cause: "`network.forward_host_ip` is wrong, or the host's addresses changed.",
        next: "Set `network.forward_host_ip` to an address of this host.",
    }
    /// The network interface of a machine is held by an earlier one.
    CABLE_TAKEN = "cable_taken" {
        cause: "The machine before has not ended yet.",
        next: "Wait for its end, then repeat the call.",
    }
    /// A change of the host's network failed.
    NETWORK_FAILED = "network_failed" {
        cause: "The kernel or a program refused it, or something else changed the network.",
        next: "`hivekeep ps` says whether the network is degraded; the daemon tries again.",
    }
}
