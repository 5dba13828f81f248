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

mod bounds;
pub mod codes;
mod entry;
mod events;
mod family;
mod influx;
mod ledger;
mod options;
mod past;
mod query;
mod segment;
mod service;
mod tally;
mod tools;
mod upkeep;
mod window;

pub use family::MetricsFamily;
pub use options::{InfluxOptions, Options};
pub use past::{PastMetric, write_past};
pub use query::{MetricBrief, MetricCount, MetricsFound, NamesLeftOut};
pub use service::{MetricsExport, MetricsReach, MetricsStore};
pub use window::MetricsWindow;

#[cfg(test)]
mod tests;
