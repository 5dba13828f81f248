//! Taps: the kernel's ends of the guests' cables.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use libc::{c_int, c_short, c_ulong};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::Error;
use crate::plan::Mac;

/// The user who may open a tap by its name without being root. A descriptor that is handed over
/// needs no owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// User id on the host.
    pub uid: u32,
    /// Group id on the host, in which the user must be as well.
    pub gid: u32,
}

const FLAGS: c_int = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_ONE_QUEUE;

/// Makes a tap that stays when nobody holds it. Down, without a bridge.
pub(super) fn make(name: &str, owner: Option<Owner>) -> Result<(), Error> {
    match cable(name, owner) {
        // Whoever holds it has made it.
        Err(Error::TapBusy { .. }) => Ok(()),
        other => other.map(drop),
    }
}

/// A queue of a tap that is made where it is missing and stays when nobody holds it. Until it is
/// joined to a bridge and set up, nothing passes.
pub(crate) fn cable(name: &str, owner: Option<Owner>) -> Result<OwnedFd, Error> {
    let tap = open(name)?;
    let set = |request: c_ulong, value: u32, what: &str| {
        // SAFETY: these requests take their argument by value.
        let result = unsafe { libc::ioctl(tap.as_raw_fd(), request, c_ulong::from(value)) };
        check(result).map_err(Error::io(format!("set the {what} of {name}")))
    };
    if let Some(Owner { uid, gid }) = owner {
        set(libc::TUNSETOWNER, uid, "owner")?;
        set(libc::TUNSETGROUP, gid, "group")?;
    }
    set(libc::TUNSETPERSIST, 1, "persistence")?;
    Ok(tap)
}

/// A queue of a tap, non-blocking, with a virtio header before each frame.
pub(crate) fn open(name: &str) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let tap = rustix::fs::open("/dev/net/tun", flags, Mode::empty())
        .map_err(io::Error::from)
        .map_err(Error::io("open /dev/net/tun"))?;
    // SAFETY: all-zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    assert!(name.len() < request.ifr_name.len(), "interface names are at most 15 bytes");
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = c_short::try_from(FLAGS).expect("the flags are 16 bits");
    // SAFETY: TUNSETIFF reads and writes an `ifreq`, which outlives the call.
    let result = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    match check(result) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            Err(Error::TapBusy { tap: name.to_owned() })
        }
        other => other.map_err(Error::io(format!("attach to {name}"))).map(|()| tap),
    }
}

/// Header of each frame of [`cable_of_parked`]: `virtio_net_hdr`.
const HEADER_BYTES: usize = 10;
const ETHERNET_BYTES: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];

/// A queue of a tap that is there, as that of a machine that takes nothing off the kernel: each
/// frame has its checksums and at most the interface's size.
pub(crate) fn cable_of_parked(name: &str) -> Result<OwnedFd, Error> {
    index(name)?;
    let tap = open(name)?;
    let bytes = c_int::try_from(HEADER_BYTES).expect("it is small");
    // SAFETY: TUNSETVNETHDRSZ reads an int, which outlives the call.
    let set = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const bytes) };
    check(set).map_err(Error::io(format!("set the header of {name}")))?;
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    let set = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETOFFLOAD, 0 as c_ulong) };
    check(set).map_err(Error::io(format!("set what {name} takes off the kernel")))?;
    Ok(tap)
}

/// The Ethernet frame that was read from [`cable_of_parked`], if it has an IPv4 packet to this MAC.
pub(crate) fn packet_to(mac: Mac, read: &[u8]) -> Option<&[u8]> {
    let frame = read.get(HEADER_BYTES..)?;
    let header = frame.get(..ETHERNET_BYTES)?;
    (header[..6] == mac.0 && header[12..] == IPV4).then_some(frame)
}

/// Sends Ethernet frames to the machine that holds a tap.
pub(crate) fn send(name: &str, frames: &[Vec<u8>]) -> Result<(), Error> {
    let failed = || Error::io_with("CAP_NET_RAW", format!("send to {name}"));
    // Protocol 0: it hears nothing.
    let socket = Socket::new(Domain::PACKET, Type::RAW, None).map_err(failed())?;
    let index = index(name)?.cast_signed();
    // SAFETY: an all-zero `sockaddr_ll` is valid, is no larger than `sockaddr_storage`, and only
    // its family and interface are of interest to a raw socket that sends whole frames.
    let (_, to) = unsafe {
        SockAddr::try_init(|storage, len| {
            let to = storage.cast::<libc::sockaddr_ll>();
            (*to).sll_family = libc::AF_PACKET as libc::sa_family_t;
            (*to).sll_ifindex = index;
            *len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })
    }
    .map_err(failed())?;
    for frame in frames {
        socket.send_to(frame, &to).map_err(failed())?;
    }
    Ok(())
}

fn index(name: &str) -> Result<u32, Error> {
    let failed = || Error::io(format!("look for {name}"));
    let any = Socket::new(Domain::UNIX, Type::DGRAM, None).map_err(failed())?;
    rustix::net::netdevice::name_to_index(&any, name).map_err(|error| failed()(error.into()))
}

fn check(result: c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
