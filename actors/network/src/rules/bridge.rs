//! Rules of the bridge: the addresses that a guest may use, and the frames that reach its port.

use nftables::expr::MetaKey;
use nftables::schema::SetType;
use nftables::types::{NfChainType, NfHook};

use super::expr::{accept, add_to_mark, concat, drop, goto, is, meta, number, payload, set, text};
use super::{JUDGED, RulesTable};
use crate::plan::NetworkPlan;

/// Before everything else that looks at bridged frames, br_netfilter included.
const FIRST: i32 = -300;

pub(super) fn render(network: &NetworkPlan, table: &mut RulesTable) {
    let leases = || network.members().map(|(_, member)| member.lease);
    let ports = leases()
        .map(|lease| concat([text(network.tap(lease)), text(lease.mac), text(lease.address)]));
    let kinds = [SetType::Ifname, SetType::EtherAddr, SetType::Ipv4Addr];
    table.planned("ports", &kinds, &[], ports.collect());
    let macs = leases().map(|lease| concat([text(network.tap(lease)), text(lease.mac)]));
    table.planned("macs", &kinds[..2], &[], macs.collect());

    let taps = text(format_args!("{}*", network.tag().tap_prefix()));
    let from = is(meta(MetaKey::Iifname), taps.clone());
    let to = is(meta(MetaKey::Oifname), taps);
    for chain in ["from_port", "to_port"] {
        table.chain(chain);
    }
    table.base("prerouting", NfChainType::Filter, NfHook::Prerouting, FIRST);
    table.rule("prerouting", [from.clone(), goto("from_port")]);
    table.base("forward", NfChainType::Filter, NfHook::Forward, FIRST);
    table.rule("forward", [from, drop()]);
    table.rule("forward", [to.clone(), drop()]);
    table.base("output", NfChainType::Filter, NfHook::Output, FIRST);
    table.rule("output", [to, goto("to_port")]);
    from_port(table);
    to_port(table);
}

/// IPv4 and ARP from the port's own MAC and address; of anything else, nothing. `ether type` is
/// read from the frame, so a VLAN tag is something else.
fn from_port(table: &mut RulesTable) {
    let sender = |address| concat([meta(MetaKey::Iifname), payload("ether", "saddr"), address]);
    let own = |address| is(sender(address), text("@ports"));
    table.rule(
        "from_port",
        [
            is(payload("ether", "type"), text("ip")),
            own(payload("ip", "saddr")),
            add_to_mark(JUDGED),
            accept(),
        ],
    );
    let claim = [meta(MetaKey::Iifname), payload("arp", "saddr ether"), payload("arp", "saddr ip")];
    table.rule(
        "from_port",
        [
            is(payload("ether", "type"), text("arp")),
            is(payload("arp", "htype"), number(1u32)),
            is(payload("arp", "ptype"), text("ip")),
            is(payload("arp", "hlen"), number(6u32)),
            is(payload("arp", "plen"), number(4u32)),
            is(payload("arp", "operation"), set(["request", "reply"].map(text))),
            own(payload("arp", "saddr ip")),
            is(concat(claim), text("@ports")),
            accept(),
        ],
    );
    table.rule("from_port", [drop()]);
}

/// IPv4 and ARP for the port's own MAC, so that a guest sees no frame meant for another.
fn to_port(table: &mut RulesTable) {
    let receiver = concat([meta(MetaKey::Oifname), payload("ether", "daddr")]);
    table.rule(
        "to_port",
        [
            is(payload("ether", "type"), set(["ip", "arp"].map(text))),
            is(receiver, text("@macs")),
            accept(),
        ],
    );
    table.rule("to_port", [drop()]);
}
