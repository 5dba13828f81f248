//! The host's ends of forwards: free ones found, and kept from other programs.
//!
//! The kernel leads packets for a forward away before it looks for a socket, so a forward works
//! whoever listens. A second program on the port would be cut off without a word. So each
//! forward's port is held by a bound socket, and a port that is taken is an error before anything
//! was changed. Nobody listens on that socket, but while the forward's machine is parked: then the
//! kernel leads nothing away, and what connects is accepted.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{
    AddressFamily, Shutdown, SocketFlags, SocketType, bind, listen, shutdown, socket_with,
};
use tokio::net::{TcpListener, UdpSocket};

use crate::Error;
use crate::plan::Protocol;

/// Range of automatic ports: below the ports that Linux gives to clients by itself.
pub const AUTOMATIC: RangeInclusive<u16> = 20_000..=29_999;

/// Port of the host, reserved as long as this value lives.
#[derive(Debug)]
pub struct PortReservation {
    at: SocketAddrV4,
    protocol: Protocol,
    socket: Arc<HeldSocket>,
}

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// The socket that holds a port. Whoever shares it can listen, as long as the port is held.
#[derive(Debug)]
pub(crate) struct HeldSocket(OwnedFd);

impl HeldSocket {
    /// Listens; once more is no change.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn listen(&self) -> Result<(), Error> {
        // Or the connections of the last time, which may go on, would be in the way.
        let listens = set_socket_reuseaddr(&self.0, true).and_then(|()| listen(&self.0, BACKLOG));
        listens.map_err(|error| Error::io("listen on a held port")(error.into()))
    }

    /// Listens, and accepts. To be used in a runtime.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn listener(&self) -> Result<TcpListener, Error> {
        self.listen()?;
        let copy = self.0.try_clone().map(std::net::TcpListener::from);
        let listener = copy.and_then(|listener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        });
        listener.map_err(Error::io("listen on a held port"))
    }

    /// The datagrams that come to a socket of UDP. To be used in a runtime.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn datagrams(&self) -> Result<UdpSocket, Error> {
        let copy = self.0.try_clone().map(std::net::UdpSocket::from);
        let socket = copy.and_then(|socket| {
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket)
        });
        socket.map_err(Error::io("hear a held port"))
    }

    /// Ends the listening, not the hold: to shut down a socket that listens makes it one that is
    /// only bound. What was not accepted is reset.
    pub(crate) fn end_listening(socket: impl AsFd) {
        // A socket that does not listen is left as it is.
        let _ = shutdown(&socket, Shutdown::Read);
        // Nobody else is to have the port either.
        let _ = set_socket_reuseaddr(&socket, false);
    }
}

impl Drop for PortReservation {
    fn drop(&mut self) {
        // Whoever shares the socket drops it a moment later.
        let _ = shutdown(&self.socket.0, Shutdown::Read);
    }
}

impl PortReservation {
    /// Takes a port. Does not block.
    ///
    /// # Errors
    /// [`Error::PortTaken`], [`Error::NotOurAddress`]; [`Error::NotPermitted`] for ports below
    /// 1024 without CAP_NET_BIND_SERVICE.
    pub fn take(at: SocketAddrV4, protocol: Protocol) -> Result<Self, Error> {
        let kind = match protocol {
            Protocol::Tcp => SocketType::STREAM,
            Protocol::Udp => SocketType::DGRAM,
        };
        let action = || format!("hold {protocol} {at}");
        let socket = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)
            .map_err(|error| Error::io(action())(error.into()))?;
        let bound = match bind(&socket, &at) {
            // Connections of a forward may outlive the daemon that accepted them.
            Err(Errno::ADDRINUSE) if protocol == Protocol::Tcp => {
                let bound = set_socket_reuseaddr(&socket, true).and_then(|()| bind(&socket, &at));
                bound.and_then(|()| set_socket_reuseaddr(&socket, false))
            }
            bound => bound,
        };
        match bound {
            Ok(()) => Ok(Self { at, protocol, socket: Arc::new(HeldSocket(socket)) }),
            Err(Errno::ADDRINUSE) => Err(Error::PortTaken { protocol, at }),
            Err(Errno::ADDRNOTAVAIL) => Err(Error::NotOurAddress(*at.ip())),
            Err(error) => {
                Err(Error::io_with("CAP_NET_BIND_SERVICE", action())(io::Error::from(error)))
            }
        }
    }

    /// Takes a free port of a range, beginning anywhere in it. `used` are ports that other
    /// forwards have, which may be held by nobody yet.
    ///
    /// # Errors
    /// As [`PortReservation::take`]; [`Error::PortTaken`] with port 0 if no port is free.
    pub fn automatic(
        host_ip: Ipv4Addr,
        protocol: Protocol,
        range: RangeInclusive<u16>,
        used: impl Fn(u16) -> bool,
    ) -> Result<Self, Error> {
        let mut seed = [0; 4];
        getrandom::fill(&mut seed).map_err(|error| {
            Error::io("choose a port at random")(io::Error::other(error.to_string()))
        })?;
        let size = range.len().max(1);
        let first = u32::from_le_bytes(seed) as usize % size;
        for port in range.clone().cycle_from(first).filter(|port| !used(*port)) {
            match Self::take(SocketAddrV4::new(host_ip, port), protocol) {
                Err(Error::PortTaken { .. }) => {}
                other => return other,
            }
        }
        Err(Error::PortTaken { protocol, at: SocketAddrV4::new(host_ip, 0) })
    }

    /// The host's end.
    pub fn at(&self) -> SocketAddrV4 {
        self.at
    }

    /// Socket, for whoever listens while the forward's machine is parked.
    pub(crate) fn socket(&self) -> &Arc<HeldSocket> {
        &self.socket
    }

    /// TCP or UDP.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }
}

trait CycleFrom {
    fn cycle_from(self, first: usize) -> impl Iterator<Item = u16>;
}

impl CycleFrom for RangeInclusive<u16> {
    fn cycle_from(self, first: usize) -> impl Iterator<Item = u16> {
        self.clone().skip(first).chain(self.take(first))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

    #[test]
    fn a_port_that_another_program_has_is_refused_by_name() {
        let other = TcpListener::bind((HERE, 0)).unwrap();
        let at = SocketAddrV4::new(HERE, other.local_addr().unwrap().port());
        let refused = PortReservation::take(at, Protocol::Tcp).unwrap_err();
        assert!(matches!(refused, Error::PortTaken { at: taken, .. } if taken == at), "{refused}");
        let other = UdpSocket::bind((HERE, 0)).unwrap();
        let at = SocketAddrV4::new(HERE, other.local_addr().unwrap().port());
        assert!(matches!(PortReservation::take(at, Protocol::Udp), Err(Error::PortTaken { .. })));
    }

    #[test]
    fn a_held_port_is_nobody_elses_and_free_again_afterwards() {
        let held = PortReservation::automatic(HERE, Protocol::Tcp, AUTOMATIC, |_| false).unwrap();
        assert!(AUTOMATIC.contains(&held.at().port()));
        assert!(TcpListener::bind(held.at()).is_err());
        let at = held.at();
        drop(held);
        assert!(TcpListener::bind(at).is_ok());
    }

    #[tokio::test]
    async fn a_held_port_listens_rests_and_is_held_all_along() {
        let held = PortReservation::automatic(HERE, Protocol::Tcp, AUTOMATIC, |_| false).unwrap();
        let at = held.at();
        let mut clients = Vec::new();
        for _ in 0..2 {
            assert!(std::net::TcpStream::connect(at).is_err(), "nobody listens yet");
            let listener = held.socket().listener().unwrap();
            let client = std::net::TcpStream::connect(at).unwrap();
            clients.push((client, listener.accept().await.unwrap()));
            assert!(TcpListener::bind(at).is_err());
            HeldSocket::end_listening(&listener);
            drop(listener);
            assert!(TcpListener::bind(at).is_err(), "it is not held while it rests");
        }
        // Accepted connections go on, and do not block the port.
        drop(held);
        let again = PortReservation::take(at, Protocol::Tcp).unwrap();
        assert!(TcpListener::bind(at).is_err(), "it is not held over old connections");
        again.socket().listen().unwrap();
        assert!(std::net::TcpStream::connect(at).is_ok());
        for (client, (server, _)) in &mut clients {
            std::io::Write::write_all(client, b"x").unwrap();
            server.readable().await.unwrap();
            assert_eq!(server.try_read(&mut [0; 8]).unwrap(), 1);
        }
    }

    #[test]
    fn used_ports_are_passed_over_and_a_full_range_is_an_error() {
        let range = 20_000..=20_003;
        let only = PortReservation::automatic(HERE, Protocol::Udp, range.clone(), |p| p != 20_002);
        match only {
            Ok(held) => assert_eq!(held.at().port(), 20_002),
            Err(error) => assert!(matches!(error, Error::PortTaken { .. }), "{error}"),
        }
        let full = PortReservation::automatic(HERE, Protocol::Udp, range, |_| true).unwrap_err();
        assert!(matches!(full, Error::PortTaken { at, .. } if at.port() == 0), "{full}");
    }

    #[test]
    fn an_address_of_another_host_is_refused_by_name() {
        let at = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 20_000);
        assert!(matches!(PortReservation::take(at, Protocol::Tcp), Err(Error::NotOurAddress(_))));
    }
}
