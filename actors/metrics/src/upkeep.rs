//! Periodic upkeep: days that are over are closed and folded, days that are too old removed.

use std::time::Duration;

use chrono::Utc;
use hivekeep_kernel::ToolError;

use crate::{ledger::MetricsLedger, segment::SegmentId, service::MetricsStore};

/// How often it looks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(60);

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
