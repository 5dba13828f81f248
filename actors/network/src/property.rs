//! Promises of the network, each proven by the self-test.

use serde::{Deserialize, Serialize};

/// A promise of the network.
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
