//! Workers of a search: chunks of notes are taken, read and matched until enough was found.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use cap_std::fs::Dir;
use grep_searcher::Searcher;
use hivekeep_kernel::lock;

use super::matcher::{CompiledQuery, Room, Unanswered};
use super::{CHUNK, Found, RESULT_BYTES, SearchCallbacks, SearchParams};
use crate::folder::{VaultFolder, read_at};
use crate::ops::VaultView;
use crate::path::NotePath;
use crate::{Error, tags};

/// State shared by the workers.
pub(super) struct Job<'j> {
    pub(super) vault: &'j VaultView,
    pub(super) ask: &'j SearchParams<'j>,
    pub(super) question: &'j CompiledQuery,
    pub(super) prefix: &'j str,
    pub(super) notes: &'j [String],
    pub(super) began: Instant,
    pub(super) watch: &'j SearchCallbacks<'j>,
    pub(super) found: Mutex<Found>,
    pub(super) next: AtomicUsize,
    pub(super) looked_at: AtomicUsize,
    pub(super) late: AtomicBool,
}

impl Job<'_> {
    /// Takes chunks until there are none, or enough was found.
    pub(super) fn work(&self, reports: bool) {
        let mut reader = Reader::new(&self.vault.folder, &self.ask.at);
        let mut searcher = self.question.searcher();
        let mut reported = self.began;
        let chunks = std::iter::repeat_with(|| self.next.fetch_add(CHUNK, Relaxed));
        let chunks = chunks.take_while(|first| *first < self.notes.len());
        for nth in chunks.flat_map(|first| first..self.notes.len().min(first + CHUNK)) {
            // Notes behind this one are not needed either.
            if self.is_over() || !self.found().first.wants(&nth) {
                return;
            }
            if self.look(nth, &mut reader, &mut searcher).is_break() {
                return;
            }
            self.looked_at.fetch_add(1, Relaxed);
            if reports && reported.elapsed() >= self.watch.every {
                reported = Instant::now();
                (self.watch.progress)(self.looked_at.load(Relaxed), self.notes.len());
            }
        }
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        lock(&self.found)
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
        nth: usize,
        reader: &mut Reader<'_>,
        searcher: &mut Searcher,
    ) -> ControlFlow<()> {
        let note = &self.notes[nth];
        let path = || format!("{}{note}", self.prefix);
        let room = Room {
            // A hit beyond the limit shows that there are more.
            hits: self.ask.max_results + 1,
            bytes: RESULT_BYTES,
            context_lines: self.ask.context_lines,
        };
        let skip = |reason| {
            self.found().skip(path(), reason);
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
        let mut found = self.found();
        found.searched += 1;
        found.first.add(&nth, hits);
        ControlFlow::Continue(())
    }
}

/// Applies [`tags::has`] to the bytes of a note.
fn has_tag(bytes: &[u8], wanted: &str, stopped: &dyn Fn() -> bool) -> Result<Option<bool>, Error> {
    let text = String::from_utf8_lossy(bytes);
    let front = crate::front::read(&text).unwrap_or_default();
    tags::has(&text, &front, wanted, stopped)
}

/// Reader that keeps the folder of the last note open, and reuses its buffer.
struct Reader<'f> {
    folder: &'f VaultFolder,
    root: &'f NotePath,
    open: Option<(String, Dir)>,
    bytes: Vec<u8>,
}

impl<'f> Reader<'f> {
    fn new(folder: &'f VaultFolder, root: &'f NotePath) -> Self {
        Self { folder, root, open: None, bytes: Vec::new() }
    }

    /// Reads a note by its path below the root. Lines end in `\n` alone, so that `$` means the same
    /// in every note.
    fn read(&mut self, note: &str) -> Result<&[u8], Error> {
        let (folder, name) = note.rsplit_once('/').unwrap_or(("", note));
        if self.open.as_ref().is_none_or(|(open, _)| open != folder) {
            let dir = self.folder.dir(&self.root.join(&NotePath::parse(folder)?)?)?;
            self.open = Some((folder.to_owned(), dir));
        }
        let (_, dir) = self.open.as_ref().expect("it was just opened");
        read_at(dir, name, &NotePath::parse(note)?, self.folder.max_note_bytes, &mut self.bytes)?;
        unify(&mut self.bytes);
        Ok(&self.bytes)
    }
}

/// Turns each `\r\n` into `\n`.
fn unify(bytes: &mut Vec<u8>) {
    if memchr::memchr(b'\r', bytes).is_none() {
        return;
    }
    bytes.dedup_by(|now, before| {
        let is_end = (*before, *now) == (b'\r', b'\n');
        if is_end {
            *before = b'\n';
        }
        is_end
    });
}
