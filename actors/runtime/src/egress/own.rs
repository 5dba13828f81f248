//! Addresses of this host, public ones included: a connection to one of them leads to the host's own services.
#![allow(unsafe_code)]

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ptr::null_mut,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

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
    let mut first = null_mut::<libc::ifaddrs>();
    // SAFETY: fills the pointer with a list that is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut found, mut next) = (Vec::new(), first);
    // SAFETY: entries and their addresses are valid until the list is freed; an address is of the type that its
    // family says, or null.
    unsafe {
        while let Some(entry) = next.as_ref() {
            next = entry.ifa_next;
            let family = entry.ifa_addr.as_ref().map(|address| i32::from(address.sa_family));
            match family {
                Some(libc::AF_INET) => {
                    let address = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    let bits = u32::from_be(address.sin_addr.s_addr);
                    found.push(Ipv4Addr::from_bits(bits).into());
                }
                Some(libc::AF_INET6) => {
                    let address = entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    found.push(Ipv6Addr::from(address.sin6_addr.s6_addr).into());
                }
                _ => {}
            }
        }
        libc::freeifaddrs(first);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_the_hosts() {
        assert!(OwnAddresses::default().has(Ipv4Addr::LOCALHOST.into()));
        assert!(!OwnAddresses::default().has(Ipv4Addr::new(192, 0, 2, 1).into()));
        let unread = OwnAddresses::by(|| Err(io::ErrorKind::PermissionDenied.into()));
        assert!(unread.has(Ipv4Addr::new(192, 0, 2, 1).into()), "it may be");
    }
}
