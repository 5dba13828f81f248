//! The chains of one member. No other member's rules mention its address, and its chains are
//! named by its whole id.

use hivekeep_kernel::WorkspaceId;
use hivekeep_ports::NetworkGroup;
use nftables::expr::MetaKey;
use nftables::schema::{SetFlag, SetType};

use super::RulesTable;
use super::expr::{
    Stmt, accept, answered, block, ct, drop, goto, has, is, jump, meta, more_than, number, opened,
    range, refuse, set_mark, text,
};
use crate::plan::{AddressBlock, Destination, Egress, NetworkMember, PortRange, Protocol};

/// Connections of one member at once, besides those to the host: the kernel's table of them is the
/// host's, and has usually room for 262,144. Those that were open when the rules last changed do
/// not count.
pub const MAX_CONNECTIONS: u32 = 4096;
/// Connections of one member to the host at once: names and pings, which are over soon.
const MAX_QUESTIONS: u32 = 512;

/// Chain of the member's connections to the host.
pub(super) fn asks_chain(id: WorkspaceId) -> String {
    format!("asks_{id}")
}

/// Chain of the connections that the member opened towards anyone but the host.
pub(super) fn out_chain(id: WorkspaceId) -> String {
    format!("out_{id}")
}

/// Chain of connections that others open towards the member, where it lets them in on some ports
/// only.
pub(super) fn ports_chain(id: WorkspaceId) -> String {
    format!("ports_{id}")
}

/// Chain of connections through the member's forwards.
pub(super) fn in_chain(id: WorkspaceId) -> String {
    format!("in_{id}")
}

/// The set of a group's members. Names of groups are equal or not: neither is part of the other.
pub(super) fn group_set(group: &NetworkGroup) -> String {
    format!("group_{group}")
}

/// The set of what one name of a member's allow-list resolved to. It is the same for the same
/// entry, whatever else changes, and so are its elements.
pub fn name_set(id: WorkspaceId, egress: &Egress) -> String {
    format!("names_{id}_{:08x}", mark(egress))
}

/// Marks a member's connections that a name let through, so that they live on when the name
/// resolves to something else, and end when the entry goes. Never 0, which is no mark.
fn mark(egress: &Egress) -> u32 {
    let hash = blake3::hash(egress.to_string().as_bytes());
    u32::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes")) | 1
}

pub(super) fn render(
    id: WorkspaceId,
    member: &NetworkMember,
    inside: AddressBlock,
    table: &mut RulesTable,
) {
    out(id, member, inside, table);
    let chain = asks_chain(id);
    table.chain(&chain);
    table.rule(&chain, [has(ct("state"), "new"), more_than(MAX_QUESTIONS), drop()]);
    table.rule(&chain, [accept()]);
    if !member.policy.allowed_ports.is_empty() {
        let chain = ports_chain(id);
        table.chain(&chain);
        for port in &member.policy.allowed_ports {
            let ports = PortRange { first: *port, last: *port, protocol: None };
            for on in on_ports(Some(ports)) {
                table.rule(&chain, on.into_iter().chain([accept()]));
            }
        }
    }
    if member.forwards.is_empty() {
        return;
    }
    let chain = in_chain(id);
    table.chain(&chain);
    for forward in &member.forwards {
        let mut on = vec![is(meta(MetaKey::L4proto), text(forward.protocol))];
        if !forward.host_ip.is_unspecified() {
            on.push(is(opened("ip daddr"), text(forward.host_ip)));
        }
        on.push(is(opened("proto-dst"), number(forward.host_port)));
        on.push(is(answered("proto-src"), number(forward.guest_port)));
        table.rule(&chain, on.into_iter().chain([accept()]));
    }
    table.rule(&chain, [drop()]);
}

fn out(id: WorkspaceId, member: &NetworkMember, inside: AddressBlock, table: &mut RulesTable) {
    let chain = out_chain(id);
    table.chain(&chain);
    table.rule(&chain, [has(ct("state"), "new"), more_than(MAX_CONNECTIONS), drop()]);
    if let Some(group) = &member.policy.group {
        // The chain implies who opened the connection, so only the other side is looked up.
        let mate = text(format_args!("@{}", group_set(group)));
        table.rule(&chain, [is(opened("ip daddr"), mate), jump("reach")]);
    }
    table.rule(&chain, [is(opened("ip daddr"), block(inside)), goto("between")]);
    for egress in &member.policy.egress_allow {
        let Destination::Block(to) = egress.to else { continue };
        for on in on_ports(egress.ports) {
            let to = is(opened("ip daddr"), block(to));
            table.rule(&chain, [to].into_iter().chain(on).chain([accept()]));
        }
    }
    for egress in member.policy.names() {
        let name = name_set(id, egress);
        table.kept(&name, SetType::Ipv4Addr, &[SetFlag::Timeout]);
        table.rule(&chain, [is(ct("mark"), number(mark(egress))), accept()]);
        for on in on_ports(egress.ports) {
            let to = is(opened("ip daddr"), text(format_args!("@{name}")));
            let verdict = [set_mark(mark(egress)), accept()];
            table.rule(&chain, [to].into_iter().chain(on).chain(verdict));
        }
    }
    // Answers are dropped without a refusal to their sender.
    let refusals = [vec![is(ct("direction"), text("reply")), drop()]].into_iter().chain(refuse());
    if member.policy.allow_internet {
        for refusal in refusals {
            let private = is(opened("ip daddr"), text("@private"));
            table.rule(&chain, [private].into_iter().chain(refusal));
        }
        table.rule(&chain, [accept()]);
    } else {
        refusals.for_each(|refusal| table.rule(&chain, refusal));
    }
}

/// The matches for a range of ports: one list for each protocol, or one empty list for any.
fn on_ports(ports: Option<PortRange>) -> Vec<Vec<Stmt>> {
    let Some(PortRange { first, last, protocol }) = ports else { return vec![Vec::new()] };
    let protocols = Protocol::ALL.into_iter().filter(|one| protocol.is_none_or(|p| p == *one));
    let on = |protocol| {
        vec![
            is(meta(MetaKey::L4proto), text(protocol)),
            is(opened("proto-dst"), range(first, last)),
        ]
    };
    protocols.map(on).collect()
}
