//! Policy of one workspace: the addresses that it may reach, and the workspaces that may reach it.

use std::collections::BTreeSet;

use hivekeep_kernel::ports::NetworkGroup;
use serde::{Deserialize, Serialize};

use super::{Destination, Egress, PlanError};

/// Entries of one member's allow-list at most.
pub const MAX_EGRESS: usize = 64;
/// Allowed ports of one member at most.
const MAX_PORTS: usize = 256;

/// The default allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemberPolicy {
    /// Public addresses of the internet, all ports. Never private, link-local or metadata
    /// addresses, nor the host.
    pub allow_internet: bool,
    /// The other members that allow it too, in both directions.
    pub allow_inter_vm: bool,
    /// TCP and UDP ports on which `allow_inter_vm` or a group lets others in. Empty: all.
    pub allowed_ports: BTreeSet<u16>,
    /// Other destinations that the member may reach, private addresses included.
    pub egress_allow: Vec<Egress>,
    /// The other members of the same group, in both directions, whatever `allow_inter_vm` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<NetworkGroup>,
}

impl MemberPolicy {
    /// True when the policy lets anything out of the host.
    pub fn reaches_out(&self) -> bool {
        self.allow_internet || !self.egress_allow.is_empty()
    }

    /// The entries of the allow-list that are names.
    pub fn names(&self) -> impl Iterator<Item = &Egress> {
        self.egress_allow.iter().filter(|egress| matches!(egress.to, Destination::Name(_)))
    }

    pub(super) fn check(&self) -> Result<(), PlanError> {
        if self.egress_allow.len() > MAX_EGRESS {
            return Err(PlanError::TooMany { what: "allowed destinations", limit: MAX_EGRESS });
        }
        if self.allowed_ports.len() > MAX_PORTS {
            return Err(PlanError::TooMany { what: "allowed ports", limit: MAX_PORTS });
        }
        Ok(())
    }
}
