//! Parallel search: the matching lines of notes, in the order of the paths.
//!
//! ```text
//!  walk ─► paths, sorted ─► chunks ─┬─► worker: read, match ─┐
//!                                   └─► worker: read, match ─┴─► FirstShown, by note
//! ```
//! Workers take chunks in order, and end once the notes before theirs have enough results. So a search with
//! many matches reads only a part of the vault. Which results it has does not depend on timing, unless its
//! time is over; how many notes were read for them does.

mod job;
mod matcher;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hivekeep_file_engine::FirstShown;

use crate::Error;
use crate::answer::{SearchRow, SkippedRow};
use crate::folder::{WalkEntryKind, WalkParams};
use crate::ops::VaultView;
use crate::path::NotePath;

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

impl SearchRow {
    fn bytes(&self) -> usize {
        self.path.len() + self.line.len() + self.context.len()
    }
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
#[derive(Debug)]
pub(crate) struct SearchResults {
    pub(crate) hits: Vec<SearchRow>,
    pub(crate) cut: Option<SearchLimit>,
    /// Number of notes read.
    pub(crate) searched: usize,
    pub(crate) skipped: Vec<SkippedRow>,
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
    let (mut found, mut notes) = (Found::new(ask.max_results), Vec::new());
    for item in items {
        let why = match item.kind {
            WalkEntryKind::Note => {
                notes.push(item.path);
                continue;
            }
            WalkEntryKind::Closed => "the folder cannot be read",
            WalkEntryKind::Other | WalkEntryKind::Folder => "it is not a file",
        };
        found.skip(format!("{prefix}{}", item.path), why.to_owned());
    }
    let threads = ask.threads.min(notes.len().div_ceil(CHUNK)).max(1);
    let job = Job {
        vault,
        ask,
        question: &question,
        prefix: &prefix,
        notes: &notes,
        began,
        watch,
        found: Mutex::new(found),
        next: AtomicUsize::new(0),
        looked_at: AtomicUsize::new(0),
        late: AtomicBool::new(false),
    };
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
    let found = job.found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut results = found.results(ask.max_results);
    results.cut = results
        .cut
        .or(late.then_some(SearchLimit::Time))
        .or(cut_short.then_some(SearchLimit::Notes));
    Ok(results)
}

/// Findings of all workers.
struct Found {
    /// By the note's number.
    first: FirstShown<usize, SearchRow>,
    searched: usize,
    /// First notes that were not searched, with the reasons.
    skipped: BTreeMap<String, String>,
    skipped_count: usize,
}

impl Found {
    fn new(max_results: usize) -> Self {
        // A result more than are shown, or a byte, tells that there are more.
        let first = FirstShown::new(max_results + 1, RESULT_BYTES + 1, SearchRow::bytes);
        Self { first, searched: 0, skipped: BTreeMap::new(), skipped_count: 0 }
    }

    fn skip(&mut self, path: String, reason: String) {
        self.skipped_count += 1;
        self.skipped.insert(path, reason);
        if self.skipped.len() > MOST_SKIPPED {
            self.skipped.pop_last();
        }
    }

    fn results(self, max_results: usize) -> SearchResults {
        let mut hits = self.first.shown();
        let cut = if hits.len() > max_results {
            Some(SearchLimit::Results)
        } else if hits.iter().map(SearchRow::bytes).sum::<usize>() > RESULT_BYTES {
            Some(SearchLimit::Bytes)
        } else {
            None
        };
        if cut.is_some() {
            hits.pop();
        }
        let skipped = self.skipped.into_iter();
        let skipped = skipped.map(|(path, reason)| SkippedRow { path, reason }).collect();
        let (searched, skipped_count) = (self.searched, self.skipped_count);
        SearchResults { hits, cut, searched, skipped, skipped_count }
    }
}
