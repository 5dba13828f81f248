//! The token buckets of one session.
//!
//! GCRA by governor, over tokio's clock. A call takes all its tokens or none;
//! a refused call burns nothing. A bucket never holds more than its burst, so a
//! call that wants more can never pass: it is refused for good and told to
//! split up, instead of being sent to wait for something that will not come.

use std::{num::NonZeroU32, ops::Add, time::Duration};

use governor::{
    Quota, RateLimiter,
    clock::{Clock, Reference},
    middleware::NoOpMiddleware,
    nanos::Nanos,
    state::{InMemoryState, NotKeyed},
};
use hivekeep_kernel::RateClass;
use tokio::time::Instant;

use crate::RateOptions;

/// Why a call must not go now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slow {
    /// There are not enough tokens yet.
    Wait(Duration),
    /// There never will be: the bucket holds at most this many.
    Never { burst: u32 },
}

#[derive(Debug)]
pub(crate) struct Limiter(Option<Buckets>);

#[derive(Debug)]
struct Buckets {
    create: Bucket,
    exec: Bucket,
    default: Bucket,
}

type Bucket = RateLimiter<NotKeyed, InMemoryState, TokioClock, NoOpMiddleware<Moment>>;

impl Limiter {
    pub(crate) fn new(options: &RateOptions) -> Self {
        let bucket = |burst: NonZeroU32, per_minute: NonZeroU32| {
            let quota = Quota::per_minute(per_minute).allow_burst(burst);
            RateLimiter::direct_with_clock(quota, TokioClock)
        };
        Self(options.enabled.then(|| Buckets {
            create: bucket(options.create_burst, options.create_per_minute),
            exec: bucket(options.exec_burst, options.exec_per_minute),
            default: bucket(options.default_burst, options.default_per_minute),
        }))
    }

    /// Takes `tokens` from the bucket of a class. No tokens are always there.
    pub(crate) fn take(&self, class: RateClass, tokens: u32) -> Result<(), Slow> {
        let (Some(buckets), Some(tokens)) = (&self.0, NonZeroU32::new(tokens)) else {
            return Ok(());
        };
        let bucket = match class {
            RateClass::Create => &buckets.create,
            RateClass::Exec => &buckets.exec,
            RateClass::Default => &buckets.default,
        };
        match bucket.check_n(tokens) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(until)) => Err(Slow::Wait(until.wait_time_from(TokioClock.now()))),
            Err(never) => Err(Slow::Never { burst: never.0 }),
        }
    }
}

/// tokio's clock, so that one paused clock drives buckets and timers in tests.
#[derive(Debug, Clone, Copy, Default)]
struct TokioClock;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Moment(Instant);

impl Clock for TokioClock {
    type Instant = Moment;
    fn now(&self) -> Moment {
        Moment(Instant::now())
    }
}

impl Reference for Moment {
    fn duration_since(&self, earlier: Self) -> Nanos {
        self.0.saturating_duration_since(earlier.0).into()
    }
    fn saturating_sub(&self, duration: Nanos) -> Self {
        Self(self.0.checked_sub(duration.into()).unwrap_or(self.0))
    }
}

impl Add<Nanos> for Moment {
    type Output = Self;
    fn add(self, other: Nanos) -> Self {
        Self(self.0 + Duration::from(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(limiter: &Limiter, class: RateClass, tries: usize) -> usize {
        (0..tries).filter(|_| limiter.take(class, 1).is_ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn bursts_and_refills_are_as_configured() {
        let limiter = Limiter::new(&RateOptions::default());
        for (class, burst, per_minute) in
            [(RateClass::Create, 3, 5), (RateClass::Exec, 10, 60), (RateClass::Default, 20, 120)]
        {
            assert_eq!(passed(&limiter, class, 100), burst, "{class:?}");
            let gap = Duration::from_secs(60) / per_minute;
            assert_eq!(limiter.take(class, 1), Err(Slow::Wait(gap)));
            tokio::time::advance(gap).await;
            assert_eq!(passed(&limiter, class, 100), 1, "{class:?}");
            tokio::time::advance(Duration::from_secs(3_600)).await;
            assert_eq!(passed(&limiter, class, 100), burst, "never more than the burst");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_call_burns_nothing() {
        let limiter = Limiter::new(&RateOptions::default());
        limiter.take(RateClass::Create, 2).expect("two of three");
        for _ in 0..10 {
            assert!(matches!(limiter.take(RateClass::Create, 2), Err(Slow::Wait(_))));
        }
        limiter.take(RateClass::Create, 1).expect("the third is still there");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_hint_is_enough() {
        let limiter = Limiter::new(&RateOptions::default());
        limiter.take(RateClass::Create, 3).expect("a full bucket");
        let Err(Slow::Wait(wait)) = limiter.take(RateClass::Create, 2) else { panic!("must wait") };
        tokio::time::advance(wait).await;
        limiter.take(RateClass::Create, 2).expect("after the hint");
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_a_bucket_ever_holds_is_refused_for_good() {
        let limiter = Limiter::new(&RateOptions::default());
        assert_eq!(limiter.take(RateClass::Create, 4), Err(Slow::Never { burst: 3 }));
        limiter.take(RateClass::Create, 3).expect("nothing was burnt");
    }

    #[tokio::test(start_paused = true)]
    async fn the_switch_turns_it_off() {
        let limiter = Limiter::new(&RateOptions { enabled: false, ..RateOptions::default() });
        assert_eq!(passed(&limiter, RateClass::Create, 1_000), 1_000);
    }
}
