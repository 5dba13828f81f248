//! Capability of this process to run a network, and the host check: the needs of a bridge, and the
//! promises that this kernel keeps.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Instant;

use hivekeep_kernel::WorkspaceId;
use hivekeep_runtime::Finding;
use serde::Serialize;

use crate::apply::{HostAccess, Nft};
use crate::plan::{
    Forward, MemberPolicy, NetworkMember, NetworkPlan, PlanError, Protocol, Subnet, Tag,
};
use crate::rules::Ruleset;
use crate::selftest::{self, SelfTestReport};
use crate::{Enforcer, Error, Namespace, NetworkModeChoice, Options, netns};

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

/// Looks, and runs the self-test anew, which takes some seconds. Touches nothing of the host's.
/// The findings are about a daemon that keeps its state there.
pub async fn check(options: &Options, state_dir: &Path) -> Vec<Finding> {
    match options.mode {
        NetworkModeChoice::Off => return vec![Finding::good("network", "off, by network.mode")],
        NetworkModeChoice::User => {
            let detail = "user mode, by network.mode: each machine alone with its port forwards";
            return vec![Finding::good("network", detail)];
        }
        NetworkModeChoice::Auto | NetworkModeChoice::Bridge => {}
    }
    let access = options.access();
    let found = detect(&access).await;
    if found.means != ConnectionMeans::Bridge {
        let instead = match options.mode {
            NetworkModeChoice::Bridge => "the daemon does not start",
            _ => "user mode: each machine alone with its port forwards",
        };
        let remedy = "provide what is missing, or set network.mode";
        let nft = Nft::find(&access.nft_path).err().map(|error| error.to_string());
        let line = |what: String| {
            let package = (nft.as_ref() == Some(&what)).then_some("nftables");
            Finding::bad("network", format!("{what}; {instead}"), remedy).package(package)
        };
        return found.missing.into_iter().map(line).collect();
    }
    let nft = found.nft.unwrap_or_default();
    let mut lines = vec![Finding::good("network", format!("a bridge is possible, with {nft}"))];
    lines.push(match subnet(options, options.tag(state_dir)).await {
        Ok(subnet) => Finding::good("network subnet", format!("{subnet} is free")),
        Err(error) => Finding::bad("network subnet", error.to_string(), "set network.subnet"),
    });
    let began = Instant::now();
    lines.push(match selftest::run(access).await {
        Ok(report) => proven(&report, began),
        Err(error) => Finding::bad("network self-test", error.to_string(), "run it as root"),
    });
    lines
}

/// The configured one, or the first that is free.
async fn subnet(options: &Options, tag: Tag) -> Result<Subnet, Error> {
    let enforcer = Enforcer::open(options.access())?;
    if options.subnet.is_none() {
        for subnet in Subnet::choices() {
            if enforcer.is_free(&NetworkPlan::new(tag.clone(), subnet)).await? {
                return Ok(subnet);
            }
        }
    }
    let subnet = options.subnet.unwrap_or_default();
    enforcer.check_subnet(&NetworkPlan::new(tag, subnet)).await.map(|()| subnet)
}

fn proven(report: &SelfTestReport, began: Instant) -> Finding {
    let says = |finding: &selftest::PropertyFinding| {
        format!("{:?}: {}", finding.property, finding.reason())
    };
    let broken: Vec<_> = report.broken().map(says).collect();
    let unknown: Vec<_> = report.unknown().map(says).collect();
    if broken.is_empty() && !unknown.is_empty() {
        let remedy = "it says nothing of this kernel: run `hivekeep check` again";
        let detail = format!("could not be checked: {}", unknown.join("; "));
        return Finding::bad("network self-test", detail, remedy);
    }
    if broken.is_empty() {
        let (count, took) = (report.findings.len(), began.elapsed().as_secs_f64());
        let detail = format!("{count} properties hold with real packets ({took:.1} s)");
        return Finding::good("network self-test", detail);
    }
    let remedy = "what fails is refused when it is asked for; a newer kernel or nft may keep it";
    Finding::bad("network self-test", broken.join("; "), remedy)
}
