//! Rate-limited logging of what costs its causer nothing: told one by one while there are few,
//! and counted when they are many. The counts are told as one event a minute, so that the kept
//! history of everybody is not pushed out by one, and nothing is lost from the counts.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::SessionId;
use hivekeep_store::{Events, NewEvent};
use serde_json::json;

use super::{
    User,
    limiter::{Bucket, take},
};

/// Words that are counted by themselves; all further ones are one word.
const WORDS: usize = 32;
/// Sessions that are named in a summary.
const SESSIONS: usize = 20;

/// Refused calls of one session that are told one by one: burst, and a minute.
const OF_SESSION: (u32, u32) = (20, 6);
/// Refused calls of all sessions of a user that are told one by one: burst, and a minute.
const OF_USER: (u32, u32) = (200, 30);
/// Openings, detachments, resumptions and ends of a user's sessions that are told one by one.
const CHURN: (u32, u32) = (400, 60);

/// A session's part of what is told one by one.
pub(crate) fn session_bucket() -> Bucket {
    Bucket::new(OF_SESSION.0, OF_SESSION.1)
}

/// Rate-limited events of one kind, and the counts of those that were not written.
#[derive(Debug)]
pub(crate) struct Summary {
    kind: &'static str,
    bucket: Bucket,
    /// Held for a few additions, never across an await.
    counts: Mutex<Option<Counts>>,
}

#[derive(Debug)]
struct Counts {
    from: DateTime<Utc>,
    total: u64,
    words: BTreeMap<String, u64>,
    sessions: BTreeMap<SessionId, u64>,
    /// Count of the sessions that are not named.
    others: u64,
}

impl Summary {
    pub(super) fn of_refused_calls() -> Self {
        Self::new("calls.refused", OF_USER)
    }

    pub(super) fn of_sessions() -> Self {
        Self::new("sessions.churned", CHURN)
    }

    fn new(kind: &'static str, (burst, per_minute): (u32, u32)) -> Self {
        Self { kind, bucket: Bucket::new(burst, per_minute), counts: Mutex::new(None) }
    }

    /// True when this one gets an event of its own. If not, it is counted.
    pub(crate) fn tells(&self, own: Option<&Bucket>, session: SessionId, word: &str) -> bool {
        if take(own, &self.bucket, 1).is_ok() {
            return true;
        }
        self.counts().get_or_insert_with(Counts::new).add(session, word);
        false
    }

    /// Tells what was counted since it was last told. What cannot be told is kept for the next
    /// time.
    pub(super) fn tell(&self, user: User, events: &Events) {
        let mut counts = self.counts();
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

    fn counts(&self) -> MutexGuard<'_, Option<Counts>> {
        // Nothing between lock and unlock panics; were it so, the counts still hold.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn new() -> Self {
        let (words, sessions) = (BTreeMap::new(), BTreeMap::new());
        Self { from: Utc::now(), total: 0, words, sessions, others: 0 }
    }

    fn add(&mut self, session: SessionId, word: &str) {
        self.total += 1;
        let known = self.words.len() < WORDS || self.words.contains_key(word);
        *self.words.entry(if known { word } else { "other" }.to_owned()).or_default() += 1;
        if self.sessions.len() < SESSIONS || self.sessions.contains_key(&session) {
            *self.sessions.entry(session).or_default() += 1;
        } else {
            self.others += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_few_are_told_and_all_others_counted() {
        let (summary, noisy) = (Summary::of_refused_calls(), session_bucket());
        let session = SessionId::new();
        let told = (0..1_000).filter(|_| summary.tells(Some(&noisy), session, "denied")).count();
        assert_eq!(told, OF_SESSION.0 as usize);
        let quiet = session_bucket();
        assert!(summary.tells(Some(&quiet), SessionId::new(), "denied"), "another is told still");
        for other in 0..100 {
            let own = session_bucket();
            (0..50).for_each(|_| {
                summary.tells(Some(&own), SessionId::new(), &format!("code_{other}"));
            });
        }
        let counts = summary.counts();
        let counts = counts.as_ref().expect("counted");
        assert_eq!(counts.total, 1_000 + 1 + 5_000 - u64::from(OF_USER.0), "nothing is lost");
        assert_eq!(counts.words.values().sum::<u64>(), counts.total);
        assert!(counts.words.len() <= WORDS + 1 && counts.words.contains_key("other"));
        assert_eq!(counts.sessions.values().sum::<u64>() + counts.others, counts.total);
        assert!(counts.sessions.len() <= SESSIONS);
    }
}
