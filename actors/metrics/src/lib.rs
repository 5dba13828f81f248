//! Event counter over a log that is segmented by day, with an exporter to a time-series database.
//!
//! ```text
//! metrics_record ─▶ Ledger ─▶ segment of the day (a stream of the journal) ─▶ answered when durable
//!  daemon's events ──┘              │ closed: its entries are folded into one compressed snapshot
//!                                   │ opened: begins with the day's tally so far
//! metrics_query ◀── tallies of whole days + entries of the day in which the window begins
//!     InfluxDB ◀── entries that no record `Sent` covers yet, batch by batch
//! ```
//! A tally and the entries that it counts are in one stream, and each record of it is applied once: a
//! crash at any line loses and repeats nothing that was acknowledged.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod family;
mod influx;
mod ledger;
mod options;
mod query;
mod segment;
mod tally;
mod tools;
mod upkeep;

pub use family::{MetricsFamily, PastMetric, write_past};
pub use options::{InfluxOptions, Options};
pub use query::{MetricBrief, MetricCount, MetricsFound, MetricsWindow, NamesLeftOut};
pub use tools::{MetricsExport, MetricsReach, MetricsStore};

#[cfg(test)]
mod tests;
