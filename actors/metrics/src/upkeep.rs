//! Periodic work: days that are over are closed and folded, days that are too old removed, and the daemon's own
//! events are counted, folded into the days' segments with their position.
//!
//! The journal keeps a bounded number of events, so they are counted as they happen. A batch is one record
//! that holds the number of its last event: what was counted before a crash is known, and the rest is
//! read again.

use std::time::Duration;

use chrono::Utc;
use hivekeep_kernel::{ToolError, fault_point};
use hivekeep_store::{Events, JournalEvent, Seq, SubscriptionItem};
use serde_json::json;

use crate::{
    ledger::MetricsLedger,
    segment::SegmentId,
    tally::{MOST_NAME_BYTES, MetricEntry},
    tools::MetricsStore,
};

/// How often it looks.
pub(crate) const TIDY_EVERY: Duration = Duration::from_secs(60);

impl MetricsStore {
    /// Looks once. What fails is tried again the next time.
    pub(crate) async fn tidy(&self) {
        if let Err(error) = self.try_to_tidy().await {
            tracing::warn!(%error, "metrics were not tidied; it is tried again");
        }
    }

    /// # Errors
    /// When the journal cannot be written.
    pub(crate) async fn try_to_tidy(&self) -> Result<(), ToolError> {
        let today = Utc::now().date_naive();
        self.ledger.tidy(today).await?;
        let gone =
            self.ledger.take_expired(MetricsLedger::first_kept(today, self.options.keep_days));
        if self.options.influx.url.is_some() {
            let unsent: u64 = gone.iter().map(|row| u64::from(row.entries - row.sent)).sum();
            if unsent > 0 {
                tracing::warn!(unsent, "metrics expired before InfluxDB took them");
            }
        }
        let ids: Vec<SegmentId> = gone.into_iter().map(|row| row.id).collect();
        let failed = |error: hivekeep_store::Error| ToolError::internal(error.to_string());
        self.ledger.forget(&ids).await.map_err(failed)
    }
}

/// Events in a batch.
const BATCH: usize = 256;
/// Events that the counter may fall behind before it misses some.
const BEHIND: usize = 8_192;
/// How long a batch is gathered.
const GATHER: Duration = Duration::from_millis(500);
/// Pause before another attempt.
pub(crate) const COUNT_AGAIN: Duration = Duration::from_secs(1);
/// Type of an entry for events that were not kept long enough to be counted.
const MISSED: &str = "events.missed";

/// Counts the daemon's events, until it cannot.
pub(crate) async fn count_events(ledger: &MetricsLedger, events: &Events) {
    if let Err(error) = try_to_count(ledger, events).await {
        tracing::warn!(%error, "events are not counted; it is tried again");
    }
}

/// Counts from the position on.
async fn try_to_count(ledger: &MetricsLedger, events: &Events) -> Result<(), ToolError> {
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
