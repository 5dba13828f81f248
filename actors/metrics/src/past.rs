//! Records of times that are over, written into the journal of a daemon that is stopped: a history from elsewhere,
//! or one to be measured.

use chrono::{DateTime, Utc};
use futures::future::try_join_all;
use hivekeep_kernel::{ToolError, User};
use hivekeep_store::Journal;

use crate::{Options, bounds::DayBounds, entry::MetricEntry, ledger::MetricsLedger};

/// Records that are on their way to the disk at a time.
const AT_A_TIME: usize = 500;

/// A record of a time that is over.
#[derive(Debug, Clone)]
pub struct PastMetric {
    /// Time of the record; milliseconds are kept.
    pub at: DateTime<Utc>,
    /// User that the record belongs to.
    pub user: User,
    /// Kind, like `type` of `metrics_record`.
    pub kind: String,
    /// Repository, or nothing.
    pub repo: String,
    /// Agent, or nothing.
    pub agent_id: String,
}

/// Writes records into the segments of their days, durable when it returns; how many there were. Legal while no
/// daemon has the journal. What is older than `keep_days` goes when the daemon starts.
///
/// # Errors
/// As those of `metrics_record`; the records before the one that failed are kept.
pub async fn write_past(
    journal: &Journal,
    options: &Options,
    records: impl IntoIterator<Item = PastMetric>,
) -> Result<u64, ToolError> {
    let bounds = DayBounds {
        entries: options.max_records_per_day,
        bytes: options.max_mb_per_day * 1024 * 1024,
    };
    let oldest = MetricsLedger::first_kept(Utc::now().date_naive(), options.keep_days);
    let (journal, runtime) = (journal.clone(), tokio::runtime::Handle::current());
    let load = move || {
        let _runtime = runtime.enter();
        MetricsLedger::load(journal, bounds, oldest)
    };
    let loaded = tokio::task::spawn_blocking(load).await;
    let (ledger, _) =
        loaded.map_err(|panic| ToolError::internal(format!("metrics: {panic}")))??;
    let (mut written, mut records) = (0, records.into_iter());
    loop {
        let (mut durable, mut refused) = (Vec::new(), None);
        for record in records.by_ref().take(AT_A_TIME) {
            match record.entry().and_then(|entry| ledger.add(entry)) {
                Ok(decided) => durable.push(decided),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let decided = durable.len();
        try_join_all(durable).await?;
        written += decided as u64;
        match refused {
            Some(error) => return Err(error),
            None if decided == 0 => return Ok(written),
            None => {}
        }
    }
}

impl PastMetric {
    fn entry(self) -> Result<MetricEntry, ToolError> {
        let Self { at, user, kind, repo, agent_id } = self;
        let (at_ms, data) = (at.timestamp_millis(), Default::default());
        let entry = MetricEntry { at_ms, user: Some(user), kind, repo, agent_id, data };
        entry.check()?;
        Ok(entry)
    }
}
