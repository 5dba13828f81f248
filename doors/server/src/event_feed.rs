//! Feed of events to one subscriber: filtered, bounded, and within the subscriber's reach.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use hivekeep_kernel::{SessionId, User};
use hivekeep_registry::SessionsHandle;
use hivekeep_store::{JournalEvent, Seq, Subscription, SubscriptionItem};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{DaemonServices, http::caller::HttpCaller};
use crate::credentials::CredentialScope;

/// Events that are wanted; the default wants all.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    /// Kinds, of which one with a final `*` is the beginning; none wants all.
    pub kinds: Vec<String>,
    /// Prefix of the events' kinds.
    pub within: Option<&'static str>,
    /// Subject of the events: an id, or the name of a collection.
    pub subject: Option<String>,
}

/// Item of a feed.
#[derive(Debug)]
pub enum FeedItem {
    /// An event.
    Event(Arc<JournalEvent>),
    /// Events that the subscriber has lost: it was too slow, or they are not kept any more.
    Missed(Seq, Seq),
}

impl FeedItem {
    /// Number of the event, or of the last that was lost.
    pub fn seq(&self) -> Seq {
        match self {
            Self::Event(event) => event.seq,
            Self::Missed(_, last) => *last,
        }
    }

    /// Kind of the event; `missed` where events were lost.
    pub fn kind(&self) -> &str {
        match self {
            Self::Event(event) => &event.kind,
            Self::Missed(..) => "missed",
        }
    }

    /// The item as its subscriber reads it.
    pub fn json(&self) -> String {
        match self {
            Self::Event(event) => json!(**event).to_string(),
            Self::Missed(first, last) => {
                let count = last.get() - first.get() + 1;
                json!({ "missed": { "first": first, "last": last, "count": count } }).to_string()
            }
        }
    }
}

/// The feed.
pub struct EventFeed {
    subscription: Subscription,
    filter: EventFilter,
    /// The only user whose events are sent, if there is one.
    only: Option<User>,
    sessions: SessionsHandle,
    /// Done when the door closes or the credential is revoked.
    over: BoxFuture<'static, ()>,
}

/// End of a caller's stream: the door closes, or the credential is revoked.
pub fn stream_over(
    core: &DaemonServices,
    caller: &HttpCaller,
    end: CancellationToken,
) -> BoxFuture<'static, ()> {
    let (credentials, user) = (core.credentials.clone(), caller.user);
    let over = async move {
        tokio::select! {
            () = end.cancelled() => {}
            () = credentials.revocation(user) => {}
        }
    };
    over.boxed()
}

impl EventFeed {
    /// Subscribes from an event on, or from now; the subscriber may fall `behind` so many events.
    pub fn new(
        core: &DaemonServices,
        caller: &HttpCaller,
        (from, behind): (Option<u64>, usize),
        filter: EventFilter,
        end: CancellationToken,
    ) -> Self {
        let subscription = core.journal.events().subscribe(from.map(Seq::new), behind);
        let only = (caller.scope == CredentialScope::Session).then_some(caller.user);
        let (sessions, over) = (core.sessions.clone(), stream_over(core, caller, end));
        Self { subscription, filter, only, sessions, over }
    }

    /// The next event that the subscriber wants and may see; `None` at the end.
    pub async fn next(&mut self) -> Option<FeedItem> {
        loop {
            let item = tokio::select! {
                biased;
                () = &mut self.over => return None,
                item = self.subscription.next() => item,
            };
            match item {
                Ok(SubscriptionItem::Missed { first, last }) => {
                    return Some(FeedItem::Missed(first, last));
                }
                Ok(SubscriptionItem::Event(event)) if self.wants(&event) => {
                    return Some(FeedItem::Event(event));
                }
                Ok(SubscriptionItem::Event(_)) => {}
                Err(error) => {
                    tracing::debug!(%error, "a stream of events ended");
                    return None;
                }
            }
        }
    }

    fn wants(&self, event: &JournalEvent) -> bool {
        let is = |wanted: &String| {
            wanted.strip_suffix('*').map_or(event.kind == *wanted, |it| event.kind.starts_with(it))
        };
        let kind = self.filter.kinds.is_empty() || self.filter.kinds.iter().any(is);
        let within = self.filter.within.is_none_or(|it| event.kind.starts_with(it));
        let about = |it: &str| event.subject == it || event.data["collection"] == it;
        let subject = self.filter.subject.as_deref().is_none_or(about);
        kind && within && subject && self.only.is_none_or(|user| self.is_of(event, user))
    }

    /// True for an event about one of the user's sessions, or of one.
    fn is_of(&self, event: &JournalEvent, user: User) -> bool {
        let named = [Some(event.subject.as_str()), event.data["session"].as_str()];
        let mut sessions =
            named.into_iter().flatten().filter_map(|it| it.parse::<SessionId>().ok());
        match event.data.get("session").map(Value::is_string) {
            // The session's owner counts before the event's subject.
            Some(true) => event.data["session"]
                .as_str()
                .and_then(|id| id.parse().ok())
                .is_some_and(|id| self.sessions.owner(id) == Some(user)),
            _ => sessions.any(|id| self.sessions.owner(id) == Some(user)),
        }
    }
}
