//! Settings of single interfaces, in the namespace of the calling thread.

use std::fs;
use std::io::ErrorKind;

use crate::Error;

/// Sets a value where it differs. Reading is always allowed, writing often is not.
pub(super) fn set(interface: &str, key: &str, value: &str) -> Result<(), Error> {
    let path = format!("/proc/sys/net/ipv4/conf/{interface}/{key}");
    write(&path, value)
}

/// Sets how neighbours are found on an interface.
pub(super) fn set_neighbours(interface: &str, key: &str, value: &str) -> Result<(), Error> {
    write(&format!("/proc/sys/net/ipv4/neigh/{interface}/{key}"), value)
}

/// True when a switch is on.
pub(super) fn is_on(interface: &str, key: &str) -> Result<bool, Error> {
    let path = format!("/proc/sys/net/ipv4/conf/{interface}/{key}");
    let text = fs::read_to_string(&path).map_err(Error::io(format!("read {path}")))?;
    Ok(text.trim() != "0")
}

/// No IPv6 on an interface. Nothing to do where the kernel has none.
pub(super) fn without_ipv6(interface: &str) -> Result<(), Error> {
    let path = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    match write(&path, "1") {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn write(path: &str, value: &str) -> Result<(), Error> {
    let now = fs::read_to_string(path).map_err(Error::io(format!("read {path}")))?;
    match now.trim() == value {
        true => Ok(()),
        false => fs::write(path, value).map_err(Error::io(format!("write {value} to {path}"))),
    }
}
