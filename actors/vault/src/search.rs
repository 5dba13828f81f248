//! Parallel search: the matching lines of notes, in the order of the paths.
//!
//! ```text
//!  walk ─► paths, sorted ─► chunks ─┬─► worker: read, match ─┐
//!                                   └─► worker: read, match ─┴─► Gathered, by chunk
//! ```
//! Workers take chunks in order; no further chunk is begun once the completed prefix of chunks has
//! enough results. So a search with many matches reads only a part of the vault, and which part
//! does not depend on timing.

mod gather;
mod job;
mod matcher;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::Error;
use crate::folder::{WalkEntryKind, WalkParams};
use crate::ops::VaultView;
use crate::path::NotePath;

use gather::Gather;
use job::Job;
pub(crate) use matcher::CompiledQuery;

/// Number of notes that a worker takes at a time.
const CHUNK: usize = 32;
/// Maximum length of a query, in characters.
const QUERY_CHARS: usize = 1_024;
/// Maximum size of all results: with JSON's escapes below the limit of a result.
const RESULT_BYTES: usize = 1024 * 1024;
/// Maximum number of notes named as not searched; beyond it they are only counted.
const MOST_SKIPPED: usize = 100;
/// Interval of progress reports, and delay of the first.
pub(crate) const PROGRESS: Duration = Duration::from_secs(1);

/// Parameters of a search.
pub(crate) struct SearchParams<'r> {
    pub(crate) query: &'r str,
    pub(crate) regex: bool,
    pub(crate) case_sensitive: bool,
    pub(crate) whole_word: bool,
    pub(crate) context_lines: usize,
    pub(crate) at: NotePath,
    pub(crate) tag: Option<&'r str>,
    pub(crate) max_results: usize,
    pub(crate) timeout: Duration,
    pub(crate) threads: usize,
}

/// Matching line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SearchHit {
    pub(crate) path: String,
    pub(crate) line_number: u64,
    pub(crate) line: String,
    pub(crate) context: String,
}

impl SearchHit {
    fn bytes(&self) -> usize {
        self.path.len() + self.line.len() + self.context.len()
    }
}

/// Note that was not searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SkippedNote {
    pub(crate) path: String,
    pub(crate) reason: String,
}

/// Limit that cut the results short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchLimit {
    Results,
    Bytes,
    Time,
    Notes,
}

/// Results of a search.
#[derive(Debug, Default)]
pub(crate) struct SearchResults {
    pub(crate) hits: Vec<SearchHit>,
    pub(crate) cut: Option<SearchLimit>,
    /// Number of notes read.
    pub(crate) searched: usize,
    pub(crate) skipped: Vec<SkippedNote>,
    pub(crate) skipped_count: usize,
}

/// Callbacks of a search.
pub(crate) struct SearchCallbacks<'w> {
    /// Cancellation check: true once the caller is gone.
    pub(crate) stopped: &'w (dyn Fn() -> bool + Sync),
    /// Progress callback: notes searched, and their total.
    pub(crate) progress: &'w (dyn Fn(usize, usize) + Sync),
    /// Interval of progress reports, and delay of the first.
    pub(crate) every: Duration,
}

/// Runs a search. Blocks.
///
/// # Errors
/// [`Error::Pattern`], [`Error::Cancelled`], or the error of a folder that cannot be read.
pub(crate) fn search(
    vault: &VaultView,
    ask: &SearchParams<'_>,
    watch: &SearchCallbacks<'_>,
) -> Result<SearchResults, Error> {
    if ask.query.is_empty() || ask.query.chars().count() > QUERY_CHARS {
        return Err(Error::Pattern(format!("it has to have 1 to {QUERY_CHARS} characters")));
    }
    let question = CompiledQuery::new(ask)?;
    let began = Instant::now();
    let wants = |kind| kind != WalkEntryKind::Folder;
    let walk = WalkParams { wants, ..WalkParams::everything(watch.stopped) };
    let (items, cut_short) = vault.walk(&walk, &ask.at)?;
    let prefix = vault.shown(&ask.at);
    let mut others = Vec::new();
    let mut notes = Vec::new();
    for item in items {
        let why = match item.kind {
            WalkEntryKind::Note => {
                notes.push(item.path);
                continue;
            }
            WalkEntryKind::Closed => "the folder cannot be read",
            WalkEntryKind::Other | WalkEntryKind::Folder => "it is not a file",
        };
        others.push(SkippedNote { path: format!("{prefix}{}", item.path), reason: why.to_owned() });
    }
    let job = Job {
        vault,
        ask,
        question: &question,
        prefix: &prefix,
        notes: &notes,
        began,
        next: AtomicUsize::new(0),
        looked_at: AtomicUsize::new(0),
        late: AtomicBool::new(false),
        gather: Gather::new(ask.max_results, RESULT_BYTES),
        watch,
    };
    let threads = ask.threads.min(notes.len().div_ceil(CHUNK)).max(1);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| job.work(false));
        }
        job.work(true);
    });
    if (watch.stopped)() {
        return Err(Error::Cancelled);
    }
    let late = job.late.load(Relaxed);
    let mut found = job.gather.finish();
    if found.cut.is_none() && late {
        found.cut = Some(SearchLimit::Time);
    }
    if found.cut.is_none() && cut_short {
        found.cut = Some(SearchLimit::Notes);
    }
    found.skipped_count += others.len();
    found.skipped.extend(others);
    found.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    found.skipped.truncate(MOST_SKIPPED);
    Ok(found)
}
