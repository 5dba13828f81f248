//! Workers of a search: chunks of notes are taken, read and matched until enough was found.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use cap_std::fs::Dir;
use grep_searcher::Searcher;

use super::gather::{Gather, Part};
use super::matcher::{CompiledQuery, Room, Unanswered};
use super::{CHUNK, RESULT_BYTES, SearchCallbacks, SearchParams, SkippedNote};
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
    pub(super) next: AtomicUsize,
    pub(super) looked_at: AtomicUsize,
    pub(super) late: AtomicBool,
    pub(super) gather: Gather,
    pub(super) watch: &'j SearchCallbacks<'j>,
}

impl Job<'_> {
    /// Takes chunks until there are none, or enough was found.
    pub(super) fn work(&self, reports: bool) {
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
            let mut part = Part::default();
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
        searcher: &mut Searcher,
        part: &mut Part,
    ) -> ControlFlow<()> {
        let path = || format!("{}{note}", self.prefix);
        // A hit beyond the limit shows that there are more.
        let room = Room {
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
        let path = || NotePath::parse(note);
        if self.open.as_ref().is_none_or(|(open, _)| open != folder) {
            let dir = self.folder.dir(&self.root.join(&NotePath::parse(folder)?)?)?;
            self.open = Some((folder.to_owned(), dir));
        }
        let (_, dir) = self.open.as_ref().expect("it was just opened");
        read_at(dir, name, &path()?, self.folder.max_note_bytes, &mut self.bytes)?;
        unify(&mut self.bytes);
        Ok(&self.bytes)
    }
}

/// Turns each `\r\n` into `\n`.
fn unify(bytes: &mut Vec<u8>) {
    let Some(first) = memchr::memchr(b'\r', bytes) else { return };
    let (mut to, mut from) = (first, first);
    while from < bytes.len() {
        if !(bytes[from] == b'\r' && bytes.get(from + 1) == Some(&b'\n')) {
            bytes[to] = bytes[from];
            to += 1;
        }
        from += 1;
    }
    bytes.truncate(to);
}
