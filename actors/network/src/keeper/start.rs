//! How machines will be connected: what is configured, what this process may, what this kernel
//! was seen to keep.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};

use super::footing::{ESSENTIAL, Footing};
use super::house::House;
use super::verdict;
use crate::capability::{self, Means};
use crate::plan::Tag;
use crate::{Enforcer, Error, Mode};

/// Decides. Takes some seconds where the self-test has to run.
///
/// # Errors
/// What stands against a bridge, if there has to be one.
pub(super) async fn footing(house: &House) -> Result<Footing, Error> {
    let reason = match house.options.mode {
        Mode::Off => {
            return Ok(Footing::Off { reason: "network.mode is \"off\"".to_owned() });
        }
        Mode::User => "network.mode is \"user\"".to_owned(),
        Mode::Auto => match bridge(house).await {
            Ok(footing) => return Ok(footing),
            Err(error) => error.to_string(),
        },
        Mode::Bridge => return bridge(house).await,
    };
    Ok(Footing::User { reason })
}

async fn bridge(house: &House) -> Result<Footing, Error> {
    let nft = possible(house).await?;
    let report = verdict::find(&house.options.access(), &nft, &house.state_dir).await?;
    let broken: Vec<_> = report.broken().cloned().collect();
    if let Some(fatal) = broken.iter().find(|finding| ESSENTIAL.contains(&finding.property)) {
        let failed = fatal.evidence.iter().find(|line| line.starts_with("BROKEN"));
        let seen = failed.cloned().unwrap_or_default();
        return Err(Error::NotProven { property: fatal.property, seen });
    }
    Ok(Footing::Bridge { broken })
}

/// Looks whether there can be a bridge, and reserves its names. Which nft there is.
///
/// # Errors
/// What is missing.
pub(super) async fn possible(house: &House) -> Result<String, Error> {
    let access = house.options.access();
    let found = capability::probe(&access).await;
    if found.means != Means::Bridge {
        return Err(Error::Missing { what: found.missing.join("; ") });
    }
    if house.lock.get().is_none() {
        // Nobody else takes it in this process.
        let _ = house.lock.set(reserve(&house.tag)?);
    }
    Enforcer::open(access)?.check_subnet(&house.blank()).await?;
    Ok(found.nft.unwrap_or_default())
}

/// Makes this process the one daemon of a tag in its network namespace, which is where the names
/// that begin with it are. The kernel lets go of it when the process ends in any way.
fn reserve(tag: &Tag) -> Result<OwnedFd, Error> {
    let failed = |errno: Errno| Error::io(format!("reserve the tag {tag}"))(errno.into());
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
    let socket = socket.map_err(failed)?;
    let name = format!("hivekeep-network-{tag}");
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(failed)?;
    match bind(&socket, &address) {
        Ok(()) => Ok(socket),
        Err(Errno::ADDRINUSE) => Err(Error::TagTaken(tag.clone())),
        Err(errno) => Err(failed(errno)),
    }
}
