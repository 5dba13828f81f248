//! Rules of routed packets: the hooks, the chains that all members share, and the translation of
//! addresses.

use nftables::expr::MetaKey;
use nftables::schema::{SetFlag, SetType};
use nftables::types::{NfChainType, NfHook};

use super::expr::{
    Expr, Stmt, accept, add_to_mark, answered, block, ct, destination_kind, dispatch, dnat, drop,
    goto, has, is, is_not, jump, lacks, masquerade, meta, number, opened, payload, refuse, set,
    socket_mark, text,
};
use super::{GUARDED, JUDGED, NAMES_MARK, RulesTable, member};
use crate::plan::{Forward, NetworkPlan, Protocol};

const RAW: i32 = -300;
const DESTINATION: i32 = -100;
const FILTER: i32 = 0;
const SOURCE: i32 = 100;
const BEFORE_ROUTING: i32 = 300;

/// Set of those with `allow_inter_vm`.
const INTER_VM: &str = "inter_vm";

/// Never reached for `allow_internet`: this network, private and shared addresses, link-local
/// with the clouds' metadata services, loopback, multicast, reserved. From the registry of
/// special-purpose addresses (RFC 6890); blocks that are only for documentation lead nowhere.
const PRIVATE: [&str; 10] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/3",
];

pub(super) fn render(network: &NetworkPlan, table: &mut RulesTable) {
    sets(network, table);
    let bridge = network.tag().bridge();
    let from = is(meta(MetaKey::Iifname), text(&bridge));
    let to = is(meta(MetaKey::Oifname), text(&bridge));
    for chain in
        ["from_guest", "to_host", "names", "served", "crossing", "between", "reach", "forwarded"]
    {
        table.chain(chain);
    }
    table.base("raw", NfChainType::Filter, NfHook::Prerouting, RAW);
    table.rule("raw", [from.clone(), goto("from_guest")]);
    table.rule(
        "raw",
        [
            is_not(meta(MetaKey::Iifname), text("lo")),
            is(payload("ip", "saddr"), block(network.subnet().block())),
            drop(),
        ],
    );
    table.base("input", NfChainType::Filter, NfHook::Input, FILTER);
    table.rule("input", [from.clone(), goto("to_host")]);
    table.base("forward", NfChainType::Filter, NfHook::Forward, FILTER);
    table.rule("forward", [to.clone(), add_to_mark(JUDGED)]);
    table.rule("forward", [from, goto("crossing")]);
    table.rule("forward", [to.clone(), goto("crossing")]);
    let guarded = is(meta(MetaKey::Iifname), text(format_args!("@{GUARDED}")));
    table.rule("forward", [guarded, lacks(JUDGED), drop()]);
    // Behind translation, before routing. Each daemon marks packets for its guests.
    table.base("arriving", NfChainType::Filter, NfHook::Prerouting, BEFORE_ROUTING);
    let for_guests = is(payload("ip", "daddr"), block(network.subnet().block()));
    table.rule("arriving", [for_guests, add_to_mark(JUDGED)]);
    table.base("output", NfChainType::Filter, NfHook::Output, FILTER);
    // Guests are routed to each other through one interface on purpose.
    table.rule("output", [to.clone(), is(payload("icmp", "type"), text("redirect")), drop()]);
    table.rule("output", [to.clone(), has(ct("status"), "dnat"), goto("forwarded")]);

    // Packets translated on their way out of the host have their interface only now.
    table.base("leaving", NfChainType::Filter, NfHook::Postrouting, FILTER);
    table.rule("leaving", [to, add_to_mark(JUDGED)]);

    from_guest(table);
    to_host(network, table);
    names(table);
    served(network, table);
    crossing(network, table);
    between(network, table);
    forwarded(network, table);
    let inside = network.subnet().block();
    network.members().for_each(|(id, member)| member::render(id, member, inside, table));
    translated(network, table);
}

fn sets(network: &NetworkPlan, table: &mut RulesTable) {
    let addresses = network.members().map(|(_, member)| text(member.lease.address));
    table.planned("members", &[SetType::Ipv4Addr], &[], addresses.collect());
    let private = PRIVATE.map(|text| block(text.parse().expect("a block")));
    table.planned("private", &[SetType::Ipv4Addr], &[SetFlag::Interval], private.into());
    table.planned(INTER_VM, &[SetType::Ipv4Addr], &[], network.inter_vm().map(text).collect());
    for (group, addresses) in network.groups() {
        let addresses = addresses.iter().map(text).collect();
        table.planned(&member::group_set(group), &[SetType::Ipv4Addr], &[], addresses);
    }
    table.kept(GUARDED, SetType::Ifname, &[]);
}

/// Packets from the bridge, before anything else: of members only, and never to loopback, which
/// `route_localnet` would otherwise let in.
fn from_guest(table: &mut RulesTable) {
    table.rule("from_guest", [is_not(meta(MetaKey::Nfproto), text("ipv4")), drop()]);
    table.rule("from_guest", [is(payload("ip", "daddr"), loopback()), drop()]);
    table.rule("from_guest", [is(payload("ip", "saddr"), text("@members")), accept()]);
    table.rule("from_guest", [drop()]);
}

/// An error about a known connection, such as "fragmentation needed".
fn about_a_connection() -> [Stmt; 3] {
    [is(meta(MetaKey::L4proto), text("icmp")), has(ct("state"), "related"), accept()]
}

/// Guests reach the host where it serves them, at the gateway's address: ping, and names if it
/// does.
fn to_host(network: &NetworkPlan, table: &mut RulesTable) {
    let gateway = || is(payload("ip", "daddr"), text(network.subnet().gateway()));
    let asked = is(payload("th", "dport"), number(53u32));
    let carriers = is(meta(MetaKey::L4proto), set(["tcp", "udp"].map(text)));
    table.rule("to_host", [has(ct("state"), "invalid"), drop()]);
    table.rule("to_host", about_a_connection());
    table.rule("to_host", [has(ct("status"), "dnat"), goto("forwarded")]);
    table.rule("to_host", [is(ct("direction"), text("reply")), accept()]);
    if network.serves_names() {
        table.rule("to_host", [gateway(), carriers, asked, goto("names")]);
    }
    table.rule(
        "to_host",
        [gateway(), is(payload("icmp", "type"), text("echo-request")), goto("served")],
    );
    refuse().into_iter().for_each(|refusal| table.rule("to_host", refusal));
}

/// Questions for names come to our resolver's sockets and to no others: while it does not run,
/// whoever has the port then is reached by nobody. Of TCP the first segment is asked for; those
/// that follow it find the connection that it made, or none.
fn names(table: &mut RulesTable) {
    let tcp = || is(meta(MetaKey::L4proto), text("tcp"));
    let [reset, refusal] = refuse();
    table.rule("names", [is(socket_mark(), number(NAMES_MARK)), goto("served")]);
    let opening = [tcp(), has(payload("tcp", "flags"), "syn")];
    table.rule("names", opening.into_iter().chain(reset.into_iter().skip(1)));
    table.rule("names", [tcp(), goto("served")]);
    table.rule("names", refusal);
}

/// Questions that the host answers, each guest's within its own bounds.
fn served(network: &NetworkPlan, table: &mut RulesTable) {
    let chains = network.members().map(|(id, m)| (text(m.lease.address), member::asks_chain(id)));
    table.rule_if("served", dispatch(payload("ip", "saddr"), chains));
    table.rule("served", [drop()]);
}

/// Packets between a guest and anything but the host. Both directions of a connection come here
/// and are judged by who opened it.
fn crossing(network: &NetworkPlan, table: &mut RulesTable) {
    table.rule("crossing", [has(ct("state"), "invalid"), drop()]);
    table.rule("crossing", about_a_connection());
    table.rule("crossing", [has(ct("status"), "dnat"), goto("forwarded")]);
    let chains = network.members().map(|(id, m)| (text(m.lease.address), member::out_chain(id)));
    table.rule_if("crossing", dispatch(opened("ip saddr"), chains));
    table.rule("crossing", [drop()]);
}

/// Guest to guest, where no group opened it.
fn between(network: &NetworkPlan, table: &mut RulesTable) {
    let open = || text(format_args!("@{INTER_VM}"));
    let (from, to) = (is(opened("ip saddr"), open()), is(opened("ip daddr"), open()));
    table.rule("between", [from, to, jump("reach")]);
    table.rule("between", [is(ct("direction"), text("reply")), drop()]);
    refuse().into_iter().for_each(|refusal| table.rule("between", refusal));
    let limited = network.members().filter(|(_, m)| !m.policy.allowed_ports.is_empty());
    let chains = limited.map(|(id, m)| (text(m.lease.address), member::ports_chain(id)));
    table.rule_if("reach", dispatch(opened("ip daddr"), chains));
    table.rule("reach", [accept()]);
}

/// Connections whose destination a forward replaced, known by the guest that answers them.
fn forwarded(network: &NetworkPlan, table: &mut RulesTable) {
    let targets = network.members().filter(|(_, m)| !m.forwards.is_empty());
    let chains = targets.map(|(id, m)| (text(m.lease.address), member::in_chain(id)));
    table.rule_if("forwarded", dispatch(answered("ip saddr"), chains));
    table.rule("forwarded", [drop()]);
}

/// Addresses that are replaced: destinations by forwards, sources on the way out.
fn translated(network: &NetworkPlan, table: &mut RulesTable) {
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
    let inside = is(payload("ip", "saddr"), block(network.subnet().block()));
    table.rule(
        "source",
        [
            is(meta(MetaKey::Oifname), bridge.clone()),
            is(payload("ip", "saddr"), loopback()),
            masquerade(),
        ],
    );
    table.rule("source", [is_not(meta(MetaKey::Oifname), bridge), inside, masquerade()]);
}

/// Match for packets to the forward's own end, and nowhere else: a guest's or the host's connection to
/// the same port of another machine is left alone.
fn addressed(forward: &Forward) -> [Stmt; 3] {
    let to = match forward.host_ip.is_unspecified() {
        true => is(destination_kind(), text("local")),
        false => is(payload("ip", "daddr"), text(forward.host_ip)),
    };
    let protocol = is(meta(MetaKey::L4proto), text(forward.protocol));
    [to, protocol, is(payload("th", "dport"), number(forward.host_port))]
}

fn loopback() -> Expr {
    block("127.0.0.0/8".parse().expect("a block"))
}
