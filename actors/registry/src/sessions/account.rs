//! Account of a user over all its sessions: a new session is no new allowance.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Limiter, User, quota_usage::QuotaUsage, summary::Summary};
use crate::Options;

/// One user. There are no more of them than the doors let in, and none is forgotten.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) user: User,
    pub(crate) limiter: Limiter,
    /// Held for a few additions, never across an await.
    usage: Mutex<QuotaUsage>,
    /// Calls that were refused.
    pub(crate) refused: Summary,
    /// Sessions that come and go.
    pub(crate) churn: Summary,
}

impl Account {
    pub(super) fn new(user: User, options: &Options) -> Self {
        let factor = options.user.quota_factor.get();
        Self {
            user,
            limiter: Limiter::new(&options.rate, options.user.rate_factor),
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
