//! Plan of a network: its desired state, a value without I/O.
//!
//! ```text
//! NetworkPlan ── tag ──────► the names of its bridge, taps and tables
//!    ├────────── subnet ───► the gateway, and an AddressLease for each workspace
//!    └────────── members ─┬─ AddressLease  address and MAC, kept by the caller for good
//!                         ├─ MemberPolicy  what it may reach and who may reach it
//!                         └─ Forward*      ports of the host that lead to it
//! ```
//! A [`NetworkPlan`] holds only what is consistent: [`NetworkPlan::admit`] refuses a lease outside the
//! subnet, one that another member has, and a forward whose port is taken. So what is rendered
//! from it needs no further checks.

mod egress;
mod lease;
pub(crate) mod member;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use hivekeep_kernel::WorkspaceId;
use hivekeep_ports::NetworkGroup;

pub use egress::{AddressBlock, BadEgress, Destination, Egress, HostName, PortRange};
pub use lease::{AddressLease, Mac, Subnet, Tag};
pub use member::{
    Forward, MAX_EGRESS, MAX_FORWARDS, MemberPolicy, NetworkMember, Protocol, UserMode,
    UserModeUnsupported,
};

/// The reason why a plan does not admit something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A tag names interfaces, which the kernel limits to 15 bytes.
    #[error(
        "`{0}` is not a valid tag: expected a letter and up to five more letters or digits, lower case"
    )]
    BadTag(String),
    /// Not a network that guests can live in.
    #[error("`{text}` is not a valid subnet for guests: {why}")]
    BadSubnet {
        /// The text, as given.
        text: String,
        /// The fault.
        why: &'static str,
    },
    /// Every address is taken.
    #[error("no address is left in {0}")]
    SubnetFull(Subnet),
    /// The lease was allotted in another subnet: allot a new one.
    #[error("{address} is not a guest's address in {subnet}")]
    LeaseElsewhere {
        /// Address of the lease.
        address: Ipv4Addr,
        /// Subnet of this network.
        subnet: Subnet,
    },
    /// Two members cannot have one lease.
    #[error("{address} or {mac} belongs to {by}")]
    LeaseTaken {
        /// Address of the lease.
        address: Ipv4Addr,
        /// MAC of the lease.
        mac: Mac,
        /// The workspace that has it.
        by: WorkspaceId,
    },
    /// The host's port leads elsewhere already.
    #[error("{protocol} port {host_port} of the host leads to {by} already")]
    PortTaken {
        /// Protocol of the forward.
        protocol: Protocol,
        /// Host port of the forward.
        host_port: u16,
        /// The workspace that the port leads to.
        by: WorkspaceId,
    },
    /// Port 0, or an address of the guests' own network.
    #[error("a forward from {0} to guest port {1} leads nowhere")]
    BadForward(std::net::SocketAddrV4, u16),
    /// More of something than a member may have.
    #[error("at most {limit} {what} for one workspace")]
    TooMany {
        /// The things that are too many.
        what: &'static str,
        /// The most that one member may have.
        limit: usize,
    },
}

/// The network of all workspaces of one daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkPlan {
    tag: Tag,
    subnet: Subnet,
    serves_names: bool,
    members: BTreeMap<WorkspaceId, NetworkMember>,
}

impl NetworkPlan {
    /// A network without members and without a resolver.
    pub fn new(tag: Tag, subnet: Subnet) -> Self {
        Self { tag, subnet, serves_names: false, members: BTreeMap::new() }
    }

    /// Opens port 53 of the gateway to guests, who reach whatever listens there: to be called once
    /// [`crate::resolver::Resolver::bind`] has the port.
    pub fn serve_names(&mut self, serves: bool) {
        self.serves_names = serves;
    }

    /// True when guests find a resolver at the gateway.
    pub fn serves_names(&self) -> bool {
        self.serves_names
    }

    /// The names of its interfaces and tables begin with this.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// The subnet of the guests.
    pub fn subnet(&self) -> Subnet {
        self.subnet
    }

    /// Members in order of age.
    pub fn members(&self) -> impl ExactSizeIterator<Item = (WorkspaceId, &NetworkMember)> {
        self.members.iter().map(|(id, member)| (*id, member))
    }

    /// Member of an id.
    pub fn member(&self, id: WorkspaceId) -> Option<&NetworkMember> {
        self.members.get(&id)
    }

    /// The interface of the host behind which a member's machine is.
    pub fn tap(&self, lease: AddressLease) -> String {
        self.tag.tap(self.subnet.offset(lease.address))
    }

    /// A free lease. The same workspace gets the same one as long as it is free. To be stored by
    /// the caller and given back in [`NetworkPlan::admit`].
    ///
    /// # Errors
    /// [`PlanError::SubnetFull`].
    pub fn allot(&self, id: WorkspaceId) -> Result<AddressLease, PlanError> {
        let taken = self.members.values().map(|member| member.lease.address).collect();
        self.subnet.allot(id, &taken)
    }

    /// Takes a member in, in place of what was known of it. Refused, the network stays as it was.
    ///
    /// # Errors
    /// Whatever would make the network contradict itself.
    pub fn admit(&mut self, id: WorkspaceId, member: NetworkMember) -> Result<(), PlanError> {
        let lease = member.lease;
        if !self.subnet.is_guest(lease.address) {
            return Err(PlanError::LeaseElsewhere { address: lease.address, subnet: self.subnet });
        }
        let others = || self.members.iter().filter(|(other, _)| **other != id);
        if let Some((by, _)) = others().find(|(_, other)| other.lease.clashes(lease)) {
            return Err(PlanError::LeaseTaken { address: lease.address, mac: lease.mac, by: *by });
        }
        member.policy.check()?;
        if member.forwards.len() > MAX_FORWARDS {
            return Err(PlanError::TooMany { what: "port forwards", limit: MAX_FORWARDS });
        }
        for (at, forward) in member.forwards.iter().enumerate() {
            forward.check(self.subnet)?;
            let own = member.forwards[..at].iter().any(|earlier| earlier.clashes(forward));
            let mut theirs = others();
            let by = theirs.find(|(_, m)| m.forwards.iter().any(|f| f.clashes(forward)));
            if let Some(by) = by.map(|(by, _)| *by).or(own.then_some(id)) {
                let Forward { protocol, host_port, .. } = *forward;
                return Err(PlanError::PortTaken { protocol, host_port, by });
            }
        }
        self.members.insert(id, member);
        Ok(())
    }

    /// Takes a member out. Its lease may be allotted again.
    pub fn dismiss(&mut self, id: WorkspaceId) -> Option<NetworkMember> {
        self.members.remove(&id)
    }

    /// Addresses of the members with `allow_inter_vm`, who reach one another.
    pub fn inter_vm(&self) -> impl Iterator<Item = Ipv4Addr> {
        let open = self.members.values().filter(|member| member.policy.allow_inter_vm);
        open.map(|member| member.lease.address)
    }

    /// The groups that have members, and those, who reach one another.
    pub fn groups(&self) -> BTreeMap<&NetworkGroup, Vec<Ipv4Addr>> {
        let mut groups = BTreeMap::<_, Vec<_>>::new();
        for member in self.members.values() {
            if let Some(group) = &member.policy.group {
                groups.entry(group).or_default().push(member.lease.address);
            }
        }
        groups
    }

    /// True when the host's own loopback leads to a guest.
    pub fn forwards_loopback(&self) -> bool {
        let mut forwards = self.members.values().flat_map(|member| &member.forwards);
        forwards.any(|f| f.is_loopback() || f.host_ip.is_unspecified())
    }

    /// True when packets have to pass between the bridge and the host's other interfaces.
    pub fn leaves_the_host(&self) -> bool {
        self.members.values().any(|member| {
            member.policy.reaches_out() || member.forwards.iter().any(|f| !f.is_loopback())
        })
    }
}
