//! Periodic upkeep: days that are over are closed and folded, days that are too old removed.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{Context, Entity, Fault, ToolError};

use crate::{ledger::MetricsLedger, segment::SegmentId, service::MetricsStore};

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Closes, folds and removes. It is told nothing.
pub(crate) struct MetricsUpkeep;

impl Entity for MetricsUpkeep {
    type Msg = ();
    type Seed = Arc<MetricsStore>;

    async fn start(metrics: Arc<MetricsStore>, me: Context<()>) -> Result<Self, Fault> {
        let _detached = me.workers.clone().spawn(async move {
            // Keeps the address: without one the actor would end.
            let _me = me;
            loop {
                if let Err(error) = metrics.tidy().await {
                    tracing::warn!(%error, "metrics were not tidied; it is tried again");
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        Ok(Self)
    }

    fn handle(&mut self, (): ()) -> Result<(), Fault> {
        Ok(())
    }
}

impl MetricsStore {
    /// Looks once.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub(crate) async fn tidy(&self) -> Result<(), ToolError> {
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
