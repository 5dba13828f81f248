//! Event counter: the daemon's own events, folded into the days' segments with their position.
//!
//! The journal keeps a bounded number of events, so they are counted as they happen. A batch is one record
//! that holds the number of its last event: what was counted before a crash is known, and the rest is
//! read again.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{Context, Entity, Fault, ToolError, fault_point};
use hivekeep_store::{Events, JournalEvent, Seq, SubscriptionItem};
use serde_json::json;

use crate::{
    entry::{MOST_NAME_BYTES, MetricEntry},
    ledger::MetricsLedger,
};

/// Events in a batch.
const BATCH: usize = 256;
/// Events that the counter may fall behind before it misses some.
const BEHIND: usize = 8_192;
/// How long a batch is gathered.
const GATHER: Duration = Duration::from_millis(500);
/// Pause before another attempt.
const AGAIN: Duration = Duration::from_secs(1);
/// Type of an entry for events that were not kept long enough to be counted.
const MISSED: &str = "events.missed";

/// Counts the daemon's events. It is told nothing.
pub(crate) struct EventCounter;

impl Entity for EventCounter {
    type Msg = ();
    type Seed = (Arc<MetricsLedger>, Events);

    async fn start((ledger, events): Self::Seed, me: Context<()>) -> Result<Self, Fault> {
        let _detached = me.workers.clone().spawn(async move {
            let _me = me;
            loop {
                if let Err(error) = count(&ledger, &events).await {
                    tracing::warn!(%error, "events are not counted; it is tried again");
                }
                tokio::time::sleep(AGAIN).await;
            }
        });
        Ok(Self)
    }

    fn handle(&mut self, (): ()) -> Result<(), Fault> {
        Ok(())
    }
}

/// Counts from the position on, until it cannot.
async fn count(ledger: &MetricsLedger, events: &Events) -> Result<(), ToolError> {
    let upto = ledger.rows().iter().map(|row| row.events_upto).max().unwrap_or(0);
    let mut subscription = events.subscribe(Some(Seq::new(upto + 1)), BEHIND);
    let failed = |error: hivekeep_store::Error| ToolError::internal(error.to_string());
    let mut batch: Vec<(u64, MetricEntry)> = Vec::new();
    loop {
        let first = subscription.next().await.map_err(failed)?;
        batch.extend(entry(&first));
        let until = tokio::time::Instant::now() + GATHER;
        while batch.len() < BATCH {
            match tokio::time::timeout_at(until, subscription.next()).await {
                Ok(item) => batch.extend(entry(&item.map_err(failed)?)),
                Err(_) => break,
            }
        }
        fold(ledger, &mut batch).await?;
    }
}

/// Writes a batch: the events of each day at once, those of one day before those of the next.
async fn fold(
    ledger: &MetricsLedger,
    batch: &mut Vec<(u64, MetricEntry)>,
) -> Result<(), ToolError> {
    for day in std::mem::take(batch).chunk_by(|(_, a), (_, b)| a.date() == b.date()) {
        let Some((upto, last)) = day.last() else { continue };
        let entries = day.iter().map(|(_, entry)| entry.clone()).collect();
        ledger.fold(last.date(), entries, *upto)?.await?;
        fault_point!("metrics.events_folded");
    }
    Ok(())
}

/// The entry of an event, with the event's number.
fn entry(item: &SubscriptionItem) -> Option<(u64, MetricEntry)> {
    let made = |at_ms, kind: &str, data| {
        let kind: String = kind.chars().take(MOST_NAME_BYTES / 4).collect();
        let (repo, agent_id) = (String::new(), String::new());
        MetricEntry { at_ms, user: None, kind, repo, agent_id, data }
    };
    Some(match item {
        SubscriptionItem::Event(event) => {
            let JournalEvent { seq, at, kind, .. } = event.as_ref();
            (seq.get(), made(at.timestamp_millis(), kind, Default::default()))
        }
        SubscriptionItem::Missed { first, last } => {
            let data = json!({ "first": first, "last": last });
            let data = data.as_object().cloned().unwrap_or_default();
            (last.get(), made(chrono::Utc::now().timestamp_millis(), MISSED, data))
        }
    })
}
