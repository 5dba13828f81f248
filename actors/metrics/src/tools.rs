//! Tools of metrics, their service, and what the doors use of it.

use std::{collections::VecDeque, sync::Arc};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{
    CallCx, Service, ServiceActor, Tier, ToolError, ToolGroup, User, fault_point, tools,
};
use hivekeep_ports::{SessionQuotas, ValueRedactor};
use hivekeep_runtime::Redact;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use crate::{
    MetricsFound, MetricsWindow, Options,
    ledger::MetricsLedger,
    query,
    segment::SegmentId,
    tally::{MOST_NAME_BYTES, MetricEntry},
};

/// Record that something happened, to be counted by type, repository and agent with metrics_query.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordMetric {
    /// Type of the event, as `review.done`: a name that recurs.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = MOST_NAME_BYTES))]
    pub(crate) kind: String,
    /// Agent that did it.
    #[schemars(length(max = MOST_NAME_BYTES))]
    pub(crate) agent_id: Option<String>,
    /// Repository that it was done in.
    #[schemars(length(max = MOST_NAME_BYTES))]
    pub(crate) repo: Option<String>,
    /// Anything else, a few KiB at most; what is named like a credential is hidden.
    pub(crate) data: Option<Map<String, Value>>,
}

/// A record that is on the disk.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MetricRecorded {
    /// True: it will be counted, whatever happens to the daemon.
    pub(crate) success: bool,
    /// Time that it is counted at.
    pub(crate) timestamp: DateTime<Utc>,
}

/// Count what you recorded with metrics_record in a window that ends now: in all, by type, repository and
/// agent, with the ten last records.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QueryMetrics {
    /// Length of the window: a number with d, h or m, at most `365d`.
    #[serde(default = "default_since")]
    #[schemars(length(min = 1, max = 40))]
    pub(crate) since: String,
}

fn default_since() -> String {
    "7d".to_owned()
}

tools! { pub(crate) FAMILY: "metrics" for service MetricsStore, singleton metrics;
    metrics_record: RecordMetric => MetricRecorded = MetricsStore::record {
        title: "Record a metric", effect: Write,
    };
    metrics_query: QueryMetrics => MetricsFound = MetricsStore::query {
        title: "Count metrics", effect: Read,
    };
}

/// Entries in one part of an export.
const PART: usize = 500;

/// Whose records an answer may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsReach {
    /// Everybody's, and the daemon's own events.
    All,
    /// A user's.
    User(User),
}

/// Metrics as tools and doors have them. Shared; outlives restarts of the actor.
pub struct MetricsStore {
    pub(crate) ledger: Arc<MetricsLedger>,
    pub(crate) options: Options,
    pub(crate) sessions: Arc<dyn SessionQuotas>,
    pub(crate) redactor: Option<Arc<dyn ValueRedactor>>,
    pub(crate) redact: Redact,
    /// Told when something was recorded.
    pub(crate) recorded: Arc<Notify>,
}

impl Service for MetricsStore {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = &[&FAMILY];
}

impl MetricsStore {
    pub(crate) async fn record(
        self: Arc<Self>,
        cx: CallCx,
        input: RecordMetric,
    ) -> Result<MetricRecorded, ToolError> {
        let most = self.options.max_data_kb * 1024;
        let data = input.data.unwrap_or_default();
        let bytes = serde_json::to_vec(&data).map_or(usize::MAX, |bytes| bytes.len());
        if bytes > most {
            let message = format!("`data` has {bytes} bytes as JSON, {most} are allowed");
            return Err(
                ToolError::invalid(message).next("record what is counted, not what was made")
            );
        }
        let entry = MetricEntry {
            at_ms: Utc::now().timestamp_millis(),
            user: Some(self.sessions.user(cx.session).unwrap_or(User::Nobody)),
            kind: (self.redact)(&input.kind),
            repo: (self.redact)(&input.repo.unwrap_or_default()),
            agent_id: (self.redact)(&input.agent_id.unwrap_or_default()),
            data: self.without_credentials(data),
        };
        entry.check()?;
        let timestamp = entry.at();
        let durable = self.ledger.add(entry)?;
        durable.await?;
        fault_point!("metrics.recorded");
        self.recorded.notify_one();
        Ok(MetricRecorded { success: true, timestamp })
    }

    fn without_credentials(&self, data: Map<String, Value>) -> Map<String, Value> {
        match &self.redactor {
            None => data,
            Some(redactor) => match redactor.redact(Value::Object(data)) {
                Value::Object(data) => data,
                other => Map::from_iter([("value".to_owned(), other)]),
            },
        }
    }

    pub(crate) async fn query(
        self: Arc<Self>,
        cx: CallCx,
        input: QueryMetrics,
    ) -> Result<MetricsFound, ToolError> {
        let user = self.sessions.user(cx.session).unwrap_or(User::Nobody);
        let reach = match cx.view.reaches(Tier::Operator) {
            true => MetricsReach::All,
            false => MetricsReach::User(user),
        };
        self.count(input.since.parse()?, reach).await
    }

    /// Counts what was recorded in a window that ends now.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn count(
        &self,
        window: MetricsWindow,
        reach: MetricsReach,
    ) -> Result<MetricsFound, ToolError> {
        let now = (Utc::now(), self.options.keep_days);
        query::count(&self.ledger, window, &reach, now).await
    }

    /// Begins to read what was recorded in a window, the oldest segment first.
    pub fn export(&self, window: MetricsWindow, reach: MetricsReach) -> MetricsExport {
        let from_ms = (Utc::now() - window.length()).timestamp_millis();
        let rows = self.ledger.rows().into_iter();
        let rows = rows.filter(|row| row.last_ms.is_some_and(|at| at >= from_ms));
        let (ledger, waiting) = (self.ledger.clone(), rows.map(|row| row.id).collect());
        MetricsExport { ledger, waiting, from_ms, reach, read: Vec::new().into_iter() }
    }
}

/// Records on their way out. One segment is in memory at a time.
pub struct MetricsExport {
    ledger: Arc<MetricsLedger>,
    waiting: VecDeque<SegmentId>,
    from_ms: i64,
    reach: MetricsReach,
    read: std::vec::IntoIter<MetricEntry>,
}

impl MetricsExport {
    /// The next records as JSON objects; `None` at the end.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn next(&mut self) -> Result<Option<Vec<Value>>, ToolError> {
        loop {
            let (from_ms, reach) = (self.from_ms, self.reach);
            let wanted =
                |entry: &MetricEntry| entry.at_ms >= from_ms && reach.sees_user(entry.user);
            let part: Vec<Value> =
                self.read.by_ref().filter(wanted).take(PART).map(|entry| line(&entry)).collect();
            if !part.is_empty() {
                return Ok(Some(part));
            }
            let Some(id) = self.waiting.pop_front() else { return Ok(None) };
            let Some(segment) = self.ledger.segment(id).await? else { continue };
            let broken = |why: String| ToolError::internal(format!("segment {id}: {why}"));
            let unpacked = tokio::task::spawn_blocking(move || segment.entries()).await;
            let entries = unpacked.map_err(|error| broken(error.to_string()))?.map_err(broken)?;
            self.read = entries.into_iter();
        }
    }
}

/// An entry as it is exported.
fn line(entry: &MetricEntry) -> Value {
    let at: DateTime<Utc> = entry.at();
    let mut line = json!({ "type": entry.kind, "timestamp": at });
    for (key, value) in [("agent_id", &entry.agent_id), ("repo", &entry.repo)] {
        if !value.is_empty() {
            line[key] = json!(value);
        }
    }
    if let Some(user) = entry.user {
        line["user"] = json!(user);
    }
    if !entry.data.is_empty() {
        line["data"] = json!(entry.data);
    }
    line
}
