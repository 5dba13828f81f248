//! Tools of metrics.

use chrono::{DateTime, Utc};
use hivekeep_kernel::tools;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{MetricsFound, entry::MOST_NAME_BYTES, service::MetricsStore};

/// Record that something happened, to be counted by type, repository and agent with metrics_query.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordMetric {
    /// What happened, as `review.done`: a name that recurs.
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
