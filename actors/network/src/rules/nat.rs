//! Addresses that are replaced: destinations by forwards, sources on the way out.

use nftables::expr::MetaKey;
use nftables::types::{NfChainType, NfHook};

use super::RulesTable;
use super::expr::{
    block, destination_kind, dnat, is, is_not, masquerade, meta, number, payload, text,
};
use crate::plan::{Forward, NetworkPlan, Protocol};

const DESTINATION: i32 = -100;
const SOURCE: i32 = 100;

pub(super) fn render(network: &NetworkPlan, table: &mut RulesTable) {
    let bridge = text(network.tag().bridge());
    table.base("from_outside", NfChainType::NAT, NfHook::Prerouting, DESTINATION);
    table.base("from_host", NfChainType::NAT, NfHook::Output, DESTINATION);
    for (_, member) in network.members() {
        // TCP connections to a parked machine are to reach the daemon, which wakes it.
        let led = |forward: &&Forward| !(member.parked && forward.protocol == Protocol::Tcp);
        for forward in member.forwards.iter().filter(led) {
            let from_outside = is_not(meta(MetaKey::Iifname), bridge.clone());
            let to = dnat(member.lease.address, forward.guest_port);
            if !forward.is_loopback() {
                let rule = [from_outside].into_iter().chain(addressed(forward));
                table.rule("from_outside", rule.chain([to.clone()]));
            }
            table.rule("from_host", addressed(forward).into_iter().chain([to]));
        }
    }
    table.base("source", NfChainType::NAT, NfHook::Postrouting, SOURCE);
    let loopback = block("127.0.0.0/8".parse().expect("a block"));
    let inside = is(payload("ip", "saddr"), block(network.subnet().block()));
    table.rule(
        "source",
        [
            is(meta(MetaKey::Oifname), bridge.clone()),
            is(payload("ip", "saddr"), loopback),
            masquerade(),
        ],
    );
    table.rule("source", [is_not(meta(MetaKey::Oifname), bridge), inside, masquerade()]);
}

/// Match for packets to the forward's own end, and nowhere else: a guest's or the host's connection to
/// the same port of another machine is left alone.
fn addressed(forward: &Forward) -> [nftables::stmt::Statement<'static>; 3] {
    let to = match forward.host_ip.is_unspecified() {
        true => is(destination_kind(), text("local")),
        false => is(payload("ip", "daddr"), text(forward.host_ip)),
    };
    let protocol = is(meta(MetaKey::L4proto), text(forward.protocol));
    [to, protocol, is(payload("th", "dport"), number(forward.host_port))]
}
