//! The token buckets of a session, and of a user over all its sessions.
//!
//! GCRA over tokio's clock: a bucket is the time at which it will be full again.
//! A call takes all its tokens or none, and takes them of its session's and of
//! its user's bucket at once, so that a refused call burns nothing of either. A
//! bucket never holds more than its burst, so a call that wants more can never
//! pass: it is refused for good and told to split up, instead of being sent to
//! wait for something that will not come.

use std::{num::NonZeroU32, sync::Mutex, time::Duration};

use hivekeep_kernel::{RateClass, lock};
use tokio::time::Instant;

use crate::RateOptions;

/// The reason why a call must not go now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slow {
    /// There are not enough tokens yet.
    Wait(Whose, Duration),
    /// There never will be: the bucket holds at most this many.
    Never { burst: u32 },
}

/// Owner of the slower bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Session,
    User,
}

/// Token bucket of a session or a user.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Time in which one token comes back.
    gap: Duration,
    burst: u32,
    /// Time at which the bucket will be full. Locked for a few additions, never across an await.
    full_at: Mutex<Instant>,
}

impl Bucket {
    pub(crate) fn new(burst: u32, per_minute: u32) -> Self {
        let gap = Duration::from_secs(60) / per_minute.max(1);
        Self { gap, burst, full_at: Mutex::new(Instant::now()) }
    }
}

/// Takes tokens of both buckets, or of neither: tells then which is slower, and by how much.
pub(crate) fn take(session: Option<&Bucket>, user: &Bucket, tokens: u32) -> Result<(), Slow> {
    if let Some(small) = session.into_iter().chain([user]).find(|bucket| tokens > bucket.burst) {
        return Err(Slow::Never { burst: small.burst });
    }
    // Always in this order.
    let mut own = session.map(|bucket| (bucket, lock(&bucket.full_at)));
    let mut all = lock(&user.full_at);
    let now = Instant::now();
    let after = |bucket: &Bucket, full_at: Instant| {
        let full_at = full_at.max(now) + bucket.gap * tokens;
        (full_at, (full_at - now).saturating_sub(bucket.gap * bucket.burst))
    };
    let own_after = own.as_ref().map(|(bucket, full_at)| after(bucket, **full_at));
    let own_wait = own_after.map_or(Duration::ZERO, |(_, wait)| wait);
    let (all_full, all_wait) = after(user, *all);
    if own_wait.max(all_wait) > Duration::ZERO {
        return Err(match own_wait >= all_wait {
            true => Slow::Wait(Whose::Session, own_wait),
            false => Slow::Wait(Whose::User, all_wait),
        });
    }
    *all = all_full;
    if let (Some((_, own)), Some((full_at, _))) = (&mut own, own_after) {
        **own = full_at;
    }
    Ok(())
}

/// The buckets of each class; none when calls are not limited.
#[derive(Debug)]
pub(crate) struct Limiter(Option<Buckets>);

#[derive(Debug)]
struct Buckets {
    create: Bucket,
    exec: Bucket,
    file: Bucket,
    default: Bucket,
}

impl Limiter {
    /// Buckets of so many times the size of a session's.
    pub(crate) fn new(options: &RateOptions, times: NonZeroU32) -> Self {
        let bucket = |burst: NonZeroU32, per_minute: NonZeroU32| {
            Bucket::new(burst.saturating_mul(times).get(), per_minute.saturating_mul(times).get())
        };
        Self(options.enabled.then(|| Buckets {
            create: bucket(options.create_burst, options.create_per_minute),
            exec: bucket(options.exec_burst, options.exec_per_minute),
            file: bucket(options.file_burst, options.file_per_minute),
            default: bucket(options.default_burst, options.default_per_minute),
        }))
    }

    /// Takes `tokens` from the bucket of a class, here and in the user's. No tokens are always
    /// there.
    pub(crate) fn take(&self, user: &Self, class: RateClass, tokens: u32) -> Result<(), Slow> {
        let (Some(own), Some(all), 1..) = (&self.0, &user.0, tokens) else { return Ok(()) };
        take(Some(own.of(class)), all.of(class), tokens)
    }
}

impl Buckets {
    fn of(&self, class: RateClass) -> &Bucket {
        match class {
            RateClass::Create => &self.create,
            RateClass::Exec => &self.exec,
            RateClass::File => &self.file,
            RateClass::Default => &self.default,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONCE: NonZeroU32 = NonZeroU32::MIN;

    /// A session alone with a user that is never the slower one.
    struct Alone(Limiter, Limiter);

    impl Alone {
        fn new(options: &RateOptions) -> Self {
            let often = NonZeroU32::new(1_000).expect("above zero");
            Self(Limiter::new(options, ONCE), Limiter::new(options, often))
        }

        fn take(&self, class: RateClass, tokens: u32) -> Result<(), Slow> {
            self.0.take(&self.1, class, tokens)
        }

        fn passed(&self, class: RateClass, tries: usize) -> usize {
            (0..tries).filter(|_| self.take(class, 1).is_ok()).count()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bursts_and_refills_are_as_configured() {
        let limiter = Alone::new(&RateOptions::default());
        for (class, burst, per_minute) in [
            (RateClass::Create, 3, 5),
            (RateClass::Exec, 10, 60),
            (RateClass::File, 200, 6_000),
            (RateClass::Default, 20, 120),
        ] {
            assert_eq!(limiter.passed(class, 1_000), burst, "{class:?}");
            let gap = Duration::from_secs(60) / per_minute;
            assert_eq!(limiter.take(class, 1), Err(Slow::Wait(Whose::Session, gap)));
            tokio::time::advance(gap).await;
            assert_eq!(limiter.passed(class, 100), 1, "{class:?}");
            tokio::time::advance(Duration::from_secs(3_600)).await;
            assert_eq!(limiter.passed(class, 1_000), burst, "never more than the burst");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_call_burns_nothing() {
        let limiter = Alone::new(&RateOptions::default());
        limiter.take(RateClass::Create, 2).expect("two of three");
        for _ in 0..10 {
            assert!(matches!(limiter.take(RateClass::Create, 2), Err(Slow::Wait(..))));
        }
        limiter.take(RateClass::Create, 1).expect("the third is still there");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_hint_is_enough() {
        let limiter = Alone::new(&RateOptions::default());
        limiter.take(RateClass::Create, 3).expect("a full bucket");
        let Err(Slow::Wait(_, wait)) = limiter.take(RateClass::Create, 2) else {
            panic!("must wait")
        };
        tokio::time::advance(wait).await;
        limiter.take(RateClass::Create, 2).expect("after the hint");
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_a_bucket_ever_holds_is_refused_for_good() {
        let limiter = Alone::new(&RateOptions::default());
        assert_eq!(limiter.take(RateClass::Create, 4), Err(Slow::Never { burst: 3 }));
        limiter.take(RateClass::Create, 3).expect("nothing was burnt");
    }

    #[tokio::test(start_paused = true)]
    async fn the_switch_turns_it_off() {
        let limiter = Alone::new(&RateOptions { enabled: false, ..RateOptions::default() });
        assert_eq!(limiter.passed(RateClass::Create, 1_000), 1_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_session_is_no_new_allowance() {
        let options = RateOptions::default();
        let user = Limiter::new(&options, NonZeroU32::new(2).expect("above zero"));
        let session = || Limiter::new(&options, ONCE);
        let mut passed = 0;
        for _ in 0..50 {
            let session = session();
            passed += (0..3).filter(|_| session.take(&user, RateClass::Create, 1).is_ok()).count();
        }
        assert_eq!(passed, 6, "two sessions' worth");
        let last = session();
        let Err(Slow::Wait(Whose::User, wait)) = last.take(&user, RateClass::Create, 3) else {
            panic!("the user's bucket is empty")
        };
        tokio::time::advance(wait).await;
        last.take(&user, RateClass::Create, 3).expect("its own were not burnt meanwhile");
    }
}
