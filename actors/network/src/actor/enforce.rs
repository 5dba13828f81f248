//! Worker that owns the [`Enforcer`].
//!
//! The worker always applies the newest plan: all decisions made while it works take one more turn.
//! After a failure it tries again by itself. The kernel notifies it of changes that others make to the
//! daemon's tables, and it repairs them; a periodic check finds the rest.

use std::sync::Arc;
use std::time::Duration;

use hivekeep_kernel::Address;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, sleep_until};

use super::names::{Names, Wanted};
use super::shared::NetworkShared;
use super::{Inner, Msg};
use crate::apply::RulesetMonitor;
use crate::plan::NetworkPlan;
use crate::{AppliedPlan, Enforcer, Error, ResolvedAddresses};

/// First wait after a failure; doubled each time.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Between two looks at what others changed, if they go on.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// State that the kernel should have.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Counts the changes that became durable.
    pub(super) generation: u64,
    pub(super) network: Arc<NetworkPlan>,
}

/// Requests to the worker besides following the plan.
pub(super) enum Order {
    /// Open what a name resolved to.
    Open(Wanted),
    /// Remove everything, unless machines still hold cables; then end.
    TakeDown(oneshot::Sender<()>),
}

/// End of an attempt to follow a plan.
pub(super) struct Attempt {
    pub(super) plan: Plan,
    pub(super) outcome: Result<AppliedPlan, Error>,
    /// The reason why guests are not served names, if they are not.
    pub(super) no_names: Option<String>,
}

pub(super) struct Worker {
    shared: Arc<NetworkShared>,
    actor: Address<Msg>,
    plan: watch::Receiver<Plan>,
    orders: mpsc::Receiver<Order>,
    enforcer: Enforcer,
    names: Names,
    /// True when there is a bridge, as far as is known.
    standing: bool,
    failures: u32,
    retry: Option<Instant>,
    /// Notifications of others' changes to our tables; without them, the next look finds the
    /// changes.
    changes: Option<RulesetMonitor>,
    look: Option<Instant>,
    looked: Instant,
}

/// While it is there, a tap that the plan does not know may be removed.
struct UnderWay(Arc<NetworkShared>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.send_replace(None);
    }
}

/// Returns when someone has changed our tables; never, where that is not heard.
async fn ruleset_changed(changes: &mut Option<RulesetMonitor>) {
    if let Some(listening) = changes {
        match listening.changed().await {
            Ok(()) => return,
            Err(error) => tracing::warn!(%error, "others' changes are seen late from now on"),
        }
        *changes = None;
    }
    std::future::pending().await
}

impl Worker {
    /// Newest plan, to be applied. A plan is announced as under way before it is read, so that nobody takes
    /// a tap of a plan that comes in between.
    fn begin(&self) -> (Plan, UnderWay) {
        let shared = self.shared.clone();
        shared.under_way.send_replace(Some(0));
        let plan = self.plan.borrow().clone();
        shared.under_way.send_replace(Some(plan.generation));
        (plan, UnderWay(shared))
    }

    pub(super) fn new(
        shared: Arc<NetworkShared>,
        plan: watch::Receiver<Plan>,
        (orders_in, orders): (mpsc::Sender<Order>, mpsc::Receiver<Order>),
    ) -> Result<Self, Error> {
        let enforcer = Enforcer::open(shared.options.access())?;
        let names = Names::new(&shared.options, orders_in.downgrade());
        let changes = RulesetMonitor::open(&shared.tag)
            .inspect_err(|error| tracing::warn!(%error, "others' changes are seen late"));
        Ok(Self {
            actor: shared.address.clone(),
            shared,
            plan,
            orders,
            enforcer,
            names,
            standing: false,
            failures: 0,
            retry: None,
            changes: changes.ok(),
            look: None,
            looked: Instant::now() - LOOK_EVERY,
        })
    }

    pub(super) async fn run(mut self) {
        if let Err(error) = self.sweep().await {
            tracing::warn!(%error, "what an earlier daemon left stays for now");
        }
        let every = Duration::from_secs(self.shared.options.check_interval_secs);
        let mut check = tokio::time::interval_at(Instant::now() + every, every);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.plan.mark_changed();
        loop {
            let (retry, look) = (self.retry, self.look);
            tokio::select! {
                biased;
                changed = self.plan.changed() => match changed {
                    Ok(()) => self.follow().await,
                    Err(_) => return,
                },
                () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {
                    self.follow().await;
                }
                _ = check.tick() => self.check().await,
                () = sleep_until(look.unwrap_or_else(Instant::now)), if look.is_some() => {
                    self.look_again().await;
                }
                () = ruleset_changed(&mut self.changes) => self.look = Some(self.looked + LOOK_EVERY),
                why = self.names.ended() => {
                    tracing::warn!(why, "guests are not served names any more; starting again");
                    self.follow().await;
                }
                order = self.orders.recv() => match order {
                    Some(Order::Open(wanted)) => self.open(wanted).await,
                    Some(Order::TakeDown(done)) => {
                        self.take_down().await;
                        // The asker may have run out of patience.
                        let _ = done.send(());
                        return;
                    }
                    None => return,
                },
            }
        }
    }

    /// Without members there is nothing to keep: removes what an earlier daemon left.
    async fn sweep(&mut self) -> Result<(), Error> {
        let (plan, _under_way) = self.begin();
        if plan.network.members().len() > 0 {
            return Ok(());
        }
        let tag = self.shared.tag.clone();
        let held = self.enforcer.taps_in_use(&tag).await?;
        if held.is_empty() && self.enforcer.is_anything_left(&tag).await? {
            self.enforcer.remove_all(&tag).await?;
            tracing::info!(%tag, "removed the network that an earlier daemon left");
        }
        Ok(())
    }

    /// Brings the kernel to the newest plan, and says how it went.
    async fn follow(&mut self) {
        // A plan that comes from here on takes one more turn.
        self.plan.mark_unchanged();
        let (plan, _under_way) = self.begin();
        let (outcome, no_names) = match self.bring(&plan.network).await {
            Ok((applied, no_names)) => (Ok(applied), no_names),
            Err(error) => (Err(error), None),
        };
        self.retry = None;
        if outcome.is_ok() {
            self.failures = 0;
        } else {
            let wait = RETRY_FIRST * 2u32.saturating_pow(self.failures.min(16));
            self.failures += 1;
            self.retry = Some(Instant::now() + wait.min(RETRY_MAX));
        }
        self.say(Inner::Followed(Attempt { plan, outcome, no_names }));
    }

    /// The actor that is gone has no use for it.
    fn say(&self, message: Inner) {
        let _ = self.actor.send(Msg(message));
    }

    /// Rules first, then names, since the bridge must have its address before anyone listens on
    /// it; and then the rule that lets guests ask.
    async fn bring(&mut self, plan: &NetworkPlan) -> Result<(AppliedPlan, Option<String>), Error> {
        if plan.members().len() == 0 && !self.standing {
            return Ok((AppliedPlan::default(), None));
        }
        self.standing = true;
        let mut network = plan.clone();
        network.serve_names(self.names.serves());
        let mut applied = self.enforcer.apply(&network).await?;
        let mut no_names = None;
        if !self.names.serves() {
            match self.names.start(&network).await {
                Ok(()) => {
                    network.serve_names(true);
                    let more = self.enforcer.apply(&network).await?;
                    applied.repaired.extend(more.repaired);
                }
                Err(error) => no_names = Some(error.to_string()),
            }
        }
        self.names.permit(&network);
        Ok((applied, no_names))
    }

    /// Has everything as planned where others changed it.
    async fn check(&mut self) {
        if !self.standing || self.retry.is_some() {
            return;
        }
        if !self.names.serves() {
            return self.follow().await;
        }
        let (plan, _under_way) = self.begin();
        let mut network = NetworkPlan::clone(&plan.network);
        network.serve_names(true);
        match self.enforcer.check(&network).await {
            Ok(applied) => self.say(Inner::Checked(applied)),
            Err(error) => {
                tracing::warn!(%error, "the network could not be looked at");
                self.follow().await;
            }
        }
    }

    /// Someone, perhaps this worker, has changed our tables.
    async fn look_again(&mut self) {
        self.look = None;
        if !self.enforcer.is_as_left() {
            self.check().await;
            self.looked = Instant::now();
        }
    }

    /// Opens what names resolved to, with everything else that waits to be opened, in one
    /// transaction. Where that is refused, one entry has gone from the plan: each by itself.
    async fn open(&mut self, first: Wanted) {
        const AT_ONCE: usize = 64;
        let mut all = vec![first];
        let mut last = None;
        while all.len() < AT_ONCE
            && let Ok(order) = self.orders.try_recv()
        {
            match order {
                Order::Open(wanted) => all.push(wanted),
                other => {
                    last = Some(other);
                    break;
                }
            }
        }
        let openings: Vec<ResolvedAddresses> =
            all.iter().flat_map(|w| w.openings.iter().cloned()).collect();
        let together = self.enforcer.open_names(&self.shared.tag, &openings).await;
        let several = all.len() > 1;
        for wanted in all {
            let outcome = match &together {
                Ok(()) => Ok(()),
                Err(_) if several => {
                    self.enforcer.open_names(&self.shared.tag, &wanted.openings).await
                }
                Err(error) => Err(Error::NftBroken(error.to_string())),
            };
            // A guest that does not wait for its answer any more.
            let _ = wanted.done.send(outcome);
        }
        if let Some(Order::TakeDown(done)) = last {
            self.take_down().await;
            self.orders.close();
            // Whoever asked may have gone.
            let _ = done.send(());
        }
    }

    async fn take_down(&mut self) {
        let _under_way = self.begin();
        let tag = self.shared.tag.clone();
        let removed = match self.enforcer.taps_in_use(&tag).await {
            Ok(held) if held.is_empty() => self.enforcer.remove_all(&tag).await,
            Ok(held) => {
                tracing::warn!(?held, "the network stays: machines hold cables");
                return;
            }
            Err(error) => Err(error),
        };
        match removed {
            Ok(()) => tracing::info!(%tag, "the network is removed"),
            Err(error) => tracing::error!(%error, "the network is not removed"),
        }
    }
}
