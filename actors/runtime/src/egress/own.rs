//! Addresses of this host, public ones included: a connection to one of them leads to the host's own services.

use std::{
    io,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use nix::{ifaddrs::getifaddrs, sys::socket::SockaddrStorage};

/// Time for which they are believed: interfaces come and go.
const FRESH: Duration = Duration::from_secs(3);

/// Addresses of the host's interfaces, read again when they are no longer fresh.
#[derive(Debug)]
pub(super) struct OwnAddresses {
    read: fn() -> io::Result<Vec<IpAddr>>,
    last: Mutex<Option<(Instant, Vec<IpAddr>)>>,
}

impl Default for OwnAddresses {
    fn default() -> Self {
        Self::by(of_interfaces)
    }
}

impl OwnAddresses {
    /// Those that are read in this way.
    pub(super) fn by(read: fn() -> io::Result<Vec<IpAddr>>) -> Self {
        Self { read, last: Mutex::default() }
    }

    /// Whether it is one of them. While they cannot be read, each may be.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|(at, _)| at.elapsed() > FRESH) {
            match (self.read)() {
                Ok(found) => *last = Some((Instant::now(), found)),
                Err(error) => {
                    tracing::warn!(%error, "the host's addresses cannot be read");
                    *last = None;
                }
            }
        }
        last.as_ref().is_none_or(|(_, own)| own.contains(&address.to_canonical()))
    }
}

fn of_interfaces() -> io::Result<Vec<IpAddr>> {
    let addresses = getifaddrs()?.filter_map(|interface| interface.address);
    let ip = |address: SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|it| it.ip().into());
        v4.or_else(|| address.as_sockaddr_in6().map(|it| it.ip().into()))
    };
    Ok(addresses.filter_map(ip).collect())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_loopback_interface_is_the_hosts() {
        assert!(OwnAddresses::default().has(Ipv4Addr::LOCALHOST.into()));
        assert!(!OwnAddresses::default().has(Ipv4Addr::new(192, 0, 2, 1).into()));
        let unread = OwnAddresses::by(|| Err(io::ErrorKind::PermissionDenied.into()));
        assert!(unread.has(Ipv4Addr::new(192, 0, 2, 1).into()), "it may be");
    }
}
