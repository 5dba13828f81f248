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
mod matcher;
mod read;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::folder::{WalkEntryKind, WalkParams};
use crate::ops::VaultView;
use crate::path::NotePath;
use crate::{Error, tags};

use gather::Gather;
pub(crate) use matcher::CompiledQuery;
use matcher::Unanswered;
use read::Reader;

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

/// State shared by the workers.
struct Job<'j> {
    vault: &'j VaultView,
    ask: &'j SearchParams<'j>,
    question: &'j CompiledQuery,
    prefix: &'j str,
    notes: &'j [String],
    began: Instant,
    next: AtomicUsize,
    looked_at: AtomicUsize,
    late: AtomicBool,
    gather: Gather,
    watch: &'j SearchCallbacks<'j>,
}

impl Job<'_> {
    /// Takes chunks until there are none, or enough was found.
    fn work(&self, reports: bool) {
        let mut reader = Reader::new(&self.vault.folder, &self.ask.at);
        let mut searcher = self.question.searcher();
        let mut reported = self.began;
        let _leaves_no_other_waiting = CloseOnPanic(&self.gather);
        loop {
            let nth = self.next.fetch_add(1, Relaxed);
            let Some(chunk) = self.notes.chunks(CHUNK).nth(nth) else { return };
            if !self.gather.admits(nth) {
                return;
            }
            let mut part = gather::Part::default();
            for note in chunk {
                if self.is_over() {
                    // Chunks after a gap do not count.
                    return self.gather.close();
                }
                if self.look(note, &mut reader, &mut searcher, &mut part).is_break() {
                    return self.gather.close();
                }
                self.looked_at.fetch_add(1, Relaxed);
                if reports && reported.elapsed() >= self.watch.every {
                    reported = Instant::now();
                    (self.watch.progress)(self.looked_at.load(Relaxed), self.notes.len());
                }
            }
            self.gather.put(nth, part);
        }
    }

    fn is_over(&self) -> bool {
        if self.began.elapsed() >= self.ask.timeout {
            self.late.store(true, Relaxed);
        }
        self.late.load(Relaxed) || (self.watch.stopped)()
    }

    /// Searches one note. Breaks if the search ends meanwhile.
    fn look(
        &self,
        note: &str,
        reader: &mut Reader<'_>,
        searcher: &mut grep_searcher::Searcher,
        part: &mut gather::Part,
    ) -> ControlFlow<()> {
        let path = || format!("{}{note}", self.prefix);
        // A hit beyond the limit shows that there are more.
        let room = matcher::Room {
            hits: (self.ask.max_results + 1).saturating_sub(part.hits.len()),
            bytes: RESULT_BYTES.saturating_sub(part.bytes),
            context_lines: self.ask.context_lines,
        };
        let mut skip = |reason| {
            part.skip(SkippedNote { path: path(), reason });
            ControlFlow::Continue(())
        };
        let bytes = match reader.read(note) {
            Ok(bytes) => bytes,
            // Removed since the walk.
            Err(Error::NotFound { .. }) => return ControlFlow::Continue(()),
            Err(Error::TooLarge { bytes, most, .. }) => {
                return skip(format!("it has {bytes} bytes, a note at most {most}"));
            }
            Err(Error::WrongKind { found, .. }) => return skip(format!("it is {found}")),
            Err(other) => return skip(other.to_string()),
        };
        let over = || self.is_over();
        let mut hits = match self.question.hits(searcher, bytes, room, &over) {
            Ok(hits) => hits,
            Err(Unanswered::Stopped) => return ControlFlow::Break(()),
            Err(Unanswered::TooLong(why)) => return skip(why),
        };
        if let Some(tag) = self.ask.tag.filter(|_| !hits.is_empty()) {
            match has_tag(bytes, tag, &over) {
                Ok(Some(true)) => {}
                Ok(Some(false)) => hits.clear(),
                Ok(None) => {
                    let most = tags::LOOKED_THROUGH_BYTES;
                    return skip(format!("its first {most} bytes do not have the tag"));
                }
                Err(_) => return ControlFlow::Break(()),
            }
        }
        for hit in &mut hits {
            hit.path = path();
        }
        part.searched += 1;
        part.add(hits);
        ControlFlow::Continue(())
    }
}

/// Drop guard: a worker that panics ends the search; the others must not wait for its chunk.
struct CloseOnPanic<'g>(&'g Gather);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}

/// Applies [`tags::has`] to the bytes of a note.
fn has_tag(bytes: &[u8], wanted: &str, stopped: &dyn Fn() -> bool) -> Result<Option<bool>, Error> {
    let text = String::from_utf8_lossy(bytes);
    let front = crate::front::read(&text).unwrap_or_default();
    tags::has(&text, &front, wanted, stopped)
}
