//! The machine's one network interface.
//!
//! Nothing is remembered: each call looks at what the kernel has, brings it to what was asked, and
//! answers with what it finds then. What differs is not mended bit by bit. The interface goes down
//! first, so that between the old and the new address nothing leaves the machine.

mod addresses;
mod gateway;
mod interface;
mod message;
mod netlink;
mod resolver;

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::PoisonError;

use hivekeep_protocol::{GuestCode, GuestError, NetworkSet, SetNetwork};

use self::addresses::Held;
use self::interface::Interface;
use self::netlink::Netlink;
use crate::files::{io_error, off_thread};
use crate::session::call::RequestContext;
use crate::settings::GuestKind;
use crate::sys::ioctl;

const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Answers [`SetNetwork`].
///
/// # Errors
/// `Invalid` for values that are none, `Unsupported` in a sandbox and in a machine without an
/// interface, `NotFound` where its driver is missing, or as the kernel says.
pub async fn set(cx: &RequestContext, asked: SetNetwork) -> Result<NetworkSet, GuestError> {
    check(&asked).map_err(|why| GuestError::new(GuestCode::Invalid, why))?;
    if cx.agent.settings.place == GuestKind::Sandbox {
        let text = "a sandbox has no network of its own";
        return Err(GuestError::new(GuestCode::Unsupported, text));
    }
    let agent = cx.agent.clone();
    off_thread(move || {
        let _alone = agent.network.lock().unwrap_or_else(PoisonError::into_inner);
        let interface = interface::find()?;
        let failed = |error: io::Error| io_error(&error, &interface.name);
        let set = bring_to(&interface, &asked).map_err(failed)?;
        resolver::name(Path::new(RESOLV_CONF), asked.dns.map(Ipv4Addr::from))
            .map_err(|error| io_error(&error, RESOLV_CONF))?;
        let gateway_answers = answers(&interface, &asked, set).map_err(failed)?;
        read_back(&interface, gateway_answers).map_err(failed)
    })
    .await
}

/// IPv4 addresses that this guest has, but for the loopback's.
///
/// # Errors
/// As the kernel says.
pub(crate) fn own_addresses() -> io::Result<Vec<Ipv4Addr>> {
    addresses::all(&mut Netlink::open()?)
}

fn check(asked: &SetNetwork) -> Result<(), String> {
    let SetNetwork { mac, address, prefix_len, gateway, .. } = asked;
    if mac[0] & 1 != 0 || *mac == [0; 6] {
        return Err(format!("{mac:02x?} is not an interface's address"));
    }
    let (address, gateway) = (Ipv4Addr::from(*address), Ipv4Addr::from(*gateway));
    if !(8..=30).contains(prefix_len) {
        return Err(format!("a network of {prefix_len} bits"));
    }
    let hosts = u32::MAX >> prefix_len;
    let is_host =
        |one: Ipv4Addr| !matches!(one.to_bits() & hosts, 0) && one.to_bits() & hosts != hosts;
    let same = address.to_bits() & !hosts == gateway.to_bits() & !hosts;
    if address == gateway || !same || !is_host(address) || !is_host(gateway) {
        return Err(format!("{address}/{prefix_len} by {gateway} is not a place in a network"));
    }
    Ok(())
}

/// State of the interface before [`bring_to`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// All as asked.
    Same,
    /// Something else, in use.
    Other,
    /// Not in use.
    Down,
}

fn bring_to(interface: &Interface, asked: &SetNetwork) -> io::Result<Before> {
    // Init brings the loopback up too; a program may have changed it since.
    ioctl::loopback_up()?;
    interface.no_ipv6()?;
    let (mut netlink, was_up) = (Netlink::open()?, interface.is_up()?);
    if was_up {
        let held = Held::read(&mut netlink, interface.index)?;
        if interface.mac()? == asked.mac && held == Held::asked(asked) {
            return Ok(Before::Same);
        }
        interface.take_down(&mut netlink)?;
    }
    addresses::clear(&mut netlink, interface.index)?;
    interface.bring_up(&mut netlink, asked.mac)?;
    addresses::give(&mut netlink, interface.index, asked)?;
    Ok(if was_up { Before::Other } else { Before::Down })
}

/// True if the gateway answers. A machine that had another identity until now is not plugged in yet: without
/// a carrier the gateway is not asked. Otherwise the carrier of a new interface takes a moment to be noticed.
fn answers(interface: &Interface, asked: &SetNetwork, before: Before) -> io::Result<bool> {
    if before == Before::Other && !interface.has_carrier()? {
        return Ok(false);
    }
    gateway::answers(interface, asked.gateway.into())
}

fn read_back(interface: &Interface, gateway_answers: bool) -> io::Result<NetworkSet> {
    let held = Held::read(&mut Netlink::open()?, interface.index)?;
    let lost = |what| io::Error::other(format!("{what} did not stay as it was set"));
    let [(address, prefix_len)] = held.addresses[..] else { return Err(lost("the address")) };
    let gateway = held.gateway().ok_or_else(|| lost("the default route"))?;
    Ok(NetworkSet {
        interface: interface.name.clone(),
        mac: interface.mac()?,
        address: address.octets(),
        prefix_len,
        gateway: gateway.octets(),
        dns: resolver::first(Path::new(RESOLV_CONF))?.map(|server| server.octets()),
        gateway_answers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_places_in_a_network_are_taken() {
        let right = SetNetwork {
            mac: [2, 0x68, 10, 213, 4, 5],
            address: [10, 213, 4, 5],
            prefix_len: 16,
            gateway: [10, 213, 0, 1],
            dns: None,
        };
        assert_eq!(check(&right), Ok(()));
        assert_eq!(check(&SetNetwork { address: [10, 213, 0, 255], ..right.clone() }), Ok(()));
        for wrong in [
            SetNetwork { mac: [0; 6], ..right.clone() },
            SetNetwork { mac: [1, 0, 0, 0, 0, 1], ..right.clone() },
            SetNetwork { prefix_len: 31, ..right.clone() },
            SetNetwork { prefix_len: 255, ..right.clone() },
            SetNetwork { prefix_len: 0, ..right.clone() },
            SetNetwork { address: [10, 213, 0, 1], ..right.clone() },
            SetNetwork { address: [10, 213, 0, 0], ..right.clone() },
            SetNetwork { address: [10, 213, 255, 255], ..right.clone() },
            SetNetwork { address: [10, 214, 0, 2], ..right.clone() },
        ] {
            assert!(check(&wrong).is_err(), "{wrong:?}");
        }
    }
}
