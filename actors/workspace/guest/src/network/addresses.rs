//! Addresses and routes of an interface.

use std::io;
use std::net::Ipv4Addr;

use hivekeep_protocol::SetNetwork;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};

use super::message::{self, Message};
use super::netlink::Netlink;

/// IPv4 addresses and routes that an interface was given.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// Addresses with their prefix lengths.
    pub(super) addresses: Vec<(Ipv4Addr, u8)>,
    /// Routes, except for those that come with an address.
    routes: Vec<Route>,
}

#[derive(Debug, PartialEq, Eq)]
struct Route {
    table: u8,
    prefix_len: u8,
    gateway: Option<Ipv4Addr>,
}

impl Route {
    fn default_by(gateway: Ipv4Addr) -> Self {
        Self { table: libc::RT_TABLE_MAIN, prefix_len: 0, gateway: Some(gateway) }
    }
}

impl Held {
    pub(super) fn asked(asked: &SetNetwork) -> Self {
        Self {
            addresses: vec![(asked.address.into(), asked.prefix_len)],
            routes: vec![Route::default_by(asked.gateway.into())],
        }
    }

    pub(super) fn read(netlink: &mut Netlink, index: u32) -> io::Result<Self> {
        let addresses = own_addresses(netlink, index)?;
        let addresses =
            addresses.iter().filter_map(|one| Some((local(one)?, one.head[1]))).collect();
        let routes = netlink.list(libc::RTM_GETROUTE, &message::route(0, 0, 0))?;
        let routes = routes.iter().filter(|one| given(one, index)).map(route).collect();
        Ok(Self { addresses, routes })
    }

    /// Gateway of the default route.
    pub(super) fn gateway(&self) -> Option<Ipv4Addr> {
        let main = self.routes.iter().filter(|one| one.table == libc::RT_TABLE_MAIN);
        main.filter(|one| one.prefix_len == 0).find_map(|one| one.gateway)
    }
}

fn local(message: &Message) -> Option<Ipv4Addr> {
    message.value(libc::IFA_LOCAL).map(Ipv4Addr::from_octets)
}

/// Whether a route leads over the interface and was not made by the kernel itself.
fn given(message: &Message, index: u32) -> bool {
    message.head[5] != libc::RTPROT_KERNEL
        && message.value(libc::RTA_OIF) == Some(index.to_ne_bytes())
}

fn route(message: &Message) -> Route {
    let gateway = message.value(libc::RTA_GATEWAY).map(Ipv4Addr::from_octets);
    Route { table: message.head[4], prefix_len: message.head[1], gateway }
}

fn own_addresses(netlink: &mut Netlink, index: u32) -> io::Result<Vec<Message>> {
    let mut all = netlink.list(libc::RTM_GETADDR, &message::address(0, 0))?;
    all.retain(|one| one.number(4) == index);
    Ok(all)
}

/// Addresses of all interfaces but the loopback.
pub(super) fn all(netlink: &mut Netlink) -> io::Result<Vec<Ipv4Addr>> {
    let all = netlink.list(libc::RTM_GETADDR, &message::address(0, 0))?;
    Ok(all.iter().filter_map(local).filter(|address| !address.is_loopback()).collect())
}

/// Removes all addresses. Without the first of a network its others may go by themselves.
pub(super) fn clear(netlink: &mut Netlink, index: u32) -> io::Result<()> {
    for address in own_addresses(netlink, index)? {
        match netlink.order(libc::RTM_DELADDR, 0, &address) {
            Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => {}
            other => other?,
        }
    }
    Ok(())
}

/// Gives an interface that is up its address and the default route.
pub(super) fn give(netlink: &mut Netlink, index: u32, asked: &SetNetwork) -> io::Result<()> {
    let broadcast = u32::from_be_bytes(asked.address) | (u32::MAX >> asked.prefix_len);
    let address = message::address(index, asked.prefix_len)
        .with(libc::IFA_LOCAL, &asked.address)
        .with(libc::IFA_ADDRESS, &asked.address)
        .with(libc::IFA_BROADCAST, &broadcast.to_be_bytes());
    netlink.order(libc::RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &address)?;
    let route = message::route(0, libc::RT_TABLE_MAIN, libc::RTPROT_STATIC)
        .with(libc::RTA_GATEWAY, &asked.gateway)
        .with(libc::RTA_OIF, &index.to_ne_bytes());
    netlink.order(libc::RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &route)
}
