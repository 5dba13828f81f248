//! The bridge and its taps, by rtnetlink.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use futures::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourState,
};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute};
use rtnetlink::{Handle, LinkBridge, LinkBridgePort, LinkUnspec, RouteMessageBuilder};

use super::tap::{self, Owner};
use super::wall;
use crate::error::code;
use crate::plan::{AddressBlock, AddressLease, NetworkPlan, Tag};
use crate::{Error, netns};

/// Properties of an interface that are looked at.
struct Link {
    index: u32,
    kind: Option<InfoKind>,
    controller: Option<u32>,
    mac: Vec<u8>,
    up: bool,
    /// True for a tap that a machine holds.
    held: bool,
}

/// State of the interfaces after [`ensure`], and its changes.
pub(super) struct Ports {
    /// Index of the bridge.
    pub(super) bridge: u32,
    pub(super) made: Vec<String>,
    pub(super) removed: Vec<String>,
}

/// Brings bridge and taps to the plan.
pub(super) async fn ensure(
    netlink: &Handle,
    network: &NetworkPlan,
    owner: Option<Owner>,
) -> Result<Ports, Error> {
    let mut links = ours(netlink, network.tag()).await?;
    let bridge = bridge(netlink, network, &links).await?;
    links.remove(&network.tag().bridge());
    let mut made = Vec::new();
    for (_, member) in network.members() {
        let name = network.tap(member.lease);
        let link = match links.remove(&name) {
            Some(link) => link,
            None => {
                tap::make(&name, owner)?;
                made.push(name.clone());
                find(netlink, &name).await?
            }
        };
        connect(netlink, bridge, &name, &link, member.lease).await?;
    }
    for (name, link) in &links {
        remove(netlink, name, link).await?;
    }
    let planned = network.members().map(|(_, member)| member.lease.address).collect();
    forget(netlink, bridge, |address| !BTreeSet::contains(&planned, &address)).await?;
    Ok(Ports { bridge, made, removed: links.into_keys().collect() })
}

/// Brings the taps from one plan to the next, on a bridge that is as planned. Returns those that
/// were made and removed.
pub(super) async fn step(
    netlink: &Handle,
    bridge: u32,
    [from, to]: [&NetworkPlan; 2],
    owner: Option<Owner>,
) -> Result<(Vec<String>, Vec<String>), Error> {
    let taps = |network: &NetworkPlan| -> BTreeMap<String, AddressLease> {
        network.members().map(|(_, member)| (network.tap(member.lease), member.lease)).collect()
    };
    let (mut old, new) = (taps(from), taps(to));
    let mut made = Vec::new();
    for (name, lease) in &new {
        let (name, lease) = (name.clone(), *lease);
        if old.remove(&name).is_some() {
            continue;
        }
        tap::make(&name, owner)?;
        connect(netlink, bridge, &name, &find(netlink, &name).await?, lease).await?;
        made.push(name);
    }
    for name in old.keys() {
        match find(netlink, name).await {
            Ok(link) => remove(netlink, name, &link).await?,
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            Err(Error::Netlink { source, .. }) if code(&source) == Some(libc::ENODEV) => {}
            Err(error) => return Err(error),
        }
    }
    loopback(to)?;
    if !old.is_empty() {
        let gone: BTreeSet<_> = old.values().map(|lease| lease.address).collect();
        forget(netlink, bridge, |address| gone.contains(&address)).await?;
    }
    Ok((made, old.into_keys().collect()))
}

/// Strikes out who is behind addresses that are nobody's any more.
async fn forget(
    netlink: &Handle,
    bridge: u32,
    gone: impl Fn(Ipv4Addr) -> bool,
) -> Result<(), Error> {
    let mut all = netlink.neighbours().get().set_address_family(AddressFamily::Inet).execute();
    let mut stale = Vec::new();
    while let Some(message) = all.try_next().await.map_err(Error::netlink("list who is where"))? {
        let permanent = message.header.state == NeighbourState::Permanent;
        let of_gone = message.attributes.iter().any(|attribute| {
            matches!(attribute, NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) if gone(*ip))
        });
        if message.header.ifindex == bridge && permanent && of_gone {
            stale.push(message);
        }
    }
    for message in stale {
        match netlink.neighbours().del(message).execute().await {
            Err(error) if code(&error) == Some(libc::ENOENT) => {}
            other => other.map_err(Error::netlink("strike out an address"))?,
        }
    }
    Ok(())
}

/// True when any interface of a tag is there.
pub(super) async fn any(netlink: &Handle, tag: &Tag) -> Result<bool, Error> {
    Ok(!ours(netlink, tag).await?.is_empty())
}

/// The taps that machines hold.
pub(super) async fn in_use(netlink: &Handle, tag: &Tag) -> Result<Vec<String>, Error> {
    let links = ours(netlink, tag).await?.into_iter();
    let bridge = tag.bridge();
    Ok(links.filter(|(name, link)| link.held && *name != bridge).map(|(name, _)| name).collect())
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
    let has = |flag| message.header.flags.contains(flag);
    let (up, held) = (has(LinkFlags::Up), has(LinkFlags::LowerUp));
    let (index, mac) = (message.header.index, Vec::new());
    let mut link = Link { index, kind: None, controller: None, mac, up, held };
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
    network: &NetworkPlan,
    links: &BTreeMap<String, Link>,
) -> Result<u32, Error> {
    let name = network.tag().bridge();
    let gateway = network.subnet().gateway();
    if links.get(&name).is_some_and(|link| link.kind != Some(InfoKind::Bridge)) {
        return Err(Error::ForeignInterface { name, expected: "bridge" });
    }
    let mac = AddressLease::at(gateway).mac.0.to_vec();
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
    netns::without_ipv6(&name)?;
    for (key, value) in [
        ("forwarding", "1"),
        // Answers ARP for every guest with its own MAC: guests speak through the gateway only.
        ("proxy_arp_pvlan", "1"),
        ("arp_ignore", "1"),
        ("send_redirects", "0"),
        // The check of a sender's address (`rp_filter`) asks for the way back by the packet's mark:
        // without that the uplink's guard would bar it.
        ("src_valid_mark", "1"),
    ] {
        netns::set(&name, key, value)?;
    }
    loopback(network)?;
    // Else the kernel waits up to 0.8 s before it answers for another guest.
    netns::set_neighbours(&name, "proxy_delay", "0")?;
    wall::stand(netlink, index).await?;
    address(netlink, network, index).await?;
    let up = netlink.link().set(LinkUnspec::new_with_index(index).up().build()).execute().await;
    up.map_err(Error::netlink(format!("set {name} up")))?;
    Ok(index)
}

/// Lets forwards lead from the host's loopback to guests, as long as there are some. What guests
/// send there meanwhile is dropped by the rules, and by the wall.
fn loopback(network: &NetworkPlan) -> Result<(), Error> {
    let on = if network.forwards_loopback() { "1" } else { "0" };
    netns::set(&network.tag().bridge(), "route_localnet", on)
}

/// Refuses a subnet that the host is in by another interface.
pub(super) async fn check(netlink: &Handle, network: &NetworkPlan) -> Result<(), Error> {
    let ours: Vec<u32> = ours(netlink, network.tag()).await?.values().map(|l| l.index).collect();
    let subnet = network.subnet();
    for (message, address, bits) in addresses(netlink).await? {
        let block = |bits| AddressBlock::around(address, bits);
        let overlaps = block(bits).contains(subnet.gateway()) || subnet.block().contains(address);
        if overlaps && !ours.contains(&message.header.index) {
            return Err(Error::SubnetInUse { subnet, other: format!("{address}/{bits}") });
        }
    }
    Ok(())
}

/// True when no route of the host but our own leads into the subnet; default routes lead anywhere.
pub(super) async fn is_unrouted(netlink: &Handle, network: &NetworkPlan) -> Result<bool, Error> {
    let ours: Vec<u32> = ours(netlink, network.tag()).await?.values().map(|l| l.index).collect();
    let message = RouteMessageBuilder::<Ipv4Addr>::new().build();
    let mut routes = netlink.route().get(message).execute();
    while let Some(route) = routes.try_next().await.map_err(Error::netlink("list the routes"))? {
        let bits = route.header.destination_prefix_length;
        let (mut inside, mut own) = (false, false);
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Destination(RouteAddress::Inet(to)) if bits > 0 => {
                    inside = network.subnet().overlaps(AddressBlock::around(*to, bits));
                }
                RouteAttribute::Oif(index) => own = ours.contains(index),
                _ => {}
            }
        }
        if inside && !own {
            return Ok(false);
        }
    }
    Ok(true)
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
async fn address(netlink: &Handle, network: &NetworkPlan, index: u32) -> Result<(), Error> {
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
    lease: AddressLease,
) -> Result<(), Error> {
    if link.kind != Some(InfoKind::Tun) {
        return Err(Error::ForeignInterface { name: name.to_owned(), expected: "tap" });
    }
    let failed = |what: &str| Error::netlink(format!("{what} {name}"));
    let index = link.index;
    netns::without_ipv6(name)?;
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
    let place = netlink.neighbours().add_bridge(index, &lease.mac.0);
    let place = place.state(NeighbourState::Noarp).flags(NeighbourFlags::Controller).replace();
    place.execute().await.map_err(failed("write down the MAC behind"))?;
    let neighbour = netlink.neighbours().add(bridge, IpAddr::V4(lease.address));
    let neighbour = neighbour.link_layer_address(&lease.mac.0).replace();
    neighbour.execute().await.map_err(failed("write down the address behind"))?;
    if link.up {
        return Ok(());
    }
    let up = LinkUnspec::new_with_index(index).up().build();
    netlink.link().set(up).execute().await.map_err(failed("set up"))
}
