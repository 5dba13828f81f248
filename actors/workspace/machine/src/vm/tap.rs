//! Taps: checks of those that the driver is given, and one that leads nowhere.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;

use rustix::fs::{Mode, OFlags};
use rustix::thread::UnshareFlags;

use crate::Error;

const TUN: &str = "/dev/net/tun";
const FLAGS: libc::c_int = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;

/// Refuses what is not a tap with the header that saved states count on.
pub(super) fn check(tap: impl AsFd) -> Result<(), Error> {
    let bad = |why: String| Error::BadPlan(format!("the network cable {why}"));
    // SAFETY: all-zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let fd = tap.as_fd().as_raw_fd();
    // SAFETY: TUNGETIFF writes an `ifreq`, which outlives the call.
    checked(unsafe { libc::ioctl(fd, libc::TUNGETIFF, &raw mut request) })
        .map_err(|error| bad(format!("does not end in a tap: {error}")))?;
    // SAFETY: the request filled in the flags.
    let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
    if flags & FLAGS == FLAGS { Ok(()) } else { Err(bad("ends in a tap without headers".into())) }
}

/// A tap that is down, in a network namespace of its own where nothing else is. It ends with the descriptor.
/// Needs CAP_SYS_ADMIN, as every tap in a namespace that this process makes.
pub(super) fn lost() -> Result<OwnedFd, Error> {
    let make = || in_new_network("lost", || Ok(()));
    let made = thread::Builder::new().name("lost-tap".into()).spawn(make);
    let made = made.and_then(|made| {
        let panicked = |_| Err(io::Error::other("the thread panicked"));
        made.join().unwrap_or_else(panicked)
    });
    made.map(|(tap, ())| tap).map_err(Error::io("make a tap of no network with", TUN.as_ref()))
}

/// Moves the calling thread, which must have been started for that, into a network of its own,
/// makes a tap there and does `more`.
pub(super) fn in_new_network<T>(
    name: &str,
    more: impl FnOnce() -> io::Result<T>,
) -> io::Result<(OwnedFd, T)> {
    // SAFETY: only the network namespace of this thread changes, which has no sockets.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok((attach(name)?, more()?))
}

/// Makes a tap in the calling thread's network; it ends with its descriptor.
fn attach(name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let tap = rustix::fs::open(TUN, flags, Mode::empty())?;
    // SAFETY: all-zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(FLAGS).expect("the flags are 16 bits");
    // SAFETY: TUNSETIFF reads and writes an `ifreq`, which outlives the call.
    checked(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    Ok(tap)
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_tap_is_a_tap_and_reaches_nothing() {
        assert!(matches!(check(std::fs::File::open("/dev/null").unwrap()), Err(Error::BadPlan(_))));
        let tap = match lost() {
            Ok(tap) => tap,
            Err(error) => return hivekeep_skip::skip(error),
        };
        check(&tap).unwrap();
        let refused = rustix::io::write(&tap, &[0; 64]);
        assert_eq!(refused, Err(rustix::io::Errno::IO), "it is down");
        assert!(!std::path::Path::new("/sys/class/net/lost").exists());
    }
}
