//! Metrics as a family: the service, its upkeep, the counter of events and the writer to InfluxDB; and records of
//! times that are over, written into the journal of a daemon that is stopped: a history from elsewhere, or one
//! to be measured.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures::future::try_join_all;
use hivekeep_kernel::{ErrorCode, RestartPolicy, ServiceActor, ToolError, ToolInfo, User};
use hivekeep_ports::ValueRedactor;
use hivekeep_runtime::{Daemon, Family, Finding, Host, Mounted};
use hivekeep_store::Journal;

use crate::{
    Options, codes,
    influx::{self, InfluxTarget},
    ledger::MetricsLedger,
    segment::SegmentId,
    tally::{DayBounds, MetricEntry},
    tools::{self, MetricsStore},
    upkeep,
};

/// Family of the metrics tools. Offers [`MetricsStore`] to doors.
pub struct MetricsFamily;

impl Family for MetricsFamily {
    type Options = Options;

    const INSTRUCTIONS: &'static str = "\
- metrics_record notes that something happened, metrics_query counts it by type, repository and agent.";

    fn tools() -> Vec<&'static ToolInfo> {
        tools::FAMILY.rows.iter().map(|row| &row.0).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let (ledger, expired) = load(&daemon.journal, &options).await?;
        let failed = |error: hivekeep_store::Error| ToolError::internal(error.to_string());
        ledger.forget(&expired).await.map_err(failed)?;
        let metrics = Arc::new(MetricsStore {
            ledger: Arc::new(ledger),
            options: options.clone(),
            sessions: daemon.sessions.clone(),
            redactor: daemon.ports.find::<dyn ValueRedactor>(),
            redact: daemon.redact.clone(),
            recorded: Arc::default(),
        });
        daemon.ports.offer(metrics.clone());
        let address = daemon.address("metrics", RestartPolicy::ENTITY);
        let tidier = daemon.address("metrics-upkeep", RestartPolicy::ENTITY);
        let mut mounted = Mounted::default()
            .serving::<ServiceActor<MetricsStore>>(&address, metrics.clone())
            .periodic(&tidier, upkeep::TIDY_EVERY, metrics.clone(), |metrics| async move {
                metrics.tidy().await;
            });
        if options.daemon_events {
            let counter = daemon.address("metrics-events", RestartPolicy::ENTITY);
            let counted = (metrics.ledger.clone(), daemon.journal.events());
            mounted = mounted.periodic(
                &counter,
                upkeep::COUNT_AGAIN,
                counted,
                |(ledger, events)| async move {
                    upkeep::count_events(&ledger, &events).await;
                },
            );
        }
        if let Some(target) = InfluxTarget::of(&options.influx).await? {
            let writer = daemon.address("metrics-influx", RestartPolicy::ENTITY);
            let written = (metrics.clone(), Arc::new(target));
            mounted = mounted.periodic(
                &writer,
                Duration::ZERO,
                written,
                |(metrics, target)| async move {
                    influx::write(&metrics, &target).await;
                },
            );
        }
        Ok(mounted)
    }

    async fn check(options: &Options, _: &Host) -> Vec<Finding> {
        let influx = &options.influx;
        let Some(url) = &influx.url else { return Vec::new() };
        let mut found = Vec::new();
        for file in
            [&influx.token_file, &influx.password_file, &influx.ca_file].into_iter().flatten()
        {
            let what = format!("metrics.influx file {}", file.display());
            found.push(match tokio::fs::metadata(file).await {
                Ok(_) => Finding::good(what, "is there"),
                Err(error) => {
                    Finding::bad(what, error.to_string(), "put the credential there").optional()
                }
            });
        }
        match InfluxTarget::of(influx).await {
            Err(error) => {
                let remedy = "mend `metrics.influx`; the daemon does not start with it";
                found.push(Finding::bad("metrics.influx", error.message, remedy));
            }
            Ok(_) => found.push(Finding::good("metrics.influx", url.clone())),
        }
        found
    }
}

/// The ledger of a journal, and segments of days that are not kept any more.
async fn load(
    journal: &Journal,
    options: &Options,
) -> Result<(MetricsLedger, Vec<SegmentId>), ToolError> {
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
    Ok(loaded.map_err(|panic| ToolError::internal(format!("metrics: {panic}")))??)
}

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
    let (ledger, _) = load(journal, options).await?;
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
