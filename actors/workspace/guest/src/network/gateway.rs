//! Whether the gateway is there: the kernel asks for it by ARP, and its table of neighbours says
//! what came of it.

use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};

use super::interface::Interface;
use super::netlink::Netlink;

/// Longest time for the carrier and all requests.
const PATIENCE: Duration = Duration::from_secs(1);
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
        let asking = neighbour(interface.index, gateway, NeighbourFlags::Use);
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

fn neighbour(index: u32, address: Ipv4Addr, flags: NeighbourFlags) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.ifindex = index;
    message.header.flags = flags;
    message.attributes = vec![NeighbourAttribute::Destination(NeighbourAddress::Inet(address))];
    message
}

fn forget(netlink: &mut Netlink, index: u32, address: Ipv4Addr) -> io::Result<()> {
    let known = neighbour(index, address, NeighbourFlags::empty());
    match netlink.order(libc::RTM_DELNEIGH, 0, &known) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn is_reachable(netlink: &mut Netlink, index: u32, address: Ipv4Addr) -> io::Result<bool> {
    let mut asked = NeighbourMessage::default();
    asked.header.family = AddressFamily::Inet;
    let known: Vec<NeighbourMessage> = netlink.list(libc::RTM_GETNEIGH, &asked)?;
    let destination = NeighbourAttribute::Destination(NeighbourAddress::Inet(address));
    Ok(known.iter().any(|one| {
        one.header.ifindex == index
            && one.header.state == NeighbourState::Reachable
            && one.attributes.contains(&destination)
    }))
}
