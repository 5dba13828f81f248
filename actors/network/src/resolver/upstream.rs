//! Asking the host's resolvers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// Time limit of one upstream, over UDP and again over TCP.
const PATIENCE: Duration = Duration::from_secs(2);
/// Size that fits into a datagram without fragments on any usual path.
const PAYLOAD_BYTES: u16 = 1232;

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
