//! A query's way: it is judged, the host's resolvers are asked, and their answer is judged.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::Permit;
use crate::ResolvedAddresses;
use crate::plan::{HostName, Subnet};

/// Time that a guest may believe an answer.
const TTL_SECS: RangeInclusive<u32> = 5..=300;
/// Time that its addresses stay open after that, for clients that connect late.
const GRACE_SECS: u32 = 60;
/// Records of an answer that are passed on.
const MAX_RECORDS: usize = 64;

/// Time limit of one upstream, over UDP and again over TCP.
const PATIENCE: Duration = Duration::from_secs(2);
/// Size that fits into a datagram without fragments on any usual path.
const PAYLOAD_BYTES: u16 = 1232;

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
fn matching<'a>(permit: &'a Permit, name: &Name) -> impl Iterator<Item = &'a (HostName, String)> {
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

/// The `nameserver` lines of a resolv.conf; none of them is what the C library takes for none.
pub fn from_resolv_conf(text: &str) -> Vec<SocketAddr> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let server = (words.next()? == "nameserver").then(|| words.next())??;
        Some(SocketAddr::new(server.parse::<IpAddr>().ok()?, 53))
    });
    let servers: Vec<_> = lines.take(3).collect();
    match servers.is_empty() {
        true => vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 53))],
        false => servers,
    }
}

/// The first answer of an upstream to a query; `None` if none answers in time. Nothing of the
/// guest's query is passed on but name and type.
pub(super) async fn ask(upstreams: &[SocketAddr], query: &Query) -> Option<Message> {
    for upstream in upstreams {
        match timeout(PATIENCE, over_udp(*upstream, query)).await {
            Ok(Ok(answer)) if !answer.metadata.truncation => return Some(answer),
            Ok(Ok(_)) => {
                if let Ok(Ok(answer)) = timeout(PATIENCE, over_tcp(*upstream, query)).await {
                    return Some(answer);
                }
            }
            Ok(Err(error)) => tracing::debug!(%upstream, %error, "an upstream does not answer"),
            Err(_) => tracing::debug!(%upstream, "an upstream does not answer in time"),
        }
    }
    None
}

/// Asks from a port of its own and with an id of its own, so that forging an answer takes both.
async fn over_udp(upstream: SocketAddr, query: &Query) -> io::Result<Message> {
    let any: IpAddr = match upstream {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(upstream).await?;
    let (id, bytes) = question(query)?;
    socket.send(&bytes).await?;
    let mut buffer = [0; PAYLOAD_BYTES as usize];
    loop {
        let len = socket.recv(&mut buffer).await?;
        // An answer that does not fit may be a forgery: wait for the real one.
        if let Some(answer) = fitting(&buffer[..len], id, query) {
            return Ok(answer);
        }
    }
}

async fn over_tcp(upstream: SocketAddr, query: &Query) -> io::Result<Message> {
    let mut stream = TcpStream::connect(upstream).await?;
    let (id, bytes) = question(query)?;
    let len = u16::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&[&len.to_be_bytes(), bytes.as_slice()].concat()).await?;
    let mut answer = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut answer).await?;
    fitting(&answer, id, query).ok_or_else(|| io::Error::other("the answer is to another question"))
}

fn question(query: &Query) -> io::Result<(u16, Vec<u8>)> {
    let mut id = [0; 2];
    getrandom::fill(&mut id).map_err(|error| io::Error::other(error.to_string()))?;
    let id = u16::from_le_bytes(id);
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(query.clone());
    let mut edns = Edns::new();
    edns.set_max_payload(PAYLOAD_BYTES);
    message.set_edns(edns);
    Ok((id, message.to_vec().map_err(io::Error::other)?))
}

fn fitting(bytes: &[u8], id: u16, query: &Query) -> Option<Message> {
    let message = Message::from_vec(bytes).ok()?;
    let same = message.metadata.id == id
        && message.metadata.message_type == MessageType::Response
        && message.queries.as_slice() == [query.clone()];
    same.then_some(message)
}
