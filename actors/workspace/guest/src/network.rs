//! The machine's one network interface.
//!
//! Nothing is remembered: each call looks at what the kernel has, brings it to what was asked, and
//! answers with what it finds then. What differs is not mended bit by bit. The interface goes down
//! first, so that between the old and the new address nothing leaves the machine.

mod interface;
mod netlink;

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use hivekeep_protocol::{GuestCode, GuestError, NetworkSet, SetNetwork};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};

use crate::files::{io_error, off_thread};
use crate::identity::write_beside;
use crate::session::call::RequestContext;
use crate::settings::GuestKind;
use crate::sys;
use interface::{Held, Interface};
use netlink::{Message, Netlink};

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
        set_name_server(Path::new(RESOLV_CONF), asked.dns.map(Ipv4Addr::from))
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
    interface::all_addresses(&mut Netlink::open()?)
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
    sys::loopback_up()?;
    interface.no_ipv6()?;
    let (mut netlink, was_up) = (Netlink::open()?, interface.is_up()?);
    if was_up {
        let held = Held::read(&mut netlink, interface.index)?;
        if interface.mac()? == asked.mac && held == Held::asked(asked) {
            return Ok(Before::Same);
        }
        interface.take_down(&mut netlink)?;
    }
    interface::clear_addresses(&mut netlink, interface.index)?;
    interface.bring_up(&mut netlink, asked.mac)?;
    interface::give_addresses(&mut netlink, interface.index, asked)?;
    Ok(if was_up { Before::Other } else { Before::Down })
}

/// True if the gateway answers. A machine that had another identity until now is not plugged in yet: without
/// a carrier the gateway is not asked. Otherwise the carrier of a new interface takes a moment to be noticed.
fn answers(interface: &Interface, asked: &SetNetwork, before: Before) -> io::Result<bool> {
    if before == Before::Other && !interface.has_carrier()? {
        return Ok(false);
    }
    probe(interface, asked.gateway.into())
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
        dns: first_name_server(Path::new(RESOLV_CONF))?.map(|server| server.octets()),
        gateway_answers,
    })
}

/// Longest time for the carrier and all requests: an emulated machine on a host that is busy may
/// stand still for a second.
const PATIENCE: Duration = Duration::from_secs(3);
/// After the first request; doubled each time. The kernel itself would wait a second.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Asks for the gateway anew, whatever was known of it.
fn probe(interface: &Interface, gateway: Ipv4Addr) -> io::Result<bool> {
    let end = Instant::now() + PATIENCE;
    while !interface.has_carrier()? {
        if Instant::now() > end {
            return Ok(false);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let (mut netlink, mut wait) = (Netlink::open()?, FIRST_WAIT);
    while Instant::now() < end {
        forget(&mut netlink, interface.index, gateway)?;
        let asking = neighbour(interface.index, gateway, libc::NTF_USE);
        netlink.order(libc::RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, &asking)?;
        let again = end.min(Instant::now() + wait);
        while Instant::now() < again {
            if is_reachable(&mut netlink, interface.index, gateway)? {
                return Ok(true);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        wait *= 2;
    }
    Ok(false)
}

fn neighbour(index: u32, address: Ipv4Addr, flags: u8) -> Message {
    netlink::neighbour(index, flags).with(libc::NDA_DST, &address.octets())
}

fn forget(netlink: &mut Netlink, index: u32, address: Ipv4Addr) -> io::Result<()> {
    match netlink.order(libc::RTM_DELNEIGH, 0, &neighbour(index, address, 0)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn is_reachable(netlink: &mut Netlink, index: u32, address: Ipv4Addr) -> io::Result<bool> {
    let known = netlink.list(libc::RTM_GETNEIGH, &netlink::neighbour(0, 0))?;
    let state = |one: &Message| u16::from_ne_bytes([one.head[8], one.head[9]]);
    Ok(known.iter().any(|one| {
        one.number(4) == index
            && one.value(libc::NDA_DST) == Some(address.octets())
            && state(one) & libc::NUD_REACHABLE != 0
    }))
}

/// Sets the name server, or none. A file or symlink that a program put there is replaced.
fn set_name_server(resolv_conf: &Path, server: Option<Ipv4Addr>) -> io::Result<()> {
    let text = server.map_or_else(String::new, |server| format!("nameserver {server}\n"));
    let is_file = std::fs::symlink_metadata(resolv_conf).is_ok_and(|meta| meta.is_file());
    if is_file && std::fs::read(resolv_conf)? == text.as_bytes() {
        return Ok(());
    }
    // Not synced: each start of the machine sets it again, and a flush of the disk is what a
    // start waits for.
    let temp = write_beside(resolv_conf, text.as_bytes(), 0o644)?;
    std::fs::rename(temp, resolv_conf)
}

/// First name server in the file.
fn first_name_server(resolv_conf: &Path) -> io::Result<Option<Ipv4Addr>> {
    let text = std::fs::read_to_string(resolv_conf)?;
    let server = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        words.next().filter(|word| *word == "nameserver").and(words.next())?.parse().ok()
    };
    Ok(text.lines().find_map(server))
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

    #[test]
    fn the_file_names_one_server_or_none_whatever_was_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let (conf, far) = (dir.path().join("resolv.conf"), dir.path().join("far"));
        std::fs::write(&far, "nameserver 9.9.9.9\n").expect("written");
        std::os::unix::fs::symlink(&far, &conf).expect("linked");
        let server = Ipv4Addr::new(10, 213, 0, 1);
        set_name_server(&conf, Some(server)).expect("named");
        assert_eq!(first_name_server(&conf).expect("read"), Some(server));
        assert!(std::fs::symlink_metadata(&conf).expect("there").is_file());
        assert_eq!(std::fs::read_to_string(&far).expect("read"), "nameserver 9.9.9.9\n");

        let made = std::fs::metadata(&conf).expect("there").modified().expect("a time");
        set_name_server(&conf, Some(server)).expect("right already");
        assert_eq!(std::fs::metadata(&conf).expect("there").modified().expect("a time"), made);
        set_name_server(&conf, None).expect("emptied");
        assert_eq!(first_name_server(&conf).expect("read"), None);
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 2);
    }
}
