//! Rate limits of messages: a bucket for each sender, and one for each session whose messages are
//! rejected.
//!
//! A message draws from its sender's bucket, and from none of the session's. One that is refused
//! before it has a sender would be free: it draws from a bucket of the same size that its session
//! has here. With that empty, the session's messages are refused unseen until there is something
//! in it again.

use std::num::NonZeroU32;

use dashmap::DashMap;
use governor::{
    DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter,
    clock::{Clock, DefaultClock},
};
use hivekeep_kernel::{Layer, SessionId, ToolError};
use tokio::time::Instant;

use crate::{Options, codes};

/// Buckets above which the full ones are forgotten: they are of sessions that are gone or behave.
const MANY: usize = 256;

fn quota(options: &Options) -> Quota {
    let above_zero = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
    Quota::per_minute(above_zero(options.messages_per_minute))
        .allow_burst(above_zero(options.message_burst))
}

/// Rate limiters, one per sender.
pub(crate) struct Limiters(Vec<DefaultDirectRateLimiter>);

impl Limiters {
    /// Full buckets; none when senders are not slowed down.
    pub(crate) fn new(options: &Options, rates: bool, members: usize) -> Self {
        let members = if rates { members } else { 0 };
        Self((0..members).map(|_| RateLimiter::direct(quota(options))).collect())
    }

    pub(crate) fn take(&self, member: usize) -> Result<(), ToolError> {
        let Some(limiter) = self.0.get(member) else { return Ok(()) };
        limiter.check().map_err(|until| {
            let wait = until.wait_time_from(DefaultClock::default().now());
            ToolError::new(Layer::Rate, codes::RATE_LIMITED, "this member sends too fast")
                .next("try again after retry_after_ms")
                .retry_after(wait)
        })
    }
}

/// Rejected messages, by session.
pub(crate) struct RejectionLimiter {
    /// None when senders are not slowed down.
    buckets: Option<DefaultKeyedRateLimiter<SessionId>>,
    /// Sessions whose bucket is empty, and until when.
    shut: DashMap<SessionId, Instant>,
}

impl RejectionLimiter {
    pub(crate) fn new(options: &Options, rates: bool) -> Self {
        let buckets = rates.then(|| RateLimiter::keyed(quota(options)));
        Self { buckets, shut: DashMap::new() }
    }

    /// Checks the sender before its message is looked at.
    ///
    /// # Errors
    /// `rate_limited`.
    pub(crate) fn pass(&self, session: SessionId) -> Result<(), ToolError> {
        let now = Instant::now();
        let Some(until) = self.shut.get(&session).map(|until| *until) else { return Ok(()) };
        if until <= now {
            self.shut.remove_if(&session, |_, until| *until <= now);
            return Ok(());
        }
        let message = "too many messages of this session were refused";
        Err(ToolError::new(Layer::Rate, codes::RATE_LIMITED, message)
            .next("see why the last ones were refused; try again after retry_after_ms")
            .retry_after(until - now))
    }

    /// Counts a refused message. An error that may be tried again was no mistake of the caller's.
    pub(crate) fn count(&self, session: SessionId, error: &ToolError) {
        let Some(buckets) = &self.buckets else { return };
        if error.retryable || error.is(codes::RATE_LIMITED) {
            return;
        }
        if let Err(until) = buckets.check_key(&session) {
            let wait = until.wait_time_from(DefaultClock::default().now());
            self.shut.insert(session, Instant::now() + wait);
        }
        if buckets.len() > MANY {
            buckets.retain_recent();
            let now = Instant::now();
            self.shut.retain(|_, until| *until > now);
        }
    }
}
