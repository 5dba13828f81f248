//! Member of the network: its lease, its policy with the promises that rest on it, its forwards, and
//! what of them user mode keeps.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4};

use hivekeep_kernel::ToolError;
use hivekeep_ports::{ForwardedPort, NetworkGroup, NetworkRequest, ReachPolicy, Transport};
use serde::{Deserialize, Serialize};

use super::{AddressLease, Destination, Egress, PlanError, Subnet};

/// Entries of one member's allow-list at most.
pub const MAX_EGRESS: usize = 64;
/// Forwards of one member at most.
pub const MAX_FORWARDS: usize = 64;
/// Allowed ports of one member at most.
const MAX_PORTS: usize = 256;

/// Workspace in the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkMember {
    /// The member's address and MAC.
    #[serde(rename = "seat")]
    pub lease: AddressLease,
    /// The member's policy.
    pub policy: MemberPolicy,
    /// Ports of the host that lead to the member.
    pub forwards: Vec<Forward>,
    /// True if the member's machine is parked: the kernel leads no TCP connection to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parked: bool,
}

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

    /// The policy with what a request names changed.
    ///
    /// # Errors
    /// `invalid_input` for an invalid port or destination.
    pub(crate) fn changed(&self, request: NetworkRequest) -> Result<Self, ToolError> {
        let mut policy = self.clone();
        if let Some(allow) = request.allow_internet {
            policy.allow_internet = allow;
        }
        if let Some(allow) = request.allow_inter_vm {
            policy.allow_inter_vm = allow;
        }
        if let Some(ports) = request.allowed_ports {
            if ports.contains(&0) {
                return Err(ToolError::invalid("allowed_ports: 0 is not a valid port"));
            }
            policy.allowed_ports = ports.into_iter().collect();
        }
        if let Some(entries) = request.egress_allow {
            let parse = |text: String| text.parse::<Egress>();
            let parsed: Result<_, _> = entries.into_iter().map(parse).collect();
            policy.egress_allow =
                parsed.map_err(|bad| ToolError::invalid(format!("egress_allow: {bad}")))?;
        }
        if let Some(change) = request.group {
            policy.group = change.group();
        }
        Ok(policy)
    }
}

impl From<&MemberPolicy> for ReachPolicy {
    fn from(policy: &MemberPolicy) -> Self {
        Self {
            allow_internet: policy.allow_internet,
            allow_inter_vm: policy.allow_inter_vm,
            allowed_ports: policy.allowed_ports.iter().copied().collect(),
            egress_allow: policy.egress_allow.iter().map(ToString::to_string).collect(),
            group: policy.group.clone(),
        }
    }
}

/// A promise of the network, proven by the self-test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkProperty {
    /// Without `allow_inter_vm` or a group no packet of a guest reaches another: TCP, UDP, ARP, IPv6,
    /// VLAN, broadcast, unknown protocols.
    GuestsApart,
    /// With it they reach each other, on `allowed_ports` only where there are some.
    InterVm,
    /// Members of one group reach each other and no other group's, whose name may begin like
    /// theirs; who leaves is shut out at once.
    Groups,
    /// Frames from another MAC, address or VLAN are dropped, and ARP claims of others' addresses.
    SendersAreTrue,
    /// `allow_internet` opens public addresses and nothing is reached without it.
    Internet,
    /// Private, link-local and metadata addresses stay closed with `allow_internet`, and
    /// `egress_allow` opens what it names.
    PrivateNetworks,
    /// The host's services, its loopback included, cannot be reached by guests.
    HostIsClosed,
    /// Forwards work from the host's loopback and from outside, each as asked, and catch nothing
    /// else.
    Forwards,
    /// Addresses of names on the allow-list are open, other names are refused.
    AllowedNames,
    /// A narrowed policy ends running connections, an unrelated change leaves them alone.
    PolicyChanges,
    /// Where somebody has emptied the packet filter, nothing passes from a guest or to one, not
    /// even what its policy allows.
    EmptyFilter,
}

/// Transport protocol of a port.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    /// Lower-case name, as nft and people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

impl From<Transport> for Protocol {
    fn from(transport: Transport) -> Self {
        match transport {
            Transport::Tcp => Self::Tcp,
            Transport::Udp => Self::Udp,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A port of the host that leads to a port of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Forward {
    /// Address on which the host listens: one of loopback for itself alone, one of its other addresses, or
    /// 0.0.0.0 for all of them.
    pub host_ip: Ipv4Addr,
    /// Port of the host, not 0: automatic ports are chosen before, by [`crate::ports::PortReservation`].
    pub host_port: u16,
    /// Port of the guest.
    pub guest_port: u16,
    /// TCP or UDP.
    pub protocol: Protocol,
}

impl Forward {
    /// The host's end.
    pub fn host(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.host_ip, self.host_port)
    }

    /// Whether only the host itself reaches the port.
    pub fn is_loopback(&self) -> bool {
        self.host_ip.is_loopback()
    }

    pub(super) fn clashes(&self, other: &Self) -> bool {
        let any = self.host_ip.is_unspecified() || other.host_ip.is_unspecified();
        self.protocol == other.protocol
            && self.host_port == other.host_port
            && (any || self.host_ip == other.host_ip)
    }

    pub(super) fn check(&self, subnet: Subnet) -> Result<(), PlanError> {
        let inside = subnet.block().contains(self.host_ip) || self.host_ip.is_multicast();
        if self.host_port == 0 || self.guest_port == 0 || inside {
            return Err(PlanError::BadForward(self.host(), self.guest_port));
        }
        Ok(())
    }
}

impl From<Forward> for ForwardedPort {
    fn from(forward: Forward) -> Self {
        let transport = match forward.protocol {
            Protocol::Tcp => Transport::Tcp,
            Protocol::Udp => Transport::Udp,
        };
        let Forward { host_ip, host_port, guest_port, .. } = forward;
        Self { transport, host_ip, host_port, guest_port }
    }
}

/// User-mode networking, the part of a member's policy that holds without a bridge: a network of one
/// guest, nothing but its forwards.
///
/// QEMU's own network stack, in the machine's process, needs no rights. It can cut a guest off
/// from everything (`restrict=on`) and still forward ports of the host. It cannot let a guest out
/// without letting it reach the host's loopback and private networks too, and it connects no two
/// machines. What it cannot keep is refused, never half kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserMode {
    forwards: Vec<Forward>,
}

/// A part of a policy that user-mode networking cannot keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UserModeUnsupported {
    /// The guest would reach the host's loopback and private networks as well.
    #[error("allow_internet needs a bridge: user-mode networking cannot exclude private networks")]
    Internet,
    /// The guest's connections look like those of the host's own programs.
    #[error("egress_allow needs a bridge: user-mode networking cannot tell destinations apart")]
    Egress,
    /// User-mode networking knows one machine only.
    #[error("allow_inter_vm needs a bridge: user-mode networking connects no machines")]
    InterVm,
    /// User-mode networking knows one machine only.
    #[error("a group needs a bridge: user-mode networking connects no machines")]
    Group,
}

impl UserMode {
    /// # Errors
    /// The first request that cannot be kept.
    pub fn of(policy: &MemberPolicy, forwards: &[Forward]) -> Result<Self, UserModeUnsupported> {
        match policy {
            MemberPolicy { allow_internet: true, .. } => Err(UserModeUnsupported::Internet),
            MemberPolicy { allow_inter_vm: true, .. } => Err(UserModeUnsupported::InterVm),
            MemberPolicy { group: Some(_), .. } => Err(UserModeUnsupported::Group),
            MemberPolicy { egress_allow, .. } if !egress_allow.is_empty() => {
                Err(UserModeUnsupported::Egress)
            }
            _ => Ok(Self { forwards: forwards.to_vec() }),
        }
    }

    /// The value of QEMU's `-netdev`. Forwards of a running machine change by QMP instead.
    pub fn netdev(&self, id: &str) -> String {
        let mut value = format!("user,id={id},restrict=on,ipv6=off");
        for Forward { host_ip, host_port, guest_port, protocol } in &self.forwards {
            let rule = format_args!(",hostfwd={protocol}:{host_ip}:{host_port}-:{guest_port}");
            value.write_fmt(rule).expect("a String takes everything");
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_kept_is_refused_by_name() {
        let of = |policy| UserMode::of(&policy, &[]);
        let internet = MemberPolicy { allow_internet: true, ..MemberPolicy::default() };
        assert_eq!(of(internet), Err(UserModeUnsupported::Internet));
        let inter_vm = MemberPolicy { allow_inter_vm: true, ..MemberPolicy::default() };
        assert_eq!(of(inter_vm), Err(UserModeUnsupported::InterVm));
        let group = MemberPolicy { group: Some("a".parse().unwrap()), ..MemberPolicy::default() };
        assert_eq!(of(group), Err(UserModeUnsupported::Group));
        let egress_allow = vec!["10.1.2.3".parse().unwrap()];
        let egress = MemberPolicy { egress_allow, ..MemberPolicy::default() };
        assert_eq!(of(egress), Err(UserModeUnsupported::Egress));
    }

    #[test]
    fn a_closed_guest_has_its_forwards() {
        let (host_ip, protocol) = ([127, 0, 0, 1].into(), Protocol::Udp);
        let forward = Forward { host_ip, host_port: 8080, guest_port: 80, protocol };
        let closed = UserMode::of(&MemberPolicy::default(), &[forward]).unwrap();
        let expected = "user,id=net,restrict=on,ipv6=off,hostfwd=udp:127.0.0.1:8080-:80";
        assert_eq!(closed.netdev("net"), expected);
    }
}
