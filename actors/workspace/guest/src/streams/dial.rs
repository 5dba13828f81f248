//! Connections to the guest's own ports.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hivekeep_protocol::{GuestCode, GuestError, limits};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::files::off_thread;
use crate::network;

/// Number of own addresses that are tried behind the loopbacks; a machine with container bridges has some.
const MAX_OWN_ADDRESSES: usize = 4;

/// Connects to a port of the loopbacks, or of an address that this guest has.
///
/// # Errors
/// `Invalid` for port 0; `PortClosed` with the first refusal when none takes the connection in time.
pub(super) async fn dial(port: u16) -> Result<TcpStream, GuestError> {
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
