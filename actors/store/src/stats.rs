//! Statistics of the journal.

use std::sync::atomic::Ordering::Relaxed;

use serde::Serialize;

use crate::compact::{COPY_DIR, OLD_DIR};
use crate::open::JOURNAL_DIR;
use crate::shared::{JournalShared, StopReason};
use crate::{Compacted, Options, Seq, fsx};

/// Counters since the journal was opened, unless said otherwise.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JournalStats {
    /// Number of requests answered, of every kind.
    pub requests: u64,
    /// Number of records appended.
    pub records: u64,
    /// Number of commits, each with its fsyncs.
    pub commits: u64,
    /// Mean number of requests per commit.
    pub mean_batch: f64,
    /// Duration of the last commit.
    pub last_commit_ms: f64,
    /// Number of requests that wait for the writer now.
    pub queue_depth: usize,
    /// Number of streams now.
    pub streams: u64,
    /// Oldest event that is kept; above `last_event` when there is none.
    pub oldest_event: Seq,
    /// Last event.
    pub last_event: Seq,
    /// Maximum number of events kept, apart from those that are trimmed together.
    pub events_kept: u64,
    /// Number of events that found the queue full and were lost.
    pub events_lost: u64,
    /// Size of the database on disk now, including the copy that a compaction makes.
    pub disk_bytes: u64,
    /// Live part of it: keys and values.
    pub live_bytes: u64,
    /// Remaining part: what was replaced or forgotten, and the database's own overhead.
    pub dead_bytes: u64,
    /// True while the journal is compacted.
    pub compacting: bool,
    /// Number of compactions since start, including the one at start.
    pub compactions: u64,
    /// Last compaction.
    pub compacted: Option<Compacted>,
    /// Reason why the latest compaction failed, if it did; it is tried again.
    pub compaction_given_up: Option<String>,
    /// Reason why the journal refuses everything, if it does.
    pub poisoned: Option<String>,
}

/// Gathers the statistics. Blocks: it walks the database's directory.
pub(crate) fn gather(
    shared: &JournalShared,
    options: &Options,
    queue_depth: usize,
) -> JournalStats {
    let counters = &shared.counters;
    let (requests, commits) = (counters.requests.load(Relaxed), counters.commits.load(Relaxed));
    let live_bytes = counters.live_bytes.load(Relaxed);
    let dirs = [JOURNAL_DIR, COPY_DIR, OLD_DIR];
    let disk_bytes = dirs.iter().map(|name| fsx::tree_bytes(&shared.dir.join(name))).sum::<u64>();
    let compaction = shared.compaction().clone();
    JournalStats {
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
            Some(StopReason::Poisoned { cause }) => Some(cause),
            _ => None,
        },
    }
}
