//! How the journal is doing.

use std::sync::atomic::Ordering::Relaxed;

use serde::Serialize;

use crate::open::JOURNAL_DIR;
use crate::shared::{Shared, Stopped};
use crate::{Seq, fsx};

/// Numbers since the journal was opened, unless said otherwise.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stats {
    /// Requests answered, of every kind.
    pub requests: u64,
    /// Records appended.
    pub records: u64,
    /// Commits, each with its fsyncs.
    pub commits: u64,
    /// Requests per commit.
    pub mean_batch: f64,
    /// How long the last commit took.
    pub last_commit_ms: f64,
    /// Requests that wait for the writer now.
    pub queue_depth: usize,
    /// Streams now.
    pub streams: u64,
    /// The last event.
    pub last_event: Seq,
    /// Events that found the queue full and were lost.
    pub events_lost: u64,
    /// The database's size on disk now.
    pub disk_bytes: u64,
    /// Why the journal refuses everything, when it does.
    pub poisoned: Option<String>,
}

/// Gathers the numbers. Blocks: it walks the database's directory.
pub(crate) fn gather(shared: &Shared, queue_depth: usize) -> Stats {
    let counters = &shared.counters;
    let (requests, commits) = (counters.requests.load(Relaxed), counters.commits.load(Relaxed));
    Stats {
        requests,
        records: counters.records.load(Relaxed),
        commits,
        mean_batch: if commits == 0 { 0.0 } else { requests as f64 / commits as f64 },
        last_commit_ms: counters.last_commit_micros.load(Relaxed) as f64 / 1000.0,
        queue_depth,
        streams: counters.streams.load(Relaxed),
        last_event: Seq::new(shared.last_event.load(Relaxed)),
        events_lost: counters.lost_total.load(Relaxed),
        disk_bytes: fsx::tree_bytes(&shared.dir.join(JOURNAL_DIR)),
        poisoned: match shared.stopped() {
            Some(Stopped::Poisoned { cause }) => Some(cause),
            _ => None,
        },
    }
}
