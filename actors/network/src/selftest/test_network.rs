//! A host and a world, in namespaces of their own, with their interfaces and addresses, for the
//! self-test and for tests.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use futures::TryStreamExt;
use hivekeep_kernel::WorkspaceId;
use rtnetlink::{Handle, LinkUnspec, LinkVeth, RouteMessageBuilder};

use super::test_guest::TestGuest;
use crate::apply::Nft;
use crate::plan::{AddressLease, NetworkPlan, Subnet};
use crate::{AppliedPlan, Enforcer, Error, HostAccess, Namespace};

/// The world's end of the host's uplink.
pub const WORLD: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// The host's address towards the world.
pub const HOST: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// A public server of the world.
pub const PUBLIC: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
/// A server of a private network behind the host.
pub const PRIVATE: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 1);
/// Address at which clouds keep their secrets.
pub const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// The host's interface towards the world.
pub const UPLINK: &str = "up0";
/// The other end of a cable, in a namespace of a guest or of the world.
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

/// A network of namespaces: a host with the rules, its guests, and a world beyond.
#[derive(Debug)]
pub struct TestNetwork {
    /// Namespace of the rules.
    pub host: Namespace,
    /// Everything that is not the host or a guest.
    pub world: Namespace,
    guests: BTreeMap<WorkspaceId, TestGuest>,
    options: HostAccess,
}

impl TestNetwork {
    /// Makes both namespaces and the cable between them. The host forwards nothing; in other
    /// settings that bear upon the rules it is like the namespace of the caller.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without the rights to do so.
    pub fn new(options: HostAccess) -> Result<Self, Error> {
        let (host, world) = (Namespace::new()?, Namespace::new()?);
        // Read here, in the namespace of the caller.
        let settings = settings();
        let far = world.as_fd().try_clone_to_owned();
        let far = far.map_err(Error::io("copy a descriptor"))?;
        host.block_on(move || set_up_host(far, settings))?;
        world.block_on(set_up_world)?;
        Ok(Self { host, world, guests: BTreeMap::new(), options })
    }

    /// [`Enforcer::ensure`] on the stage's host.
    ///
    /// # Errors
    /// As there.
    pub fn ensure(&self, network: &NetworkPlan) -> Result<AppliedPlan, Error> {
        let network = network.clone();
        self.enforcer(move |mut enforcer| async move { enforcer.ensure(&network).await })
    }

    /// Work with an enforcer of the stage's host.
    ///
    /// # Errors
    /// Those of the work.
    pub fn enforcer<T, F>(
        &self,
        work: impl FnOnce(Enforcer) -> F + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>>,
    {
        let options = self.options.clone();
        self.host.block_on(move || async move { work(Enforcer::open(options)?).await })
    }

    /// Empties the stage's packet filter, as a restart of Debian's nftables begins.
    ///
    /// # Errors
    /// Those of nft.
    pub fn lose_rules(&self) -> Result<(), Error> {
        let nft = Nft::find(&self.options.nft_path)?;
        let flush = serde_json::json!({ "flush": { "ruleset": null } });
        self.host.block_on(move || async move { nft.transact(&[flush]).await })
    }

    /// Gives a member its guest.
    ///
    /// # Errors
    /// [`Error::NoMember`], [`Error::TapBusy`].
    pub fn plug(&mut self, network: &NetworkPlan, id: WorkspaceId) -> Result<(), Error> {
        let member = network.member(id).ok_or(Error::NoMember(id))?;
        let planned = network.clone();
        let tap = self.host.run(move || crate::open_tap(&planned, id))?;
        let guest = TestGuest::plug(tap, member.lease, network.subnet())?;
        self.guests.insert(id, guest);
        Ok(())
    }

    /// Takes a member's guest away, as when its machine ends.
    pub fn unplug(&mut self, id: WorkspaceId) {
        self.guests.remove(&id);
    }

    /// A member's guest.
    ///
    /// # Panics
    /// If it was not plugged.
    pub fn guest(&self, id: WorkspaceId) -> &TestGuest {
        &self.guests[&id]
    }
}

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
async fn set_up_host(world: OwnedFd, settings: Vec<(String, String)>) -> Result<(), Error> {
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
async fn set_up_world() -> Result<(), Error> {
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
pub(crate) async fn set_up_guest(lease: AddressLease, subnet: Subnet) -> Result<(), Error> {
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
