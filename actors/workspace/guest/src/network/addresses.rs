//! Addresses and routes of an interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use hivekeep_protocol::SetNetwork;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};

use super::netlink::Netlink;

/// What an interface has of IPv4 that somebody gave it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// With the bits of their networks.
    pub(super) addresses: Vec<(Ipv4Addr, u8)>,
    /// But for those that come with an address.
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
        Self { table: RouteHeader::RT_TABLE_MAIN, prefix_len: 0, gateway: Some(gateway) }
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
            addresses.iter().filter_map(|one| Some((local(one)?, one.header.prefix_len)));
        let addresses = addresses.collect();
        let mut asked = RouteMessage::default();
        asked.header.address_family = AddressFamily::Inet;
        let routes: Vec<RouteMessage> = netlink.list(libc::RTM_GETROUTE, &asked)?;
        let routes = routes.iter().filter(|one| given(one, index)).map(route).collect();
        Ok(Self { addresses, routes })
    }

    /// Where the default route leads.
    pub(super) fn gateway(&self) -> Option<Ipv4Addr> {
        let main = self.routes.iter().filter(|one| one.table == RouteHeader::RT_TABLE_MAIN);
        main.filter(|one| one.prefix_len == 0).find_map(|one| one.gateway)
    }
}

fn local(message: &AddressMessage) -> Option<Ipv4Addr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(IpAddr::V4(address)) => Some(*address),
        _ => None,
    })
}

/// Whether a route leads over the interface and was not made by the kernel itself.
fn given(message: &RouteMessage, index: u32) -> bool {
    message.header.protocol != RouteProtocol::Kernel
        && message.attributes.contains(&RouteAttribute::Oif(index))
}

fn route(message: &RouteMessage) -> Route {
    let gateway = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(gateway)) => Some(*gateway),
        _ => None,
    });
    let RouteHeader { table, destination_prefix_length, .. } = message.header;
    Route { table, prefix_len: destination_prefix_length, gateway }
}

fn own_addresses(netlink: &mut Netlink, index: u32) -> io::Result<Vec<AddressMessage>> {
    let mut asked = AddressMessage::default();
    asked.header.family = AddressFamily::Inet;
    let mut all: Vec<AddressMessage> = netlink.list(libc::RTM_GETADDR, &asked)?;
    all.retain(|one| one.header.index == index);
    Ok(all)
}

/// Takes all addresses away. Without the first of a network its others may go by themselves.
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
    let (address, gateway) = (Ipv4Addr::from(asked.address), Ipv4Addr::from(asked.gateway));
    let hosts = u32::MAX >> asked.prefix_len;
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = asked.prefix_len;
    message.header.index = index;
    message.attributes = vec![
        AddressAttribute::Local(address.into()),
        AddressAttribute::Address(address.into()),
        AddressAttribute::Broadcast(Ipv4Addr::from_bits(address.to_bits() | hosts)),
    ];
    netlink.order(libc::RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &message)?;
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message.attributes =
        vec![RouteAttribute::Gateway(RouteAddress::Inet(gateway)), RouteAttribute::Oif(index)];
    netlink.order(libc::RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &message)
}
