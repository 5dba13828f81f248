//! Streams between the host and programs of the guest: the guest's half of a proxy's CONNECT, and connections that
//! are made to a port of the guest's daemon.
//!
//! ```text
//!  inflow of the call ──► toward_port ──► socket        a copier each way; the slower side
//!  outbox of the call ◄── toward_host ◄── socket        holds back the other by its credit
//! ```

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use hivekeep_protocol::{
    AcceptStream, GuestCode, GuestError, OpenStream, Stream, StreamClosed, limits,
};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Instant, timeout_at};

use crate::files::off_thread;
use crate::network;
use crate::session::call::{RequestContext, cancelled};
use crate::session::inflow::InflowBatch;

/// Credit is granted in portions of this, so that small pieces do not cost a frame each.
const GRANT_BYTES: usize = limits::STREAM_WINDOW_BYTES as usize / 4;

/// Answers [`OpenStream`] when both directions have ended.
///
/// # Errors
/// `Invalid` for port 0; `PortClosed` when nothing takes the connection; `Io` when it breaks; `Cancelled`.
pub async fn open(cx: &RequestContext, asked: OpenStream) -> Result<StreamClosed, GuestError> {
    let port = asked.port;
    tokio::select! {
        biased;
        () = cx.cancel.cancelled() => Err(cancelled()),
        closed = async { carry(cx, dial(port).await?, port).await } => closed,
    }
}

/// Answers [`AcceptStream`] when both directions of the connection that it took have ended.
///
/// # Errors
/// `Invalid` for a port below the lowest; `PortTaken` when something else listens there; `Busy` with as many ports as
/// there may be; `Io` when the connection breaks; `Cancelled`.
pub async fn accept(cx: &RequestContext, asked: AcceptStream) -> Result<StreamClosed, GuestError> {
    let port = asked.port;
    let listening = cx.agent.listeners.listen(port)?;
    tokio::select! {
        biased;
        () = cx.cancel.cancelled() => Err(cancelled()),
        closed = async { carry(cx, listening.accept().await?, port).await } => closed,
    }
}

async fn carry(
    cx: &RequestContext,
    mut socket: TcpStream,
    port: u16,
) -> Result<StreamClosed, GuestError> {
    cx.grant(limits::STREAM_WINDOW_BYTES).await?;
    let (mut from, mut to) = socket.split();
    // A port that reads no more may still have something to send, so a failure to write to it is reported
    // once that has been sent.
    let writing = async { Ok(toward_port(cx, &mut to).await) };
    let done = tokio::try_join!(toward_host(cx, &mut from), writing);
    let broken = |error: CopyError| match error {
        CopyError::Socket(error) => GuestError::new(GuestCode::Io, format!("port {port}: {error}")),
        CopyError::Link(error) => error,
    };
    let (sent_bytes, written) = done.map_err(broken)?;
    written.map_err(broken)?;
    Ok(StreamClosed { sent_bytes })
}

/// Which side failed.
enum CopyError {
    Socket(std::io::Error),
    Link(GuestError),
}

impl From<std::io::Error> for CopyError {
    fn from(error: std::io::Error) -> Self {
        Self::Socket(error)
    }
}

impl From<GuestError> for CopyError {
    fn from(error: GuestError) -> Self {
        Self::Link(error)
    }
}

/// Copies up to the host's end, and half-closes the socket then.
async fn toward_port(cx: &RequestContext, to: &mut WriteHalf<'_>) -> Result<(), CopyError> {
    let mut used = 0;
    loop {
        let InflowBatch { pieces, ended } = cx.inflow.take().await;
        for piece in pieces {
            to.write_all(piece.content()).await?;
            used += piece.content().len();
            if used >= GRANT_BYTES && !ended {
                cx.replenish(std::mem::take(&mut used)).await?;
            }
        }
        if ended {
            return Ok(to.shutdown().await?);
        }
    }
}

/// Copies up to the port's end, and tells the host then.
async fn toward_host(cx: &RequestContext, from: &mut ReadHalf<'_>) -> Result<u64, CopyError> {
    let mut sent_bytes = 0;
    loop {
        // A stream that waits holds no buffer.
        from.readable().await?;
        let mut bytes = Vec::with_capacity(limits::STREAM_CHUNK_BYTES);
        let read = match from.try_read_buf(&mut bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            read => read?,
        };
        if read == 0 {
            cx.end().await?;
            return Ok(sent_bytes);
        }
        if bytes.len() < limits::STREAM_CHUNK_BYTES / 2 {
            bytes.shrink_to_fit();
        }
        cx.send(Stream::Content, Bytes::from(bytes)).await?;
        sent_bytes += read as u64;
    }
}

/// Number of own addresses that are tried behind the loopbacks; a machine with container bridges has some.
const MAX_OWN_ADDRESSES: usize = 4;

/// Connects to a port of the loopbacks, or of an address that this guest has.
///
/// # Errors
/// `Invalid` for port 0; `PortClosed` with the first refusal when none takes the connection in time.
async fn dial(port: u16) -> Result<TcpStream, GuestError> {
    if port == 0 {
        return Err(GuestError::new(GuestCode::Invalid, "0 is not a valid port"));
    }
    let deadline = Instant::now() + Duration::from_millis(limits::STREAM_DIAL_MS);
    let refused = match connect(Ipv4Addr::LOCALHOST.into(), port, deadline).await {
        Ok(socket) => return Ok(socket),
        Err(error) => error,
    };
    if let Ok(socket) = connect(Ipv6Addr::LOCALHOST.into(), port, deadline).await {
        return Ok(socket);
    }
    let own = off_thread(network::own_addresses).await.unwrap_or_default();
    for address in own.into_iter().take(MAX_OWN_ADDRESSES) {
        if let Ok(socket) = connect(address.into(), port, deadline).await {
            return Ok(socket);
        }
    }
    let text = format!("nothing takes connections on port {port}: {refused}");
    Err(GuestError::new(GuestCode::PortClosed, text))
}

async fn connect(address: IpAddr, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let connecting = TcpStream::connect(SocketAddr::new(address, port));
    let socket = timeout_at(deadline, connecting).await.map_err(late)??;
    // A port of the ephemeral range without a listener can be given to the connection itself.
    if socket.local_addr()? == socket.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    socket.set_nodelay(true)?;
    Ok(socket)
}
