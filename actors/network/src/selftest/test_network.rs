//! A host and a world, in namespaces of their own, for the self-test and for tests.

pub(crate) mod configure;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use hivekeep_kernel::WorkspaceId;

use super::test_guest::TestGuest;
use crate::apply::Nft;
use crate::plan::NetworkPlan;
use crate::{AppliedPlan, Enforcer, Error, HostAccess, Namespace};

/// The world's end of the host's uplink.
pub const WORLD: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// The host's address towards the world.
pub const HOST: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// A public server of the world.
pub const PUBLIC: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
/// A server of a private network behind the host.
pub const PRIVATE: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 1);
/// Address at which clouds keep their secrets.
pub const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// The host's interface towards the world.
pub const UPLINK: &str = "up0";

/// A network of namespaces: a host with the rules, its guests, and a world beyond.
#[derive(Debug)]
pub struct TestNetwork {
    /// Namespace of the rules.
    pub host: Namespace,
    /// Everything that is not the host or a guest.
    pub world: Namespace,
    guests: BTreeMap<WorkspaceId, TestGuest>,
    options: HostAccess,
}

impl TestNetwork {
    /// Makes both namespaces and the cable between them. The host forwards nothing; in other
    /// settings that bear upon the rules it is like the namespace of the caller.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without the rights to do so.
    pub fn new(options: HostAccess) -> Result<Self, Error> {
        let (host, world) = (Namespace::new()?, Namespace::new()?);
        // Read here, in the namespace of the caller.
        let settings = configure::settings();
        let far = std::os::fd::AsFd::as_fd(&world).try_clone_to_owned();
        let far = far.map_err(Error::io("copy a descriptor"))?;
        host.block_on(move || configure::host(far, settings))?;
        world.block_on(configure::world)?;
        Ok(Self { host, world, guests: BTreeMap::new(), options })
    }

    /// [`Enforcer::ensure`] on the stage's host.
    ///
    /// # Errors
    /// As there.
    pub fn ensure(&self, network: &NetworkPlan) -> Result<AppliedPlan, Error> {
        let network = network.clone();
        self.enforcer(move |mut enforcer| async move { enforcer.ensure(&network).await })
    }

    /// Work with an enforcer of the stage's host.
    ///
    /// # Errors
    /// Those of the work.
    pub fn enforcer<T, F>(
        &self,
        work: impl FnOnce(Enforcer) -> F + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>>,
    {
        let options = self.options.clone();
        self.host.block_on(move || async move { work(Enforcer::open(options)?).await })
    }

    /// Empties the stage's packet filter, as a restart of Debian's nftables begins.
    ///
    /// # Errors
    /// Those of nft.
    pub fn lose_rules(&self) -> Result<(), Error> {
        let nft = Nft::find(&self.options.nft_path)?;
        let flush = serde_json::json!({ "flush": { "ruleset": null } });
        self.host.block_on(move || async move { nft.transact(&[flush]).await })
    }

    /// Gives a member its guest.
    ///
    /// # Errors
    /// [`Error::NoMember`], [`Error::TapBusy`].
    pub fn plug(&mut self, network: &NetworkPlan, id: WorkspaceId) -> Result<(), Error> {
        let member = network.member(id).ok_or(Error::NoMember(id))?;
        let planned = network.clone();
        let tap = self.host.run(move || crate::open_tap(&planned, id))?;
        let guest = TestGuest::plug(tap, member.lease, network.subnet())?;
        self.guests.insert(id, guest);
        Ok(())
    }

    /// Takes a member's guest away, as when its machine ends.
    pub fn unplug(&mut self, id: WorkspaceId) {
        self.guests.remove(&id);
    }

    /// A member's guest.
    ///
    /// # Panics
    /// If it was not plugged.
    pub fn guest(&self, id: WorkspaceId) -> &TestGuest {
        &self.guests[&id]
    }
}
