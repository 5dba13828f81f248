//! Decisions on queries and on answers. Pure.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use super::Permit;
use crate::ResolvedAddresses;
use crate::plan::Subnet;

/// Time that a guest may believe an answer.
const TTL_SECS: std::ops::RangeInclusive<u32> = 5..=300;
/// Time that its addresses stay open after that, for clients that connect late.
const GRACE_SECS: u32 = 60;
/// Records of an answer that are passed on.
const MAX_RECORDS: usize = 64;

/// Decision on a query.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Decision {
    /// Ask upstream and open the answer.
    Ask(Query),
    /// Answer at once.
    Say(ResponseCode),
}

/// Judges a query. `None` is what deserves no answer.
pub(super) fn decide(permit: &Permit, message: &Message) -> Option<Decision> {
    if message.metadata.message_type != MessageType::Query {
        return None;
    }
    if message.metadata.op_code != OpCode::Query {
        return Some(Decision::Say(ResponseCode::NotImp));
    }
    let [query] = message.queries.as_slice() else {
        return Some(Decision::Say(ResponseCode::FormErr));
    };
    if query.query_class() != DNSClass::IN {
        return Some(Decision::Say(ResponseCode::Refused));
    }
    if !permit.any && matching(permit, query.name()).next().is_none() {
        return Some(Decision::Say(ResponseCode::Refused));
    }
    Some(match query.query_type() {
        // There is no IPv6 here; and hints of addresses would not be opened.
        RecordType::AAAA | RecordType::HTTPS | RecordType::SVCB => {
            Decision::Say(ResponseCode::NoError)
        }
        RecordType::ANY | RecordType::AXFR | RecordType::IXFR => {
            Decision::Say(ResponseCode::NotImp)
        }
        _ => Decision::Ask(query.clone()),
    })
}

/// The entries of a member's list that mean a name.
fn matching<'a>(
    permit: &'a Permit,
    name: &Name,
) -> impl Iterator<Item = &'a (crate::plan::HostName, String)> {
    let plain = plain(name);
    permit.names.iter().filter(move |(allowed, _)| allowed.covers(&plain))
}

fn plain(name: &Name) -> String {
    let text = name.to_ascii().to_ascii_lowercase();
    text.strip_suffix('.').map(str::to_owned).unwrap_or(text)
}

/// Addresses to open for an answer, and the answer with lifetimes that fit.
pub(super) fn accept(
    permit: &Permit,
    subnet: Subnet,
    query: &Query,
    mut answers: Vec<Record>,
) -> (Vec<ResolvedAddresses>, Vec<Record>) {
    answers.truncate(MAX_RECORDS);
    let secs = answers.iter().map(|record| record.ttl).min().unwrap_or(0);
    let secs = secs.clamp(*TTL_SECS.start(), *TTL_SECS.end());
    answers.iter_mut().for_each(|record| record.ttl = secs);
    let addresses = addresses(query.name(), &answers);
    let openings = matching(permit, query.name()).filter_map(|(name, set)| {
        let open = |address: &Ipv4Addr| may_open(*address, subnet, name.is_exact());
        let addresses: Vec<_> = addresses.iter().copied().filter(open).collect();
        let set = set.clone();
        (!addresses.is_empty()).then_some(ResolvedAddresses {
            set,
            addresses,
            secs: secs + GRACE_SECS,
        })
    });
    (openings.collect(), answers)
}

/// The addresses that a name leads to through the aliases of one answer.
fn addresses(name: &Name, answers: &[Record]) -> BTreeSet<Ipv4Addr> {
    let mut names = BTreeSet::from([plain(name)]);
    // Each round follows one alias at least, so there are no more rounds than records.
    for _ in 0..answers.len() {
        let aliases = answers.iter().filter(|record| names.contains(&plain(&record.name)));
        let found: Vec<_> = aliases
            .filter_map(|record| match &record.data {
                RData::CNAME(target) => Some(plain(&target.0)),
                _ => None,
            })
            .collect();
        let before = names.len();
        names.extend(found);
        if names.len() == before {
            break;
        }
    }
    let meant = answers.iter().filter(|record| names.contains(&plain(&record.name)));
    meant
        .filter_map(|record| match &record.data {
            RData::A(address) => Some(address.0),
            _ => None,
        })
        .collect()
}

/// Whoever owns a name decides what it resolves to. So no name leads to the host, to other
/// guests, or to metadata services, and to private networks only a name that was written out.
fn may_open(address: Ipv4Addr, subnet: Subnet, exact: bool) -> bool {
    let [a, b, ..] = address.octets();
    let never = address.is_loopback()
        || address.is_link_local()
        || a == 0
        || a >= 224
        || subnet.block().contains(address);
    let shared = (a == 100 && (64..128).contains(&b)) || (a == 198 && (18..20).contains(&b));
    !never && (exact || !(address.is_private() || shared || address.octets()[..3] == [192, 0, 0]))
}
