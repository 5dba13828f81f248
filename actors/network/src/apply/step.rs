//! The difference alone, where the rest is known to be as it was left.

use super::{AppliedPlan, Enforcer, ForeignChain, links, uplink};
use crate::Error;
use crate::plan::NetworkPlan;
use crate::rules::Ruleset;

/// State that was last brought into the kernel and acknowledged by it.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) network: NetworkPlan,
    pub(super) rules: Ruleset,
    /// The bridge's index.
    pub(super) bridge: u32,
    pub(super) uplinks: Vec<String>,
    pub(super) obstacles: Vec<ForeignChain>,
    /// The packet filter's generation after our last transaction.
    pub(super) at: u32,
}

impl Enforcer {
    /// Like [`Enforcer::ensure`], but applies only what differs from the plan before, where that is
    /// still in force and nobody else changed any rule of the host meanwhile. The rules go in one
    /// transaction, before the taps that need them. Interfaces of the plan before are taken to be
    /// as they were; [`Enforcer::check`] looks.
    ///
    /// # Errors
    /// As [`Enforcer::ensure`], which is tried first where the difference was refused.
    pub async fn apply(&mut self, network: &NetworkPlan) -> Result<AppliedPlan, Error> {
        // Taken, so that a future that is dropped leaves nothing known.
        let Some(mut known) = self.known.take() else { return self.ensure(network).await };
        let mut repaired = Vec::new();
        if self.generation.now()? != known.at {
            // Others changed rules: the known plan is restored first, so that the repairs can be reported.
            repaired = self.compare(&known.network, true).await?.repaired;
            match self.known.take() {
                Some(again) => known = again,
                None => return Ok(AppliedPlan { repaired, ..self.ensure(network).await? }),
            }
        }
        match self.step(known, network).await {
            Ok(Some(applied)) => Ok(AppliedPlan { repaired, ..applied }),
            Ok(None) => self.ensure(network).await,
            Err(error) => {
                tracing::warn!(%error, "the difference was not taken; looking at everything");
                self.ensure(network).await
            }
        }
    }

    async fn step(
        &mut self,
        known: Known,
        network: &NetworkPlan,
    ) -> Result<Option<AppliedPlan>, Error> {
        let same =
            |a: &NetworkPlan, b: &NetworkPlan| (a.tag(), a.subnet()) == (b.tag(), b.subnet());
        if !same(&known.network, network) {
            return Ok(None);
        }
        let rules = Ruleset::render(network);
        let inet = rules.inet.difference(&known.rules.inet);
        let bridge = rules.bridge.difference(&known.rules.bridge);
        let Some((mut commands, more)) = inet.zip(bridge) else { return Ok(None) };
        commands.extend(more);
        let mut expected = known.at;
        if !commands.is_empty() {
            self.nft.transact(&commands).await?;
            expected = expected.wrapping_add(1);
        }
        let plans = [&known.network, network];
        let owner = self.options.tap_owner;
        let (made, removed) = links::step(&self.netlink, known.bridge, plans, owner).await?;
        let mut uplinks = known.uplinks;
        if known.network.leaves_the_host() != network.leaves_the_host() {
            let (names, transactions) = self.forwarding(network).await?;
            uplinks = names;
            expected = expected.wrapping_add(transactions);
        }
        let Known { bridge, obstacles, .. } = known;
        let applied = AppliedPlan {
            made,
            removed,
            uplinks: uplinks.clone(),
            obstacles: obstacles.clone(),
            ..AppliedPlan::default()
        };
        let known = Known { network: network.clone(), rules, bridge, uplinks, obstacles, at: 0 };
        self.remember(known, expected)?;
        Ok(Some(applied))
    }

    /// Keeps what the kernel holds now, unless someone else changed a rule meanwhile.
    pub(super) fn remember(&mut self, known: Known, expected: u32) -> Result<(), Error> {
        let at = self.generation.now()?;
        self.known = (at == expected).then_some(Known { at, ..known });
        Ok(())
    }

    /// Looks at everything, and has it as planned again where others changed it. Costs no look at
    /// the rules where nobody changed any.
    ///
    /// # Errors
    /// As [`Enforcer::ensure`].
    pub async fn check(&mut self, network: &NetworkPlan) -> Result<AppliedPlan, Error> {
        let known = self.known.take();
        let bridge = known.as_ref().map(|known| known.bridge);
        let untouched = match &known {
            Some(known) => known.at == self.generation.now()? && known.network == *network,
            None => false,
        };
        let mut applied = match known {
            Some(known) if untouched => self.check_links(known).await?,
            known => self.compare(network, known.is_some_and(|k| k.network == *network)).await?,
        };
        // Links that differed from the plan were changed by somebody else.
        let links = applied.made.iter().chain(&applied.removed);
        applied.repaired.extend(links.map(|name| format!("interface {name}")));
        let now = self.known.as_ref().map(|known| known.bridge);
        if bridge.is_some() && now.is_some() && bridge != now {
            applied.repaired.push(format!("interface {}", network.tag().bridge()));
        }
        Ok(applied)
    }

    /// The interfaces; the rules are known to be as planned.
    async fn check_links(&mut self, known: Known) -> Result<AppliedPlan, Error> {
        let network = &known.network;
        let ports = links::ensure(&self.netlink, network, self.options.tap_owner).await?;
        let mut uplinks = known.uplinks.clone();
        let mut expected = known.at;
        if network.leaves_the_host() {
            let names = uplink::names(&self.netlink, &self.options.uplinks).await?;
            let all = names.iter().map(|name| uplink::forwards(name));
            let forwards = all.collect::<Result<Vec<_>, _>>()?.into_iter().all(|on| on);
            if names != uplinks || !forwards {
                let (names, transactions) = self.forwarding(network).await?;
                uplinks = names;
                expected = expected.wrapping_add(transactions);
            }
        }
        let applied = AppliedPlan {
            made: ports.made,
            removed: ports.removed,
            uplinks: uplinks.clone(),
            obstacles: known.obstacles.clone(),
            ..AppliedPlan::default()
        };
        self.remember(Known { bridge: ports.bridge, uplinks, ..known }, expected)?;
        Ok(applied)
    }

    /// [`Enforcer::ensure`], and what it changed in the tables if they were as planned before.
    async fn compare(
        &mut self,
        network: &NetworkPlan,
        planned: bool,
    ) -> Result<AppliedPlan, Error> {
        let rules = Ruleset::render(network);
        let before = self.nft.read_back(&rules).await?;
        let mut applied = self.ensure(network).await?;
        if planned {
            applied.repaired = before.differences(&self.nft.read_back(&rules).await?);
        }
        Ok(applied)
    }
}
