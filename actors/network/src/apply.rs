//! Reconciler: brings the kernel to the plan, from whatever is there.

mod links;
mod monitor;
mod nft;
mod step;
mod tap;
mod uplink;
mod wall;

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use hivekeep_kernel::WorkspaceId;
use rtnetlink::Handle;

pub(crate) use monitor::{RulesetMonitor, watched};
pub use nft::{ForeignChain, Nft, ResolvedAddresses};
pub use tap::Owner;
pub(crate) use tap::{cable, cable_of_parked, open as open_by_name, packet_to, send};
pub use uplink::Uplinks;

use monitor::Generation;
use step::Known;

use crate::Error;
use crate::plan::{NetworkPlan, Tag};
use crate::rules::Ruleset;

/// Options of the access to the kernel.
#[derive(Debug, Clone)]
pub struct HostAccess {
    /// The nft program: a path, or a name to look for.
    pub nft_path: PathBuf,
    /// The user who may open the taps besides root.
    pub tap_owner: Option<Owner>,
    /// The interfaces that lead out of the host.
    pub uplinks: Uplinks,
}

impl Default for HostAccess {
    fn default() -> Self {
        Self { nft_path: "nft".into(), tap_owner: None, uplinks: Uplinks::default() }
    }
}

/// Work and findings of an [`Enforcer`]. The network is as planned; `obstacles` has the chains
/// outside of our tables that may still stop packets.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct AppliedPlan {
    /// The tables did not take the change and were made anew: addresses that names had opened
    /// are closed until they are asked for again.
    pub rebuilt: bool,
    /// Taps that were made.
    pub made: Vec<String>,
    /// Taps that were removed.
    pub removed: Vec<String>,
    /// Interfaces that lead out and forward, if anyone needs them; empty, and nothing leaves.
    pub uplinks: Vec<String>,
    /// Chains of others that drop by policy and that our packets pass too, as of the last full
    /// look.
    pub obstacles: Vec<ForeignChain>,
    /// Chains, sets and interfaces that others had changed and that are as planned again.
    pub repaired: Vec<String>,
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
    options: HostAccess,
    generation: Generation,
    /// Contents of the kernel, as long as nobody else changes them.
    known: Option<Known>,
}

/// The host's end of a member's cable, to be handed to its machine; QEMU takes it as
/// `-netdev tap,fd=`. Needs no enforcer, but the member's tap from an [`Enforcer::ensure`]. One
/// at a time.
///
/// # Errors
/// [`Error::NoMember`]; [`Error::TapBusy`] while a machine has it.
pub fn open_tap(network: &NetworkPlan, id: WorkspaceId) -> Result<OwnedFd, Error> {
    let member = network.member(id).ok_or(Error::NoMember(id))?;
    tap::open(&network.tap(member.lease))
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
    pub fn open(options: HostAccess) -> Result<Self, Error> {
        let nft = Nft::find(&options.nft_path)?;
        let (connection, netlink, _) =
            rtnetlink::new_connection().map_err(Error::io("connect to rtnetlink"))?;
        let (generation, connection) = (Generation::open()?, tokio::spawn(connection));
        Ok(Self { nft, netlink, connection, options, generation, known: None })
    }

    /// Makes the kernel's state that of the plan, whatever it is: tables first, so that no
    /// interface is ever there without its rules.
    ///
    /// # Errors
    /// After a failure, or when the future was dropped, the kernel may be between the old and the
    /// new plan, never looser than the tables that hold; ensure again.
    pub async fn ensure(&mut self, network: &NetworkPlan) -> Result<AppliedPlan, Error> {
        self.known = None;
        links::check(&self.netlink, network).await?;
        let rules = Ruleset::render(network);
        let before = self.generation.now()?;
        let found = self.nft.look(network.tag()).await?;
        let rebuilt = self.nft.apply(&rules, &found).await?;
        let ports = links::ensure(&self.netlink, network, self.options.tap_owner).await?;
        let (uplinks, transactions) = self.forwarding(network).await?;
        let obstacles = found.obstacles;
        let applied = AppliedPlan {
            rebuilt,
            made: ports.made,
            removed: ports.removed,
            uplinks: uplinks.clone(),
            obstacles: obstacles.clone(),
            repaired: Vec::new(),
        };
        let known = Known {
            network: network.clone(),
            rules,
            bridge: ports.bridge,
            uplinks,
            obstacles,
            at: 0,
        };
        self.remember(known, before.wrapping_add(1 + transactions))?;
        Ok(applied)
    }

    /// Checks that guests of the plan would not share a subnet with the host. Changes nothing.
    ///
    /// # Errors
    /// [`Error::SubnetInUse`].
    pub async fn check_subnet(&self, network: &NetworkPlan) -> Result<(), Error> {
        links::check(&self.netlink, network).await
    }

    /// True when the guests of a plan would have a subnet for themselves: neither an address nor a
    /// route of the host is in it, besides our own. Changes nothing.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub(crate) async fn is_free(&self, network: &NetworkPlan) -> Result<bool, Error> {
        match self.check_subnet(network).await {
            Err(Error::SubnetInUse { .. }) => Ok(false),
            Err(error) => Err(error),
            Ok(()) => links::is_unrouted(&self.netlink, network).await,
        }
    }

    /// True when anything of a tag is there.
    ///
    /// # Errors
    /// When that cannot be listed.
    pub async fn is_anything_left(&self, tag: &Tag) -> Result<bool, Error> {
        let tables = self.nft.look(tag).await?.is_ours();
        Ok(tables || links::any(&self.netlink, tag).await?)
    }

    /// True when nobody has changed the packet filter since this enforcer did.
    pub(crate) fn is_as_left(&self) -> bool {
        let now = self.generation.now().ok();
        self.known.as_ref().is_some_and(|known| Some(known.at) == now)
    }

    /// The taps of a tag that machines hold.
    ///
    /// # Errors
    /// When the interfaces cannot be listed.
    pub async fn taps_in_use(&self, tag: &Tag) -> Result<Vec<String>, Error> {
        links::in_use(&self.netlink, tag).await
    }

    /// Removes every interface and table of a tag, and gives uplinks their forwarding back.
    /// Success if there is nothing.
    ///
    /// # Errors
    /// What could not be removed; the rest may be gone.
    pub async fn remove_all(&mut self, tag: &Tag) -> Result<(), Error> {
        self.known = None;
        links::remove_all(&self.netlink, tag).await?;
        let mut ours = self.nft.guarded_if_any(tag).await?;
        let barred = uplink::barred(&self.netlink, tag).await?;
        ours.extend(barred.keys().cloned());
        uplink::give_back(&ours)?;
        uplink::unbar(&self.netlink, barred.into_values()).await?;
        self.nft.remove(tag).await
    }

    /// Opens what names resolved to, each for its time. Opened again, the time begins anew.
    ///
    /// # Errors
    /// [`Error::NftRefused`] if an entry is not in the plan any more; then none was opened.
    pub async fn open_names(
        &mut self,
        tag: &Tag,
        openings: &[ResolvedAddresses],
    ) -> Result<(), Error> {
        let opened = self.nft.open(tag, openings).await?;
        if let Some(known) = &mut self.known {
            known.at = known.at.wrapping_add(opened.into());
        }
        Ok(())
    }

    /// The interfaces that lead out, where someone needs them, and how many transactions that
    /// took.
    async fn forwarding(&self, network: &NetworkPlan) -> Result<(Vec<String>, u32), Error> {
        let tag = network.tag();
        let guarded = self.nft.guarded(tag).await?;
        let barred = uplink::barred(&self.netlink, tag).await?;
        let mut transactions = 0;
        if !network.leaves_the_host() {
            let ours: Vec<_> = guarded.iter().chain(barred.keys()).cloned().collect();
            uplink::give_back(&ours)?;
            uplink::unbar(&self.netlink, barred.into_values()).await?;
            transactions += u32::from(self.nft.unguard(tag, &guarded).await?);
            return Ok((Vec::new(), transactions));
        }
        let uplinks = uplink::names(&self.netlink, &self.options.uplinks).await?;
        if uplink::host_routes()? {
            // The host became a router by someone else's will.
            uplink::unbar(&self.netlink, barred.into_values()).await?;
            transactions += u32::from(self.nft.unguard(tag, &guarded).await?);
        } else {
            for name in guarded.iter().filter(|name| !barred.contains_key(*name)) {
                uplink::bar(&self.netlink, tag, name).await?;
            }
            // Whose guard was lost with its table.
            for name in barred.keys().filter(|name| !guarded.contains(*name)) {
                self.nft.guard(tag, name).await?;
                transactions += 1;
            }
        }
        for name in &uplinks {
            if !uplink::forwards(name)? {
                uplink::bar(&self.netlink, tag, name).await?;
                self.nft.guard(tag, name).await?;
                transactions += 1;
                uplink::forward(name)?;
            }
        }
        Ok((uplinks, transactions))
    }
}
