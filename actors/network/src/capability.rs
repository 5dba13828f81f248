//! What this process can do with the network at all.

use rustix::thread::CapabilitySet;
use serde::Serialize;

use crate::apply::{Nft, Options};
use crate::plan::{Network, Subnet};
use crate::rules::Ruleset;
use crate::{Error, Namespace};

/// How guests can be connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Means {
    /// A bridge with every policy.
    Bridge,
    /// User-mode networking, one machine at a time: no machine reaches another, and what it
    /// reaches outside is all or nothing. Everything else must be refused.
    UserMode,
}

/// What [`probe`] found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// The best that is possible.
    pub means: Means,
    /// What stands against a bridge, for people; empty if nothing does.
    pub missing: Vec<String>,
    /// Such as "nftables v1.0.6", where there is one.
    pub nft: Option<String>,
}

/// Whether the calling thread may change the network of its namespace.
pub(crate) fn net_admin() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN))
}

/// Looks, and lets the kernel take an empty network's rules in a namespace of its own. Leaves
/// nothing. Whether they hold is for [`crate::selftest`] to say.
pub async fn probe(options: &Options) -> Capability {
    let mut missing = Vec::new();
    if !net_admin() {
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
    let means = if missing.is_empty() { Means::Bridge } else { Means::UserMode };
    Capability { means, missing, nft: version }
}

/// Has the kernel take each table, in a namespace of its own.
async fn families(nft: Nft) -> Result<(), Error> {
    let tried = tokio::task::spawn_blocking(move || {
        let namespace = Namespace::new()?;
        namespace.block_on(move || async move {
            let network = Network::new("probe".parse()?, Subnet::default());
            let rules = Ruleset::render(&network);
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
