//! Probe of the gateway: the kernel asks for it by ARP, and its table of neighbours has the answer.

use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};

use super::interface::Interface;
use super::message::{self, Message};
use super::netlink::Netlink;

/// Longest time for the carrier and all requests: an emulated machine on a host that is busy may
/// stand still for a second.
const PATIENCE: Duration = Duration::from_secs(3);
/// After the first request; doubled each time. The kernel itself would wait a second.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Asks for the gateway anew, whatever was known of it.
pub(super) fn answers(interface: &Interface, gateway: Ipv4Addr) -> io::Result<bool> {
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
    message::neighbour(index, flags).with(libc::NDA_DST, &address.octets())
}

fn forget(netlink: &mut Netlink, index: u32, address: Ipv4Addr) -> io::Result<()> {
    match netlink.order(libc::RTM_DELNEIGH, 0, &neighbour(index, address, 0)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn is_reachable(netlink: &mut Netlink, index: u32, address: Ipv4Addr) -> io::Result<bool> {
    let known = netlink.list(libc::RTM_GETNEIGH, &message::neighbour(0, 0))?;
    let state = |one: &Message| u16::from_ne_bytes([one.head[8], one.head[9]]);
    Ok(known.iter().any(|one| {
        one.number(4) == index
            && one.value(libc::NDA_DST) == Some(address.octets())
            && state(one) & libc::NUD_REACHABLE != 0
    }))
}
