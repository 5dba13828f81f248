//! Taps: the kernel's ends of the guests' cables.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use libc::{c_int, c_short, c_ulong};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::Error;

/// The user who may open a tap by its name without being root. A descriptor that is handed over
/// needs no owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
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

fn check(result: c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
