//! The interfaces that lead out of the host, and whether they forward.
//!
//! Answers from outside pass only where the interface they come in on forwards. Where it does not,
//! forwarding is switched on, and a filter rule drops all that is then forwarded but guests' packets:
//! for everyone else the host stays what it was. Where that rule is gone, a routing rule does the same,
//! which also records what was switched on.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::packet_route::route::{RouteAttribute, RouteHeader, RouteProtocol};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{Handle, IpVersion};
use serde::{Deserialize, Serialize};

use crate::error::code;
use crate::plan::Tag;
use crate::rules::JUDGED;
use crate::{Error, netns};

/// Choice of the interfaces that lead out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Uplinks {
    /// The interfaces of the default routes.
    #[default]
    DefaultRoutes,
    /// Interfaces of these names.
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

/// True when the host as a whole is a router.
pub(super) fn host_routes() -> Result<bool, Error> {
    netns::is_on("all", "forwarding")
}

pub(super) fn forwards(interface: &str) -> Result<bool, Error> {
    netns::is_on(interface, "forwarding")
}

pub(super) fn forward(interface: &str) -> Result<(), Error> {
    netns::set(interface, "forwarding", "1")
}

/// Switches forwarding off where we switched it on, unless the host became a router since.
pub(super) fn give_back(guarded: &[String]) -> Result<(), Error> {
    if guarded.is_empty() || host_routes()? {
        return Ok(());
    }
    for interface in guarded {
        match netns::set(interface, "forwarding", "0") {
            // An interface that is gone took its settings along.
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// Behind the rule for the host's own addresses, ahead of all others.
const PRIORITY: u32 = 1;

/// Mark of the owner of a rule. It stands where the number of a table would; a rule without a table does
/// not read it.
fn owner(tag: &Tag) -> u32 {
    let hash = blake3::hash(tag.to_string().as_bytes());
    u32::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes")) | 1 << 31
}

/// Lets nothing be routed that comes in there and that our rules have not marked.
pub(super) async fn bar(netlink: &Handle, tag: &Tag, uplink: &str) -> Result<(), Error> {
    let rule = netlink.rule().add().v4().input_interface(uplink).priority(PRIORITY);
    let mut rule = rule.table_id(owner(tag)).action(RuleAction::Blackhole).fw_mark(0);
    // Marked as the kernel's own rule, which programs that keep a host's rules do not remove.
    let kernel = RuleAttribute::Protocol(RouteProtocol::Kernel);
    rule.message_mut().attributes.extend([RuleAttribute::FwMask(JUDGED), kernel]);
    match rule.execute().await {
        Err(refusal) if matches!(code(&refusal), Some(libc::EEXIST | libc::EOPNOTSUPP)) => Ok(()),
        other => other.map_err(Error::netlink(format!("keep {uplink} from routing"))),
    }
}

/// The rules of [`bar`], by their uplinks.
pub(super) async fn barred(
    netlink: &Handle,
    tag: &Tag,
) -> Result<BTreeMap<String, RuleMessage>, Error> {
    let mut found = BTreeMap::new();
    let mut rules = netlink.rule().get(IpVersion::V4).execute();
    loop {
        let rule = match rules.try_next().await {
            Ok(Some(rule)) => rule,
            Ok(None) => return Ok(found),
            Err(refusal) if code(&refusal) == Some(libc::EOPNOTSUPP) => return Ok(found),
            Err(refusal) => return Err(Error::netlink("list the rules of routing")(refusal)),
        };
        let ours = rule.attributes.contains(&RuleAttribute::Table(owner(tag)));
        let uplink = rule.attributes.iter().find_map(|attribute| match attribute {
            RuleAttribute::Iifname(name) => Some(name.clone()),
            _ => None,
        });
        found.extend(uplink.filter(|_| ours).map(|uplink| (uplink, rule)));
    }
}

/// Takes rules of [`bar`] away.
pub(super) async fn unbar(
    netlink: &Handle,
    rules: impl IntoIterator<Item = RuleMessage>,
) -> Result<(), Error> {
    for rule in rules {
        match netlink.rule().del(rule).execute().await {
            Err(refusal) if code(&refusal) == Some(libc::ENOENT) => {}
            other => other.map_err(Error::netlink("take a rule of routing away"))?,
        }
    }
    Ok(())
}
