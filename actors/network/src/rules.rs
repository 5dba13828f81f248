//! Packet filter rules: the two nftables tables of a network, rendered from its plan.
//!
//! ```text
//!  guest ═ tap ─[bridge: prerouting]─┬─► other taps        never: [bridge: forward] and isolated ports
//!              MAC, address, ARP,    │
//!              no IPv6, no VLAN      └─► bridge ─[inet: prerouting]─┬─► [inet: input]    the gateway
//!                                                                   └─► [inet: forward] ─► uplink
//!                                                                          │               another guest
//!                                                  member chain, by the connection's source
//! ```
//! Frames of one guest never pass to another: the bridge answers ARP for all guests with its own
//! MAC (`proxy_arp_pvlan`), so what two guests may say to each other is routed and meets the same
//! rules and the same connection tracking as everything else. One place decides.
//!
//! Both directions of a connection are judged by the policy of the member that opened it, packet
//! by packet, from the connection's original addresses and ports. Nothing is let through for being
//! established, so a narrowed policy ends running connections at once.
//!
//! All base chains accept by policy and look only at our bridge and taps: the host's own traffic
//! is not ours to judge. What they accept by that, they mark ([`JUDGED`]): where the tables are
//! gone, nothing passes the bridge.

mod bridge;
mod expr;
mod inet;
mod member;
mod table;
#[cfg(test)]
mod tests;

use nftables::types::NfFamily;

pub use member::{MAX_CONNECTIONS, name_set};
pub use table::{ExistingTable, RulesTable};

use crate::plan::NetworkPlan;

/// Set of the interfaces that forward only because we asked for it; kept between renderings.
pub const GUARDED: &str = "guarded";

/// By this `SO_MARK` the rules know the sockets of [`crate::resolver::Resolver`]. It is also that
/// of the packets they send, so it has none of the bits that others route or masquerade by
/// (Kubernetes, Tailscale and Calico use those above the lowest eight).
pub const NAMES_MARK: u32 = 0xb5;

/// The bit in a packet's mark by which the second wall knows that the rules are there: they set it
/// in what a guest says and in what is on its way to one, before they judge it. Not one of
/// [`NAMES_MARK`], and none of those that others use, as there.
pub const JUDGED: u32 = 0x40;

/// Both tables of a network.
#[derive(Debug, Clone)]
pub struct Ruleset {
    /// Family `inet`: who reaches what.
    pub inet: RulesTable,
    /// Family `bridge`: who may say what about itself.
    pub bridge: RulesTable,
}

impl Ruleset {
    /// Renders a plan. The same plan gives the same rules.
    pub fn render(network: &NetworkPlan) -> Self {
        let name = network.tag().table();
        let mut inet = RulesTable::new(NfFamily::INet, &name);
        inet::render(network, &mut inet);
        let mut bridge = RulesTable::new(NfFamily::Bridge, &name);
        bridge::render(network, &mut bridge);
        Self { inet, bridge }
    }
}
