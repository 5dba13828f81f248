//! Capability of this process to run a network.

use std::net::Ipv4Addr;

use hivekeep_kernel::WorkspaceId;
use serde::Serialize;

use crate::apply::{HostAccess, Nft};
use crate::plan::{Forward, MemberPolicy, NetworkMember, NetworkPlan, PlanError, Protocol, Subnet};
use crate::rules::Ruleset;
use crate::{Error, Namespace, netns};

/// Means of connecting guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionMeans {
    /// A bridge with every policy.
    Bridge,
    /// User-mode networking, if QEMU has it: each machine alone with its forwards, see
    /// [`crate::plan::UserMode`]. Everything else must be refused.
    UserMode,
}

/// Findings of [`detect`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// The best that is possible.
    pub means: ConnectionMeans,
    /// Obstacles to a bridge, for people; empty if there are none.
    pub missing: Vec<String>,
    /// Such as "nftables v1.0.6", where there is one.
    pub nft: Option<String>,
}

/// Looks, and lets the kernel take every kind of rule in a namespace of its own. Leaves
/// nothing. Whether they hold is for [`crate::selftest`] to say.
pub async fn detect(options: &HostAccess) -> Capability {
    let mut missing = Vec::new();
    if !netns::net_admin() {
        missing.push("CAP_NET_ADMIN: run the daemon as root or with this capability".to_owned());
    }
    let tun = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
    if let Err(error) = rustix::fs::access("/dev/net/tun", tun) {
        missing.push(format!("/dev/net/tun: {error}; modprobe tun"));
    }
    let mut version = None;
    match Nft::find(&options.nft_path) {
        Err(error) => missing.push(error.to_string()),
        Ok(nft) => match nft.version().await {
            Err(error) => missing.push(error.to_string()),
            Ok(said) => {
                version = Some(said);
                if missing.is_empty() {
                    missing.extend(families(nft).await.err().map(|error| error.to_string()));
                }
            }
        },
    }
    let means =
        if missing.is_empty() { ConnectionMeans::Bridge } else { ConnectionMeans::UserMode };
    Capability { means, missing, nft: version }
}

/// Has the kernel take each table, in a namespace of its own.
async fn families(nft: Nft) -> Result<(), Error> {
    let tried = tokio::task::spawn_blocking(move || {
        let namespace = Namespace::new()?;
        namespace.block_on(move || async move {
            let rules = Ruleset::render(&everything(WorkspaceId::new())?);
            for (family, table) in [("inet", &rules.inet), ("bridge", &rules.bridge)] {
                match nft.transact(&table.rebuild()).await {
                    Err(Error::NftRefused { stderr }) => {
                        let what = format!("the nftables family `{family}` as used here: {stderr}");
                        return Err(Error::KernelLacks { what });
                    }
                    other => other?,
                }
            }
            Ok(())
        })
    });
    tried.await.map_err(|error| Error::io("probe the kernel")(std::io::Error::other(error)))?
}

/// Fingerprint of the rules that this program writes: another version of them has to be proven
/// again.
pub(crate) fn fingerprint() -> Result<String, Error> {
    let always = format!("ws_{}", "0".repeat(32)).parse().expect("an id");
    let network = everything(always)?;
    let rules = Ruleset::render(&network);
    let commands = [rules.inet.rebuild(), rules.bridge.rebuild()];
    let text = serde_json::to_vec(&commands).map_err(|e| Error::NftBroken(e.to_string()))?;
    Ok(blake3::hash(&text).to_hex().to_string())
}

/// A network that takes every kind of rule there is.
fn everything(id: WorkspaceId) -> Result<NetworkPlan, PlanError> {
    let mut network = NetworkPlan::new("probe".parse()?, Subnet::default());
    network.serve_names(true);
    let destinations = ["a.example:1-9/tcp", "*.example", "10.0.0.0/8:53"];
    let policy = MemberPolicy {
        allow_internet: true,
        allow_inter_vm: true,
        allowed_ports: [80].into(),
        egress_allow: destinations.map(|text| text.parse().expect("a destination")).into(),
        group: Some("a-b".parse().expect("a group")),
    };
    let forward =
        |host_ip| Forward { host_ip, host_port: 80, guest_port: 80, protocol: Protocol::Tcp };
    let hosts = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(198, 51, 100, 2)];
    let mut forwards = hosts.map(forward).to_vec();
    forwards.push(Forward { host_port: 81, ..forward(Ipv4Addr::UNSPECIFIED) });
    let lease = network.allot(id)?;
    network.admit(id, NetworkMember { lease, policy, forwards, parked: false })?;
    Ok(network)
}
