//! Choice of the guests' subnet: as configured, or one that this daemon chooses itself.
//!
//! A bridge is made with its first member only, so two daemons that start together would both find
//! the same subnet free. Each therefore holds a name for its own, as for its tag: an abstract
//! socket of the network namespace, which the kernel gives back when the process ends in any way.

use std::os::fd::OwnedFd;

use hivekeep_store::Journal;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};

use super::records;
use crate::plan::{NetworkPlan, Subnet, Tag};
use crate::{Enforcer, Error, NetworkModeChoice, Options};

/// The subnet, and the hold on it where it was chosen now.
pub(super) async fn choose(
    options: &Options,
    tag: &Tag,
    journal: &Journal,
) -> (Subnet, Option<OwnedFd>) {
    if let Some(subnet) = options.subnet {
        return (subnet, None);
    }
    let inhabited = inhabited(journal.clone()).await;
    if matches!(options.mode, NetworkModeChoice::User | NetworkModeChoice::Off) {
        return (inhabited.unwrap_or_default(), None);
    }
    if let Some((subnet, Ok(hold))) = inhabited.map(|subnet| (subnet, hold(subnet))) {
        return (subnet, Some(hold));
    }
    match free(options, tag).await {
        Ok(Some((subnet, hold))) => (subnet, Some(hold)),
        Ok(None) => (inhabited.unwrap_or_default(), None),
        Err(error) => {
            // The missing part is reported where a bridge is tried.
            tracing::debug!(%error, "no subnet was looked for");
            (inhabited.unwrap_or_default(), None)
        }
    }
}

/// Subnet of the recorded members, whose guests know their addresses. It stays theirs, unless another
/// daemon has it by now.
async fn inhabited(journal: Journal) -> Option<Subnet> {
    let members = tokio::task::spawn_blocking(move || records::load(&journal)).await;
    // Records that cannot be read are reported by the actor, which reads them next.
    let members = members.ok()?.ok()?;
    let of = |address| Subnet::choices().find(|subnet| subnet.is_guest(address));
    members.iter().find_map(|member| of(member.lease.address))
}

async fn free(options: &Options, tag: &Tag) -> Result<Option<(Subnet, OwnedFd)>, Error> {
    let enforcer = Enforcer::open(options.access())?;
    for subnet in Subnet::choices() {
        if !enforcer.is_free(&NetworkPlan::new(tag.clone(), subnet)).await? {
            continue;
        }
        match hold(subnet) {
            Ok(hold) => return Ok(Some((subnet, hold))),
            Err(Error::SubnetTaken(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Keeps other daemons from choosing what overlaps with a subnet.
///
/// # Errors
/// [`Error::SubnetTaken`].
pub(super) fn hold_all(subnet: Subnet) -> Result<Vec<OwnedFd>, Error> {
    Subnet::choices().filter(|one| one.overlaps(subnet.block())).map(hold).collect()
}

fn hold(subnet: Subnet) -> Result<OwnedFd, Error> {
    let held = reserve(&format!("hivekeep-subnet-{subnet}"))?;
    held.ok_or(Error::SubnetTaken(subnet))
}

/// Makes this process the one daemon of a tag in its network namespace, which is where the names
/// that begin with it are.
///
/// # Errors
/// [`Error::TagTaken`].
pub(super) fn hold_tag(tag: &Tag) -> Result<OwnedFd, Error> {
    reserve(&format!("hivekeep-network-{tag}"))?.ok_or_else(|| Error::TagTaken(tag.clone()))
}

/// A name of the network namespace, if nobody has it.
fn reserve(name: &str) -> Result<Option<OwnedFd>, Error> {
    let failed = |errno: Errno| Error::io(format!("reserve the name {name}"))(errno.into());
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
    let socket = socket.map_err(failed)?;
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(failed)?;
    match bind(&socket, &address) {
        Ok(()) => Ok(Some(socket)),
        Err(Errno::ADDRINUSE) => Ok(None),
        Err(errno) => Err(failed(errno)),
    }
}
