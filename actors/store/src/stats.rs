//! How the journal is doing.

use std::sync::atomic::Ordering::Relaxed;

use serde::Serialize;

use crate::compact::{COPY_DIR, OLD_DIR};
use crate::open::JOURNAL_DIR;
use crate::shared::{Shared, Stopped};
use crate::{Compacted, Options, Seq, fsx};

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
    /// The oldest event that is kept; above `last_event` when there is none.
    pub oldest_event: Seq,
    /// The last event.
    pub last_event: Seq,
    /// How many events are kept at most, but for those that are trimmed together.
    pub events_kept: u64,
    /// Events that found the queue full and were lost.
    pub events_lost: u64,
    /// The database's size on disk now, with the copy that a compaction makes.
    pub disk_bytes: u64,
    /// The part of it that lives: keys and values.
    pub live_bytes: u64,
    /// The rest: what was replaced or forgotten, and the database's own needs.
    pub dead_bytes: u64,
    /// True while the journal is compacted.
    pub compacting: bool,
    /// How often it was compacted since start, and at start.
    pub compactions: u64,
    /// The last compaction.
    pub compacted: Option<Compacted>,
    /// Why the latest compaction failed, if it did; it is tried again.
    pub compaction_given_up: Option<String>,
    /// Why the journal refuses everything, when it does.
    pub poisoned: Option<String>,
}

/// Gathers the numbers. Blocks: it walks the database's directory.
pub(crate) fn gather(shared: &Shared, options: &Options, queue_depth: usize) -> Stats {
    let counters = &shared.counters;
    let (requests, commits) = (counters.requests.load(Relaxed), counters.commits.load(Relaxed));
    let live_bytes = counters.live_bytes.load(Relaxed);
    let dirs = [JOURNAL_DIR, COPY_DIR, OLD_DIR];
    let disk_bytes = dirs.iter().map(|name| fsx::tree_bytes(&shared.dir.join(name))).sum::<u64>();
    let compaction = shared.compaction().clone();
    Stats {
        requests,
        records: counters.records.load(Relaxed),
        commits,
        mean_batch: if commits == 0 { 0.0 } else { requests as f64 / commits as f64 },
        last_commit_ms: counters.last_commit_micros.load(Relaxed) as f64 / 1000.0,
        queue_depth,
        streams: counters.streams.load(Relaxed),
        oldest_event: Seq::new(shared.oldest_event.load(Relaxed)),
        events_kept: options.events_kept,
        last_event: Seq::new(shared.last_event.load(Relaxed)),
        events_lost: counters.lost_total.load(Relaxed),
        disk_bytes,
        live_bytes,
        dead_bytes: disk_bytes.saturating_sub(live_bytes),
        compacting: counters.compacting.load(Relaxed),
        compactions: compaction.count,
        compacted: compaction.last,
        compaction_given_up: compaction.given_up,
        poisoned: match shared.stopped() {
            Some(Stopped::Poisoned { cause }) => Some(cause),
            _ => None,
        },
    }
}
