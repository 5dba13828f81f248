//! The virtio interface: which it is, and its own address.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::message;
use super::netlink::Netlink;
use crate::files::io_error;
use hivekeep_protocol::{GuestCode, GuestError};

const INTERFACES: &str = "/sys/class/net";
const VIRTIO_DEVICES: &str = "/sys/bus/virtio/devices";
/// The number of network devices in the virtio specification.
const NETWORK_DEVICE: &str = "0x0001";
/// Says `live` once a module has taken its devices up; not there for one that is built in. Before,
/// an interface can be seen that its driver has not done with.
const DRIVER_STATE: &str = "/sys/module/virtio_net/initstate";
/// The driver is loaded beside the first calls, see `init::modules`.
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
        let down = message::link(self.index, 0, libc::IFF_UP as u32);
        netlink.order(libc::RTM_NEWLINK, 0, &down)
    }

    /// Gives it an address of its own and brings it up.
    pub(super) fn bring_up(&self, netlink: &mut Netlink, mac: [u8; 6]) -> io::Result<()> {
        let flag = libc::IFF_UP as u32;
        let up = message::link(self.index, flag, flag);
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
