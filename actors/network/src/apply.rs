//! Brings the kernel to the plan, from whatever is there.

mod links;
mod nft;
mod sysctl;
mod tap;
mod uplink;

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use hivekeep_kernel::WorkspaceId;
use rtnetlink::Handle;

pub use nft::{Nft, Obstacle, Opening};
pub use tap::Owner;
pub(crate) use tap::open as open_by_name;
pub use uplink::Uplinks;

use crate::Error;
use crate::plan::{Network, Tag};
use crate::rules::Ruleset;

/// How the kernel is reached.
#[derive(Debug, Clone)]
pub struct Options {
    /// The nft program: a path, or a name to look for.
    pub nft_path: PathBuf,
    /// Who may open the taps besides root.
    pub tap_owner: Option<Owner>,
    /// The interfaces that lead out of the host.
    pub uplinks: Uplinks,
}

impl Default for Options {
    fn default() -> Self {
        Self { nft_path: "nft".into(), tap_owner: None, uplinks: Uplinks::default() }
    }
}

/// What [`Enforcer::ensure`] did and found. The network is as planned; what lies outside of our
/// tables and may still stop packets is in `obstacles`.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Applied {
    /// The tables did not take the change and were made anew: addresses that names had opened
    /// are closed until they are asked for again.
    pub rebuilt: bool,
    /// Taps that were made.
    pub made: Vec<String>,
    /// Taps that were removed.
    pub removed: Vec<String>,
    /// Interfaces that lead out and forward, if anyone needs them; empty, and nothing leaves.
    pub uplinks: Vec<String>,
    /// Chains of others that drop by policy and that our packets pass too.
    pub obstacles: Vec<Obstacle>,
}

/// The one writer of a network. Everything it does can be repeated at any time.
///
/// It acts in the network namespace of the thread that opened it, which must be the one that the
/// runtime's threads are in.
#[derive(Debug)]
pub struct Enforcer {
    nft: Nft,
    netlink: Handle,
    connection: tokio::task::JoinHandle<()>,
    options: Options,
}

/// The host's end of a member's cable, to be handed to its machine; QEMU takes it as
/// `-netdev tap,fd=`. Needs no enforcer, but the member's tap from an [`Enforcer::ensure`]. One
/// at a time.
///
/// # Errors
/// [`Error::NoMember`]; [`Error::TapBusy`] while a machine has it.
pub fn open_tap(network: &Network, id: WorkspaceId) -> Result<OwnedFd, Error> {
    let member = network.member(id).ok_or(Error::NoMember(id))?;
    tap::open(&network.tap(member.seat))
}

impl Drop for Enforcer {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Enforcer {
    /// Finds nft and connects to rtnetlink. Changes nothing.
    ///
    /// # Errors
    /// [`Error::NftMissing`], [`Error::Io`].
    pub fn open(options: Options) -> Result<Self, Error> {
        let nft = Nft::find(&options.nft_path)?;
        let (connection, netlink, _) =
            rtnetlink::new_connection().map_err(Error::io("connect to rtnetlink"))?;
        Ok(Self { nft, netlink, connection: tokio::spawn(connection), options })
    }

    /// Makes the kernel's state that of the plan: tables first, so that no interface is ever
    /// there without its rules.
    ///
    /// # Errors
    /// After a failure, or when the future was dropped, the kernel may be between the old and the
    /// new plan, never looser than the tables that hold; ensure again.
    pub async fn ensure(&mut self, network: &Network) -> Result<Applied, Error> {
        links::check(&self.netlink, network).await?;
        let rules = Ruleset::render(network);
        let found = self.nft.look(network.tag()).await?;
        let rebuilt = self.nft.apply(&rules, &found).await?;
        let (made, removed) = links::ensure(&self.netlink, network, self.options.tap_owner).await?;
        let uplinks = self.forwarding(network).await?;
        Ok(Applied { rebuilt, made, removed, uplinks, obstacles: found.obstacles })
    }

    /// Removes every interface and table of a tag, and gives uplinks their forwarding back.
    /// Success if there is nothing.
    ///
    /// # Errors
    /// What could not be removed; the rest may be gone.
    pub async fn remove_all(&mut self, tag: &Tag) -> Result<(), Error> {
        links::remove_all(&self.netlink, tag).await?;
        let guarded = self.nft.guarded_if_any(tag).await?;
        uplink::give_back(&guarded)?;
        self.nft.remove(tag).await
    }

    /// Opens what names resolved to, each for its time. Opened again, the time begins anew.
    ///
    /// # Errors
    /// [`Error::NftRefused`] if an entry is not in the plan any more; then none was opened.
    pub async fn open_names(&mut self, tag: &Tag, openings: &[Opening]) -> Result<(), Error> {
        self.nft.open(tag, openings).await
    }

    async fn forwarding(&mut self, network: &Network) -> Result<Vec<String>, Error> {
        let tag = network.tag();
        let guarded = self.nft.guarded(tag).await?;
        if !network.leaves_the_host() {
            uplink::give_back(&guarded)?;
            self.nft.unguard(tag, &guarded).await?;
            return Ok(Vec::new());
        }
        let uplinks = uplink::names(&self.netlink, &self.options.uplinks).await?;
        if uplink::host_routes()? {
            // The host became a router by someone else's will.
            self.nft.unguard(tag, &guarded).await?;
        }
        for name in &uplinks {
            if !uplink::forwards(name)? {
                self.nft.guard(tag, name).await?;
                uplink::forward(name)?;
            }
        }
        Ok(uplinks)
    }
}
