//! Unix sockets that are bound here and served by the machine.
//!
//! A socket is bound before the machine starts and handed over as a descriptor, so the machine
//! needs no right to the run folder. It begins to listen in the child after the user was switched:
//! SO_PEERCRED then names the machine's user, and a connection attempt after the spawn is queued
//! instead of refused.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::Error;

/// Binds a stream socket that only the daemon's user may connect to. Replaces a stale one.
pub(super) fn bind(path: &Path) -> Result<OwnedFd, Error> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io("remove the stale socket", path)(error));
        }
        _ => {}
    }
    let bound = || -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(socket)
    };
    bound().map_err(Error::io("bind", path))
}
