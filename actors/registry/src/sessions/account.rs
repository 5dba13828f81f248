//! Account of a user over all its sessions: a new session is no new allowance.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hivekeep_runtime::log::Loaded;
use hivekeep_store::Journal;

use super::{Limiter, User, quota_usage::QuotaUsage, summary::Summary};
use crate::{
    Options,
    tiers::{CallCounts, CallMeter},
};

/// Account of a user. There are no more than the doors let users in, and none is forgotten.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) user: User,
    pub(crate) limiter: Limiter,
    /// Calls by the limits of the user's tier; none for a tier without.
    pub(crate) meter: Option<Arc<CallMeter>>,
    /// Holdings that the user's tier allows, by kind.
    pub(super) holds: BTreeMap<String, u64>,
    /// Held for a few additions, never across an await.
    usage: Mutex<QuotaUsage>,
    /// Calls that were refused.
    pub(crate) refused: Summary,
    /// Sessions that come and go.
    pub(crate) churn: Summary,
}

impl Account {
    /// Account of a user; `counts` is what the journal has of its calls.
    pub(super) fn new(
        user: User,
        options: &Options,
        journal: &Journal,
        counts: Option<Loaded<CallCounts>>,
    ) -> Self {
        let (name, tier) = options.tier(user);
        let factor = options.user.quota_factor.get();
        Self {
            user,
            limiter: Limiter::new(&options.rate, options.user.rate_factor),
            meter: CallMeter::new(user, (name, &tier), journal, counts),
            holds: tier.holds,
            usage: Mutex::new(QuotaUsage::new(options.quota.limit().times(factor.into()))),
            refused: Summary::of_refused_calls(),
            churn: Summary::of_sessions(),
        }
    }

    pub(super) fn usage(&self) -> MutexGuard<'_, QuotaUsage> {
        // Nothing between lock and unlock panics; were it so, the sums still hold.
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
