//! The interfaces that lead out of the host, and whether they forward.
//!
//! Answers from outside pass only where the interface they come in on forwards. Where it does
//! not, it is switched on, and a rule of ours drops what it then forwards besides our guests'
//! packets: to everyone else the host stays what it was.

use futures::TryStreamExt;
use rtnetlink::Handle;
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::packet_route::route::{RouteAttribute, RouteHeader};
use serde::{Deserialize, Serialize};

use super::sysctl;
use crate::Error;

/// Which interfaces lead out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Uplinks {
    /// Those of the default routes.
    #[default]
    DefaultRoutes,
    /// These.
    Named(Vec<String>),
}

/// Sorted, each once.
pub(super) async fn names(netlink: &Handle, uplinks: &Uplinks) -> Result<Vec<String>, Error> {
    let mut names = match uplinks {
        Uplinks::Named(names) => names.clone(),
        Uplinks::DefaultRoutes => {
            let mut names = Vec::new();
            for index in default_routes(netlink).await? {
                names.extend(name_of(netlink, index).await?);
            }
            names
        }
    };
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

async fn default_routes(netlink: &Handle) -> Result<Vec<u32>, Error> {
    let message = rtnetlink::RouteMessageBuilder::<std::net::Ipv4Addr>::new().build();
    let mut routes = netlink.route().get(message).execute();
    let mut found = Vec::new();
    while let Some(route) = routes.try_next().await.map_err(Error::netlink("list the routes"))? {
        let main = route.header.table == RouteHeader::RT_TABLE_MAIN;
        if main && route.header.destination_prefix_length == 0 {
            found.extend(route.attributes.iter().filter_map(|attribute| match attribute {
                RouteAttribute::Oif(index) => Some(*index),
                _ => None,
            }));
        }
    }
    Ok(found)
}

async fn name_of(netlink: &Handle, index: u32) -> Result<Option<String>, Error> {
    let mut links = netlink.link().get().match_index(index).execute();
    let link = links.try_next().await.map_err(Error::netlink("look for an uplink"))?;
    Ok(link.and_then(|link| {
        link.attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name),
            _ => None,
        })
    }))
}

/// Whether the host as a whole is a router.
pub(super) fn host_routes() -> Result<bool, Error> {
    sysctl::is_on("all", "forwarding")
}

pub(super) fn forwards(interface: &str) -> Result<bool, Error> {
    sysctl::is_on(interface, "forwarding")
}

pub(super) fn forward(interface: &str) -> Result<(), Error> {
    sysctl::set(interface, "forwarding", "1")
}

/// Switches forwarding off where we switched it on, unless the host became a router since.
pub(super) fn give_back(guarded: &[String]) -> Result<(), Error> {
    if guarded.is_empty() || host_routes()? {
        return Ok(());
    }
    for interface in guarded {
        match sysctl::set(interface, "forwarding", "0") {
            // An interface that is gone took its settings along.
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}
