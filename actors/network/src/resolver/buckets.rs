//! Token buckets: limits on each guest's rate of queries, and on its open ones.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ResolverLimits;

/// Token buckets, one for each guest that asked. Only members get one, so there are never more than
/// members; buckets of members that left are dropped when permits change.
#[derive(Debug)]
pub(super) struct Buckets {
    limits: ResolverLimits,
    all: Arc<Semaphore>,
    guests: Mutex<HashMap<Ipv4Addr, Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
    open: Arc<Semaphore>,
}

/// A question's place among the open ones; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    _places: [OwnedSemaphorePermit; 2],
}

impl Buckets {
    pub(super) fn new(limits: ResolverLimits) -> Self {
        let all = Arc::new(Semaphore::new(limits.in_flight));
        Self { limits, all, guests: Mutex::default() }
    }

    /// Takes a token and a place, if there are any.
    pub(super) fn admit(&self, guest: Ipv4Addr, now: Instant) -> Option<Place> {
        let mut guests = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
        let full = f64::from(self.limits.burst);
        let bucket = guests.entry(guest).or_insert_with(|| Bucket {
            tokens: full,
            filled: now,
            open: Arc::new(Semaphore::new(self.limits.in_flight_per_guest)),
        });
        let passed = now.saturating_duration_since(bucket.filled).as_secs_f64();
        let gained = passed * f64::from(self.limits.per_guest_per_sec);
        bucket.tokens = (bucket.tokens + gained).min(full);
        bucket.filled = now;
        if bucket.tokens < 1.0 {
            return None;
        }
        let own = bucket.open.clone().try_acquire_owned().ok()?;
        let common = self.all.clone().try_acquire_owned().ok()?;
        bucket.tokens -= 1.0;
        Some(Place { _places: [own, common] })
    }

    /// Forgets guests that are members no more.
    pub(super) fn retain(&self, is_member: impl Fn(&Ipv4Addr) -> bool) {
        let mut guests = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
        guests.retain(|guest, _| is_member(guest));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_guest_uses_up_its_own_bucket_only_and_it_fills_again() {
        let limits = ResolverLimits { per_guest_per_sec: 2, burst: 3, ..ResolverLimits::default() };
        let buckets = Buckets::new(limits);
        let [one, other] = [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 3)];
        let start = Instant::now();
        let taken = (0..10).filter(|_| buckets.admit(one, start).is_some()).count();
        assert_eq!(taken, 3);
        assert!(buckets.admit(other, start).is_some());
        let later = start + Duration::from_secs(1);
        let taken = (0..10).filter(|_| buckets.admit(one, later).is_some()).count();
        assert_eq!(taken, 2);
    }

    #[test]
    fn open_questions_are_bounded_for_each_guest_and_for_all() {
        let limits =
            ResolverLimits { in_flight_per_guest: 2, in_flight: 3, ..ResolverLimits::default() };
        let buckets = Buckets::new(limits);
        let [one, other] = [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 3)];
        let now = Instant::now();
        let first = buckets.admit(one, now).unwrap();
        let _second = buckets.admit(one, now).unwrap();
        assert!(buckets.admit(one, now).is_none());
        let _third = buckets.admit(other, now).unwrap();
        assert!(buckets.admit(other, now).is_none());
        drop(first);
        assert!(buckets.admit(other, now).is_some());
        buckets.retain(|guest| *guest == other);
        assert_eq!(buckets.guests.lock().unwrap().len(), 1);
    }
}
