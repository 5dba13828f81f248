//! Policies of the network, and ports of the host that lead to a workspace.

use hivekeep_kernel::{CallCx, Reply, ToolError, ports::NetworkWish, tools};

use crate::{
    api::network::{
        ForwardResult, NetworkPolicy, PolicyInForce, PortForward, PortUrlInput, PortUrlResult,
    },
    workspace::{Workspace, policy, port_url},
};

tools! { pub FAMILY: "networking" for Workspace, addressed workspace by workspace_id;
    network_policy: NetworkPolicy => PolicyInForce = on_network_policy {
        title: "Network policy of a workspace", effect: Idempotent, risk: Risk::Medium,
    };
    port_forward: PortForward => ForwardResult = policy::port_forward {
        title: "Port forwards to a workspace", effect: Destroy, risk: Risk::Medium,
    };
    port_url: PortUrlInput => PortUrlResult = port_url::port_url {
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
        NetworkWish { allow_internet, allow_inter_vm, allowed_ports, egress_allow, group: None },
    )
}
