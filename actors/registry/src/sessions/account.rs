//! Account of a user over all its sessions: a new session is no new allowance.
//!
//! What costs its causer nothing is told one by one while there are few, and counted when they are many
//! (rate-limited logging). The counts are told as one event a minute, so that the kept history of
//! everybody is not pushed out by one, and nothing is lost from the counts.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{Resources, SessionId, User, lock};
use hivekeep_runtime::log::Loaded;
use hivekeep_store::{Events, Journal, NewEvent};
use serde_json::json;

use super::limiter::{Bucket, Limiter, take};
use crate::{
    Options,
    tiers::{CallCounts, CallMeter},
};

/// Words that are counted by themselves; all further ones are one word.
const SUMMARY_WORDS: usize = 32;
/// Sessions that are named in a summary.
const SUMMARY_SESSIONS: usize = 20;
/// Refused calls of one session that are told one by one: burst, and a minute.
const REFUSALS_OF_SESSION: (u32, u32) = (20, 6);
/// Refused calls of all sessions of a user that are told one by one: burst, and a minute.
const REFUSALS_OF_USER: (u32, u32) = (200, 30);
/// Openings, detachments, resumptions and ends of a user's sessions that are told one by one.
const CHURN_OF_USER: (u32, u32) = (400, 60);

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
        lock(&self.usage)
    }
}

/// Usage of a quota by a session, a user or the host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuotaUsage {
    used: Resources,
    limit: Resources,
}

/// The resource that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) name: &'static str,
    /// Usage that the request would lead to.
    pub(crate) wanted: u64,
    pub(crate) limit: u64,
}

impl QuotaUsage {
    pub(crate) fn new(limit: Resources) -> Self {
        Self { used: Resources::default(), limit }
    }

    /// Checks that all of it fits.
    pub(crate) fn check(&self, what: Resources) -> Result<(), Over> {
        let wanted = self.used.plus(what);
        // A resource that is over already, as after a lowered limit, does not stand
        // in the way of a request that takes none of it.
        let counted = Resources {
            workspaces: if what.workspaces > 0 { wanted.workspaces } else { 0 },
            memory_mb: if what.memory_mb > 0 { wanted.memory_mb } else { 0 },
            disk_gb: if what.disk_gb > 0 { wanted.disk_gb } else { 0 },
        };
        match counted.first_over(self.limit) {
            Some((name, wanted, limit)) => Err(Over { name, wanted, limit }),
            None => Ok(()),
        }
    }

    /// SummaryCounts it, limit or not.
    pub(crate) fn add(&mut self, what: Resources) {
        self.used = self.used.plus(what);
    }

    pub(crate) fn release(&mut self, what: Resources) {
        self.used = self.used.minus(what);
    }

    pub(crate) fn used(&self) -> Resources {
        self.used
    }

    pub(crate) fn limit(&self) -> Resources {
        self.limit
    }

    /// True when something is counted.
    pub(crate) fn holds(&self) -> bool {
        self.used != Resources::default()
    }
}

/// A session's part of what is told one by one.
pub(crate) fn session_bucket() -> Bucket {
    Bucket::new(REFUSALS_OF_SESSION.0, REFUSALS_OF_SESSION.1)
}

/// Rate-limited events of one kind, and the counts of those that were not written.
#[derive(Debug)]
pub(crate) struct Summary {
    kind: &'static str,
    bucket: Bucket,
    /// Held for a few additions, never across an await.
    counts: Mutex<Option<SummaryCounts>>,
}

#[derive(Debug)]
struct SummaryCounts {
    from: DateTime<Utc>,
    total: u64,
    words: BTreeMap<String, u64>,
    sessions: BTreeMap<SessionId, u64>,
    /// Count of the sessions that are not named.
    others: u64,
}

impl Summary {
    fn of_refused_calls() -> Self {
        Self::new("calls.refused", REFUSALS_OF_USER)
    }

    fn of_sessions() -> Self {
        Self::new("sessions.churned", CHURN_OF_USER)
    }

    fn new(kind: &'static str, (burst, per_minute): (u32, u32)) -> Self {
        Self { kind, bucket: Bucket::new(burst, per_minute), counts: Mutex::new(None) }
    }

    /// True when this one gets an event of its own. If not, it is counted.
    pub(crate) fn tells(&self, own: Option<&Bucket>, session: SessionId, word: &str) -> bool {
        if take(own, &self.bucket, 1).is_ok() {
            return true;
        }
        lock(&self.counts).get_or_insert_with(SummaryCounts::new).add(session, word);
        false
    }

    /// Tells what was counted since it was last told. What cannot be told is kept for the next
    /// time.
    pub(super) fn tell(&self, user: User, events: &Events) {
        let mut counts = lock(&self.counts);
        let Some(counted) = counts.as_ref() else { return };
        let data = json!({
            "user": user, "total": counted.total, "counts": counted.words,
            "sessions": counted.sessions, "other_sessions": counted.others,
            "from": counted.from, "to": Utc::now(),
        });
        let event = NewEvent { kind: self.kind.to_owned(), subject: user.to_string(), data };
        if events.publish_later(event) {
            *counts = None;
        }
    }
}

impl SummaryCounts {
    fn new() -> Self {
        let (words, sessions) = (BTreeMap::new(), BTreeMap::new());
        Self { from: Utc::now(), total: 0, words, sessions, others: 0 }
    }

    fn add(&mut self, session: SessionId, word: &str) {
        self.total += 1;
        let known = self.words.len() < SUMMARY_WORDS || self.words.contains_key(word);
        *self.words.entry(if known { word } else { "other" }.to_owned()).or_default() += 1;
        if self.sessions.len() < SUMMARY_SESSIONS || self.sessions.contains_key(&session) {
            *self.sessions.entry(session).or_default() += 1;
        } else {
            self.others += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reserve(usage: &mut QuotaUsage, what: Resources) -> Result<(), Over> {
        usage.check(what)?;
        usage.add(what);
        Ok(())
    }

    #[test]
    fn more_than_allowed_may_be_there_already() {
        let mut usage = QuotaUsage::new(Resources { workspaces: 1, memory_mb: 100, disk_gb: 1 });
        usage.add(Resources::workspace(500, 1));
        let disk = Resources { disk_gb: 1, ..Resources::default() };
        usage.release(disk);
        assert!(reserve(&mut usage, disk).is_ok());
        let over = reserve(&mut usage, Resources { memory_mb: 1, ..Resources::default() });
        assert_eq!(over, Err(Over { name: "memory_mb", wanted: 501, limit: 100 }));
    }

    fn amount() -> impl Strategy<Value = Resources> {
        (0u64..3, 0u64..600, 0u64..6).prop_map(|(workspaces, memory_mb, disk_gb)| Resources {
            workspaces,
            memory_mb,
            disk_gb,
        })
    }

    proptest! {
        #[test]
        fn never_over_and_never_lost(steps in prop::collection::vec((any::<bool>(), amount()), 1..60)) {
            let limit = Resources { workspaces: 4, memory_mb: 1000, disk_gb: 10 };
            let (mut usage, mut held) = (QuotaUsage::new(limit), Vec::<Resources>::new());
            for (take, what) in steps {
                if take {
                    let fits = usage.used().plus(what).first_over(limit).is_none();
                    let took = reserve(&mut usage, what).is_ok();
                    prop_assert_eq!(took, fits);
                    if took {
                        held.push(what);
                    }
                } else if let Some(back) = held.pop() {
                    usage.release(back);
                }
                let sum = held.iter().fold(Resources::default(), |sum, one| sum.plus(*one));
                prop_assert_eq!(usage.used(), sum);
                prop_assert!(sum.first_over(limit).is_none());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_are_told_and_all_others_counted() {
        let (summary, noisy) = (Summary::of_refused_calls(), session_bucket());
        let session = SessionId::new();
        let told = (0..1_000).filter(|_| summary.tells(Some(&noisy), session, "denied")).count();
        assert_eq!(told, REFUSALS_OF_SESSION.0 as usize);
        let quiet = session_bucket();
        assert!(summary.tells(Some(&quiet), SessionId::new(), "denied"), "another is told still");
        for other in 0..100 {
            let own = session_bucket();
            (0..50).for_each(|_| {
                summary.tells(Some(&own), SessionId::new(), &format!("code_{other}"));
            });
        }
        let counts = lock(&summary.counts);
        let counts = counts.as_ref().expect("counted");
        assert_eq!(
            counts.total,
            1_000 + 1 + 5_000 - u64::from(REFUSALS_OF_USER.0),
            "nothing is lost"
        );
        assert_eq!(counts.words.values().sum::<u64>(), counts.total);
        assert!(counts.words.len() <= SUMMARY_WORDS + 1 && counts.words.contains_key("other"));
        assert_eq!(counts.sessions.values().sum::<u64>() + counts.others, counts.total);
        assert!(counts.sessions.len() <= SUMMARY_SESSIONS);
    }
}
