//! The bridge and its taps, by rtnetlink.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use futures::TryStreamExt;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use rtnetlink::packet_route::neighbour::{NeighbourFlags, NeighbourState};
use rtnetlink::{Handle, LinkBridge, LinkBridgePort, LinkUnspec};

use super::sysctl;
use super::tap::{self, Owner};
use crate::Error;
use crate::error::code;
use crate::plan::{Block, Network, Seat, Tag};

/// What we look at in an interface.
struct Link {
    index: u32,
    kind: Option<InfoKind>,
    controller: Option<u32>,
    mac: Vec<u8>,
    up: bool,
}

/// Brings bridge and taps to the plan. Returns the taps made and removed.
pub(super) async fn ensure(
    netlink: &Handle,
    network: &Network,
    owner: Option<Owner>,
) -> Result<(Vec<String>, Vec<String>), Error> {
    let mut links = ours(netlink, network.tag()).await?;
    let bridge = bridge(netlink, network, &links).await?;
    links.remove(&network.tag().bridge());
    let mut made = Vec::new();
    for (_, member) in network.members() {
        let name = network.tap(member.seat);
        let link = match links.remove(&name) {
            Some(link) => link,
            None => {
                tap::make(&name, owner)?;
                made.push(name.clone());
                find(netlink, &name).await?
            }
        };
        if link.kind != Some(InfoKind::Tun) {
            return Err(Error::ForeignInterface { name, expected: "tap" });
        }
        connect(netlink, bridge, &name, &link, member.seat).await?;
    }
    for (name, link) in &links {
        remove(netlink, name, link).await?;
    }
    Ok((made, links.into_keys().collect()))
}

/// Removes all interfaces of a tag: the taps, then the bridge.
pub(super) async fn remove_all(netlink: &Handle, tag: &Tag) -> Result<(), Error> {
    let mut links = ours(netlink, tag).await?;
    let bridge = links.remove_entry(&tag.bridge());
    for (name, link) in links.into_iter().chain(bridge) {
        remove(netlink, &name, &link).await?;
    }
    Ok(())
}

async fn remove(netlink: &Handle, name: &str, link: &Link) -> Result<(), Error> {
    match netlink.link().del(link.index).execute().await {
        Err(error) if code(&error) == Some(libc::ENODEV) => Ok(()),
        other => other.map_err(Error::netlink(format!("remove {name}"))),
    }
}

/// The interfaces with names of a tag.
async fn ours(netlink: &Handle, tag: &Tag) -> Result<BTreeMap<String, Link>, Error> {
    let mut found = BTreeMap::new();
    let mut links = netlink.link().get().execute();
    let listed = || Error::netlink("list the interfaces");
    while let Some(message) = links.try_next().await.map_err(listed())? {
        if let Some((name, link)) = read(message).filter(|(name, _)| tag.owns(name)) {
            found.insert(name, link);
        }
    }
    Ok(found)
}

async fn find(netlink: &Handle, name: &str) -> Result<Link, Error> {
    let mut links = netlink.link().get().match_name(name.to_owned()).execute();
    let message = links.try_next().await.map_err(Error::netlink(format!("look for {name}")))?;
    let link = message.and_then(read).map(|(_, link)| link);
    let gone = || std::io::Error::from(std::io::ErrorKind::NotFound);
    link.ok_or_else(|| Error::io(format!("look for {name}"))(gone()))
}

fn read(message: LinkMessage) -> Option<(String, Link)> {
    let up = message.header.flags.contains(LinkFlags::Up);
    let (index, mac) = (message.header.index, Vec::new());
    let mut link = Link { index, kind: None, controller: None, mac, up };
    let mut name = None;
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text),
            LinkAttribute::Address(mac) => link.mac = mac,
            LinkAttribute::Controller(index) => link.controller = Some(index),
            LinkAttribute::LinkInfo(infos) => {
                link.kind = infos.into_iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Some((name?, link))
}

/// Makes the bridge where it is missing, and sets it up. Returns its index.
async fn bridge(
    netlink: &Handle,
    network: &Network,
    links: &BTreeMap<String, Link>,
) -> Result<u32, Error> {
    let name = network.tag().bridge();
    let gateway = network.subnet().gateway();
    if links.get(&name).is_some_and(|link| link.kind != Some(InfoKind::Bridge)) {
        return Err(Error::ForeignInterface { name, expected: "bridge" });
    }
    let mac = Seat::at(gateway).mac.0.to_vec();
    let mut message = LinkBridge::new(&name).mcast_snooping(false).nf_call_iptables(false);
    if links.get(&name).is_none_or(|link| link.mac != mac) {
        // Without an address of its own it would take one of its ports'. Only where it differs,
        // since the kernel then forgets all neighbours.
        message = message.address(mac);
    }
    let made = match links.contains_key(&name) {
        true => netlink.link().change(message.build()).execute().await,
        false => netlink.link().add(message.build()).execute().await,
    };
    made.map_err(Error::netlink(format!("make the bridge {name}")))?;
    let index = find(netlink, &name).await?.index;
    sysctl::without_ipv6(&name)?;
    for (key, value) in [
        ("forwarding", "1"),
        // Answers ARP for every guest with its own MAC: guests speak through the gateway only.
        ("proxy_arp_pvlan", "1"),
        // For forwards from the host's loopback; the rules drop what guests send there.
        ("route_localnet", "1"),
        ("arp_ignore", "1"),
        ("send_redirects", "0"),
    ] {
        sysctl::set(&name, key, value)?;
    }
    // Else the kernel waits up to 0.8 s before it answers for another guest.
    sysctl::set_neighbours(&name, "proxy_delay", "0")?;
    address(netlink, network, index).await?;
    let up = netlink.link().set(LinkUnspec::new_with_index(index).up().build()).execute().await;
    up.map_err(Error::netlink(format!("set {name} up")))?;
    Ok(index)
}

/// Refuses a subnet that the host is in by another interface.
pub(super) async fn check(netlink: &Handle, network: &Network) -> Result<(), Error> {
    let ours: Vec<u32> = ours(netlink, network.tag()).await?.values().map(|l| l.index).collect();
    let subnet = network.subnet();
    for (message, address, bits) in addresses(netlink).await? {
        let block = |bits| Block::around(address, bits);
        let overlaps = block(bits).contains(subnet.gateway()) || subnet.block().contains(address);
        if overlaps && !ours.contains(&message.header.index) {
            return Err(Error::SubnetInUse { subnet, other: format!("{address}/{bits}") });
        }
    }
    Ok(())
}

/// All IPv4 addresses of the host.
async fn addresses(netlink: &Handle) -> Result<Vec<(AddressMessage, Ipv4Addr, u8)>, Error> {
    let mut found = Vec::new();
    let mut all = netlink.address().get().execute();
    let listed = || Error::netlink("list the host's addresses");
    while let Some(message) = all.try_next().await.map_err(listed())? {
        // The local one: of a point-to-point interface, the other is the peer's.
        let local = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(IpAddr::V4(address)) => Some(*address),
            _ => None,
        });
        let bits = message.header.prefix_len;
        found.extend(local.map(|address| (message, address, bits)));
    }
    Ok(found)
}

/// Gives the bridge the gateway's address and takes every other.
async fn address(netlink: &Handle, network: &Network, index: u32) -> Result<(), Error> {
    let wanted = IpAddr::V4(network.subnet().gateway());
    let bits = network.subnet().prefix_len();
    let mut all = addresses(netlink).await?;
    all.retain(|(message, ..)| message.header.index == index);
    let is =
        |found: &(AddressMessage, Ipv4Addr, u8)| (IpAddr::V4(found.1), found.2) == (wanted, bits);
    let present = all.iter().any(is);
    let stale = all.into_iter().filter(|found| !is(found)).map(|(message, ..)| message);
    for message in stale {
        let gone = netlink.address().del(message).execute().await;
        gone.map_err(Error::netlink("take an old address from the bridge"))?;
    }
    if present {
        return Ok(());
    }
    let added = netlink.address().add(index, wanted, bits).execute().await;
    added.map_err(Error::netlink(format!("give the bridge {wanted}/{bits}")))
}

/// Makes a tap a port of the bridge that hears only what is meant for it, then sets it up. Writes
/// down every time who is behind it: others may flush the kernel's tables, and nothing here asks.
async fn connect(
    netlink: &Handle,
    bridge: u32,
    name: &str,
    link: &Link,
    seat: Seat,
) -> Result<(), Error> {
    let failed = |what: &str| Error::netlink(format!("{what} {name}"));
    let index = link.index;
    sysctl::without_ipv6(name)?;
    if link.controller != Some(bridge) {
        let join = LinkUnspec::new_with_index(index).controller(bridge).build();
        netlink.link().set(join).execute().await.map_err(failed("join to the bridge"))?;
    }
    // No learning and no flooding: who is where is in the plan.
    let port = LinkBridgePort::new(index)
        .isolated(true)
        .learning(false)
        .flood(false)
        .mcast_flood(false)
        .bcast_flood(false)
        .build();
    netlink.link().set_port(port).execute().await.map_err(failed("isolate the port"))?;
    let place = netlink.neighbours().add_bridge(index, &seat.mac.0);
    let place = place.state(NeighbourState::Noarp).flags(NeighbourFlags::Controller).replace();
    place.execute().await.map_err(failed("write down the MAC behind"))?;
    let neighbour = netlink.neighbours().add(bridge, IpAddr::V4(seat.address));
    let neighbour = neighbour.link_layer_address(&seat.mac.0).replace();
    neighbour.execute().await.map_err(failed("write down the address behind"))?;
    if link.up {
        return Ok(());
    }
    let up = LinkUnspec::new_with_index(index).up().build();
    netlink.link().set(up).execute().await.map_err(failed("set up"))
}
