//! Interfaces and addresses inside of the stage's namespaces.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use futures::TryStreamExt;
use rtnetlink::{Handle, LinkUnspec, LinkVeth, RouteMessageBuilder};

use super::{HOST, METADATA, PRIVATE, PUBLIC, UPLINK, WORLD};
use crate::Error;
use crate::plan::{AddressLease, Subnet};

const FAR: &str = "eth0";

/// Settings that an administrator may have made for all interfaces and all bridges.
const SETTINGS: [&str; 8] = [
    "bridge/bridge-nf-call-iptables",
    "bridge/bridge-nf-call-arptables",
    "ipv4/conf/all/rp_filter",
    "ipv4/conf/all/route_localnet",
    "ipv4/conf/all/proxy_arp",
    "ipv4/conf/all/arp_filter",
    "ipv4/conf/all/arp_ignore",
    "ipv4/conf/all/send_redirects",
];

/// The settings of the calling thread's namespace, those that the kernel knows.
pub(crate) fn settings() -> Vec<(String, String)> {
    let paths = SETTINGS.map(|name| format!("/proc/sys/net/{name}"));
    let read = |path: String| Some((path.clone(), std::fs::read_to_string(path).ok()?));
    paths.into_iter().filter_map(read).collect()
}

/// A connection that ends with the runtime of the job.
fn connect() -> Result<Handle, Error> {
    let (connection, handle, _) =
        rtnetlink::new_connection().map_err(Error::io("connect to rtnetlink"))?;
    tokio::spawn(connection);
    Ok(handle)
}

/// The host: loopback, an uplink whose other end is in `world`, a default route.
pub(super) async fn host(world: OwnedFd, settings: Vec<(String, String)>) -> Result<(), Error> {
    let netlink = connect()?;
    let veth = LinkVeth::new(UPLINK, FAR).build();
    netlink.link().add(veth).execute().await.map_err(Error::netlink("make a veth pair"))?;
    let across = LinkUnspec::new_with_name(FAR).setns_by_fd(world.as_raw_fd()).build();
    netlink.link().set(across).execute().await.map_err(Error::netlink("move a veth"))?;
    up(&netlink, "lo").await?;
    let uplink = up(&netlink, UPLINK).await?;
    give(&netlink, uplink, HOST, 24).await?;
    default_route(&netlink, WORLD).await?;
    for (path, value) in settings {
        std::fs::write(&path, value).map_err(Error::io(format!("write {path}")))?;
    }
    // The host is no router at first.
    let off = std::fs::write("/proc/sys/net/ipv4/conf/all/forwarding", "0");
    off.map_err(Error::io("switch forwarding off"))
}

/// The world: its end of the uplink and the addresses of its servers. It knows no way to guests.
pub(super) async fn world() -> Result<(), Error> {
    let netlink = connect()?;
    up(&netlink, "lo").await?;
    let uplink = up(&netlink, FAR).await?;
    give(&netlink, uplink, WORLD, 24).await?;
    for server in [PUBLIC, PRIVATE, METADATA] {
        give(&netlink, uplink, server, 32).await?;
    }
    Ok(())
}

/// Guest: its address, and a default route to the gateway.
pub(crate) async fn guest(lease: AddressLease, subnet: Subnet) -> Result<(), Error> {
    let netlink = connect()?;
    up(&netlink, "lo").await?;
    let index = index(&netlink, FAR).await?;
    let own = LinkUnspec::new_with_index(index).address(lease.mac.0.to_vec()).build();
    netlink.link().set(own).execute().await.map_err(Error::netlink("set a MAC"))?;
    up(&netlink, FAR).await?;
    give(&netlink, index, lease.address, subnet.prefix_len()).await?;
    default_route(&netlink, subnet.gateway()).await
}

async fn index(netlink: &Handle, name: &str) -> Result<u32, Error> {
    let mut links = netlink.link().get().match_name(name.to_owned()).execute();
    let link = links.try_next().await.map_err(Error::netlink(format!("look for {name}")))?;
    let gone = || std::io::Error::from(std::io::ErrorKind::NotFound);
    let link = link.ok_or_else(|| Error::io(format!("look for {name}"))(gone()))?;
    Ok(link.header.index)
}

async fn up(netlink: &Handle, name: &str) -> Result<u32, Error> {
    let index = index(netlink, name).await?;
    let up = LinkUnspec::new_with_index(index).up().build();
    netlink.link().set(up).execute().await.map_err(Error::netlink(format!("set {name} up")))?;
    Ok(index)
}

async fn give(netlink: &Handle, index: u32, address: Ipv4Addr, bits: u8) -> Result<(), Error> {
    let added = netlink.address().add(index, IpAddr::V4(address), bits).execute().await;
    added.map_err(Error::netlink(format!("add {address}/{bits}")))
}

async fn default_route(netlink: &Handle, gateway: Ipv4Addr) -> Result<(), Error> {
    let route = RouteMessageBuilder::<Ipv4Addr>::new().gateway(gateway).build();
    let added = netlink.route().add(route).execute().await;
    added.map_err(Error::netlink(format!("route by {gateway}")))
}

/// Adds a route by which a neighbour of the host, in the world, sends to guests.
pub(crate) async fn route_to_guests() -> Result<(), Error> {
    let netlink = connect()?;
    let block = Subnet::default().block();
    let route = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(block.base(), block.prefix_len())
        .gateway(HOST)
        .build();
    netlink.route().add(route).execute().await.map_err(Error::netlink("route to the guests"))
}
