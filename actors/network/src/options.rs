//! Configuration of the network.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::{Subnet, Tag};
use crate::{HostAccess, Uplinks};

/// How machines are connected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkModeChoice {
    /// A bridge where that is possible, otherwise user mode.
    #[default]
    Auto,
    /// A bridge, or no daemon.
    Bridge,
    /// Each machine alone with its forwards.
    User,
    /// No network.
    Off,
}

/// Section `[network]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// How machines are connected. "bridge": a bridge of the daemon's own with every policy;
    /// takes root or CAP_NET_ADMIN and CAP_SYS_ADMIN, nftables and /dev/net/tun, and without
    /// them the daemon does not start. "user": QEMU's own network, each machine alone with its
    /// port forwards. "auto": a bridge if it is possible, otherwise "user", which `hivekeep ps`
    /// and `hivekeep check` say with the reason. "off": no network.
    pub mode: NetworkModeChoice,
    /// Where guests live: a private IPv4 network of 8 to 29 bits. Its first address is the
    /// gateway's. No other interface of the host may have an address in it, so two daemons on
    /// one host need two. Unset: the first of 10.213.0.0/16 to 10.236.0.0/16 that is free, and
    /// the same one as long as there are workspaces in it.
    #[schemars(with = "Option<String>")]
    pub subnet: Option<Subnet>,
    /// Prefix of the names of the daemon's bridge, taps and tables: a lower-case letter
    /// and up to five more letters or digits. Unset: it follows from the state directory, so
    /// that two daemons do not meet. One daemon at a time can have a tag.
    #[schemars(with = "Option<String>")]
    pub tag: Option<Tag>,
    /// Whether a workspace whose creation does not say reaches the internet.
    pub default_allow_internet: bool,
    /// Whether a workspace whose creation does not say reaches others that allow it too.
    pub default_allow_inter_vm: bool,
    /// The host's address that port forwards listen on. 127.0.0.1: the host alone reaches them;
    /// 0.0.0.0: everyone who reaches the host.
    pub forward_host_ip: Ipv4Addr,
    /// First port that is given to a forward which names none.
    #[schemars(range(min = 1, max = 65_535))]
    pub forward_port_first: u16,
    /// Last port that is given to a forward which names none.
    pub forward_port_last: u16,
    /// DNS servers that are asked, as address:port. Empty: the host's own servers, from
    /// /etc/resolv.conf.
    #[schemars(with = "Vec<String>")]
    pub dns_upstreams: Vec<SocketAddr>,
    /// Interfaces that lead out of the host. Empty: those of the default routes.
    pub uplinks: Vec<String>,
    /// The nft program: a path, or a name to look for.
    pub nft_path: PathBuf,
    /// How often the daemon looks whether others changed its rules or interfaces.
    #[schemars(range(min = 1))]
    pub check_interval_secs: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: NetworkModeChoice::Auto,
            subnet: None,
            tag: None,
            default_allow_internet: false,
            default_allow_inter_vm: false,
            forward_host_ip: Ipv4Addr::LOCALHOST,
            forward_port_first: *crate::ports::AUTOMATIC.start(),
            forward_port_last: *crate::ports::AUTOMATIC.end(),
            dns_upstreams: Vec::new(),
            uplinks: Vec::new(),
            nft_path: "nft".into(),
            check_interval_secs: 30,
        }
    }
}

impl Options {
    /// Ports for forwards that name none.
    pub fn forward_ports(&self) -> RangeInclusive<u16> {
        self.forward_port_first..=self.forward_port_last
    }

    /// The tag of a daemon that keeps its state there.
    pub fn tag(&self, state_dir: &Path) -> Tag {
        self.tag.clone().unwrap_or_else(|| Tag::of_folder(state_dir))
    }

    /// Options of the access to the kernel.
    pub fn access(&self) -> HostAccess {
        let uplinks = match self.uplinks.is_empty() {
            true => Uplinks::DefaultRoutes,
            false => Uplinks::Named(self.uplinks.clone()),
        };
        HostAccess { nft_path: self.nft_path.clone(), tap_owner: None, uplinks }
    }

    /// Servers that are asked for names. Blocks: it may read a file.
    pub(crate) fn upstreams(&self) -> Vec<SocketAddr> {
        match self.dns_upstreams.is_empty() {
            // An unreadable file names no servers, as the C library takes it, too.
            true => crate::resolver::from_resolv_conf(
                &std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
            ),
            false => self.dns_upstreams.clone(),
        }
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        let (first, last) = (self.forward_port_first, self.forward_port_last);
        if last < first {
            let reason = format!("must not be below forward_port_first, which is {first}");
            wrong.push(("forward_port_last", reason));
        }
        let ip = self.forward_host_ip;
        let inside = self.subnet.is_some_and(|subnet| subnet.block().contains(ip));
        if inside || ip.is_multicast() || ip.is_broadcast() {
            wrong.push(("forward_host_ip", format!("{ip} is not an address of this host")));
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_state_folders_have_two_tags_and_one_has_one() {
        let tag = |folder: &str| Options::default().tag(Path::new(folder));
        assert_eq!(tag("/var/lib/hivekeep"), tag("/var/lib/hivekeep"));
        assert_ne!(tag("/var/lib/hivekeep"), tag("/srv/another/hivekeep"));
        let set = Options { tag: Some("hk".parse().unwrap()), ..Options::default() };
        assert_eq!(set.tag(Path::new("/any")).to_string(), "hk");
    }

    #[test]
    fn what_cannot_work_is_named_by_its_key() {
        assert_eq!(Options::default().problems(), []);
        let wrong = Options {
            forward_port_first: 9,
            forward_port_last: 8,
            forward_host_ip: [10, 213, 0, 7].into(),
            subnet: Some(Subnet::default()),
            ..Options::default()
        };
        let keys: Vec<_> = wrong.problems().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["forward_port_last", "forward_host_ip"]);
    }
}
