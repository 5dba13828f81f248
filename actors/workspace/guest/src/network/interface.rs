//! The virtio interface: which it is, its own address, and the addresses and routes that it has.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hivekeep_protocol::{GuestCode, GuestError, SetNetwork};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};

use super::netlink::{self, Message, Netlink};
use crate::files::io_error;

const INTERFACES: &str = "/sys/class/net";
const VIRTIO_DEVICES: &str = "/sys/bus/virtio/devices";
/// The number of network devices in the virtio specification.
const NETWORK_DEVICE: &str = "0x0001";
/// Says `live` once a module has taken its devices up; not there for one that is built in. Before,
/// an interface can be seen that its driver has not done with.
const DRIVER_STATE: &str = "/sys/module/virtio_net/initstate";
/// The driver is loaded beside the first calls, see `init`.
const DRIVER_WAIT: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) index: u32,
}

/// The only interface that a virtio device gives.
///
/// # Errors
/// `Unsupported` in a machine without one, `NotFound` if its driver does not come, `Invalid` where
/// there are several.
pub(super) fn find() -> Result<Interface, GuestError> {
    let failed = |error: io::Error| io_error(&error, INTERFACES);
    let end = Instant::now() + DRIVER_WAIT;
    loop {
        let mut names = Vec::new();
        if fs::read_to_string(DRIVER_STATE).map_or(true, |state| state.trim_end() == "live") {
            names = virtio_names(Path::new(INTERFACES)).map_err(failed)?;
        }
        match (names.pop(), names.pop()) {
            (Some(name), None) => {
                let index = read(&name, "ifindex").map_err(failed)?;
                let index = index.parse().map_err(io::Error::other).map_err(failed)?;
                return Ok(Interface { name, index });
            }
            (Some(one), Some(other)) => {
                let text = format!("{one} and {other} are both virtio interfaces");
                return Err(GuestError::new(GuestCode::Invalid, text));
            }
            (None, _) if !has_device(Path::new(VIRTIO_DEVICES)) => {
                let text = "this machine has no network interface";
                return Err(GuestError::new(GuestCode::Unsupported, text));
            }
            (None, _) if Instant::now() > end => {
                let text = "the kernel module virtio_net is not loaded: the machine has a network \
                            device, and its image no driver for it";
                return Err(GuestError::new(GuestCode::NotFound, text));
            }
            (None, _) => std::thread::sleep(LOOK_EVERY),
        }
    }
}

fn virtio_names(interfaces: &Path) -> io::Result<Vec<String>> {
    let is_virtio = |entry: &fs::DirEntry| {
        let driver = fs::read_link(entry.path().join("device/driver"));
        driver.is_ok_and(|driver| driver.ends_with("virtio_net"))
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(interfaces)? {
        let entry = entry?;
        if is_virtio(&entry) {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

fn has_device(devices: &Path) -> bool {
    let kind = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("device"));
    fs::read_dir(devices).is_ok_and(|entries| {
        entries.flatten().any(|entry| kind(entry).is_ok_and(|kind| kind.trim() == NETWORK_DEVICE))
    })
}

/// A line that the kernel says of an interface.
fn read(name: &str, what: &str) -> io::Result<String> {
    let text = fs::read_to_string(Path::new(INTERFACES).join(name).join(what))?;
    Ok(text.trim_end().to_owned())
}

impl Interface {
    pub(super) fn mac(&self) -> io::Result<[u8; 6]> {
        let text = read(&self.name, "address")?;
        parse_mac(&text).ok_or_else(|| io::Error::other(format!("{text:?} is not a MAC")))
    }

    pub(super) fn is_up(&self) -> io::Result<bool> {
        let text = read(&self.name, "flags")?;
        let flags = u32::from_str_radix(text.trim_start_matches("0x"), 16);
        Ok(flags.map_err(io::Error::other)? & libc::IFF_UP as u32 != 0)
    }

    /// True if the interface has a carrier. An interface that is down has none.
    pub(super) fn has_carrier(&self) -> io::Result<bool> {
        match read(&self.name, "carrier") {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(false),
            carrier => Ok(carrier? == "1"),
        }
    }

    /// No address of that kind appears by itself. A kernel without IPv6 needs no order.
    pub(super) fn no_ipv6(&self) -> io::Result<()> {
        let path: PathBuf =
            ["/proc/sys/net/ipv6/conf", &self.name, "disable_ipv6"].iter().collect();
        match fs::read_to_string(&path) {
            Ok(text) if text.trim_end() == "1" => Ok(()),
            Ok(_) => fs::write(path, "1"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Takes it out of use: with it go its routes, its neighbours, and what waits to be sent.
    pub(super) fn take_down(&self, netlink: &mut Netlink) -> io::Result<()> {
        let down = netlink::link(self.index, 0, libc::IFF_UP as u32);
        netlink.order(libc::RTM_NEWLINK, 0, &down)
    }

    /// Gives it an address of its own and brings it up.
    pub(super) fn bring_up(&self, netlink: &mut Netlink, mac: [u8; 6]) -> io::Result<()> {
        let flag = libc::IFF_UP as u32;
        let up = netlink::link(self.index, flag, flag);
        let own = self.mac()? == mac;
        let up = if own { up } else { up.with(libc::IFLA_ADDRESS, &mac) };
        netlink.order(libc::RTM_NEWLINK, 0, &up)
    }
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok());
    let mut mac = [0; 6];
    for byte in &mut mac {
        *byte = bytes.next()??;
    }
    bytes.next().is_none().then_some(mac)
}

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
        let routes = netlink.list(libc::RTM_GETROUTE, &netlink::route(0, 0, 0))?;
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
    let mut all = netlink.list(libc::RTM_GETADDR, &netlink::address(0, 0))?;
    all.retain(|one| one.number(4) == index);
    Ok(all)
}

/// Addresses of all interfaces but the loopback.
pub(super) fn all_addresses(netlink: &mut Netlink) -> io::Result<Vec<Ipv4Addr>> {
    let all = netlink.list(libc::RTM_GETADDR, &netlink::address(0, 0))?;
    Ok(all.iter().filter_map(local).filter(|address| !address.is_loopback()).collect())
}

/// Removes all addresses. Without the first of a network its others may go by themselves.
pub(super) fn clear_addresses(netlink: &mut Netlink, index: u32) -> io::Result<()> {
    for address in own_addresses(netlink, index)? {
        match netlink.order(libc::RTM_DELADDR, 0, &address) {
            Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => {}
            other => other?,
        }
    }
    Ok(())
}

/// Gives an interface that is up its address and the default route.
pub(super) fn give_addresses(
    netlink: &mut Netlink,
    index: u32,
    asked: &SetNetwork,
) -> io::Result<()> {
    let broadcast = u32::from_be_bytes(asked.address) | (u32::MAX >> asked.prefix_len);
    let address = netlink::address(index, asked.prefix_len)
        .with(libc::IFA_LOCAL, &asked.address)
        .with(libc::IFA_ADDRESS, &asked.address)
        .with(libc::IFA_BROADCAST, &broadcast.to_be_bytes());
    netlink.order(libc::RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &address)?;
    let route = netlink::route(0, libc::RT_TABLE_MAIN, libc::RTPROT_STATIC)
        .with(libc::RTA_GATEWAY, &asked.gateway)
        .with(libc::RTA_OIF, &index.to_ne_bytes());
    netlink.order(libc::RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &route)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtio_device_and_its_interface_are_known_by_what_the_kernel_says() {
        let dir = tempfile::tempdir().expect("a folder");
        let (devices, interfaces) = (dir.path().join("devices"), dir.path().join("net"));
        assert!(!has_device(&devices));
        for (name, kind) in [("virtio0", "0x0002\n"), ("virtio1", "0x0001\n")] {
            fs::create_dir_all(devices.join(name)).expect("made");
            fs::write(devices.join(name).join("device"), kind).expect("written");
        }
        assert!(has_device(&devices));
        fs::remove_dir_all(devices.join("virtio1")).expect("removed");
        assert!(!has_device(&devices), "a disk is none");

        for (name, driver) in [("eth0", "virtio_net"), ("veth1", "veth"), ("eth1", "e1000")] {
            let device = interfaces.join(name).join("device");
            fs::create_dir_all(&device).expect("made");
            let to = format!("/sys/bus/virtio/drivers/{driver}");
            std::os::unix::fs::symlink(to, device.join("driver")).expect("linked");
        }
        fs::create_dir_all(interfaces.join("lo")).expect("made");
        assert_eq!(virtio_names(&interfaces).expect("listed"), ["eth0"]);
    }

    #[test]
    fn a_mac_has_six_bytes() {
        assert_eq!(parse_mac("02:68:0a:d5:04:05"), Some([2, 0x68, 10, 213, 4, 5]));
        for wrong in ["", "02:68:0a:d5:04", "02:68:0a:d5:04:05:06", "02:68:0a:d5:04:zz"] {
            assert_eq!(parse_mac(wrong), None, "{wrong}");
        }
    }
}
