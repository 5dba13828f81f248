//! Searching the contents of files by a regular expression, with ripgrep's libraries.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use globset::GlobMatcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch};
use serde::{Deserialize, Serialize};

use crate::{
    FileError, FileErrorKind, FileRoot, Stop, Unread, glob, read,
    walk::{self, Step, Visit},
    workers::{FirstShown, UnreadPaths},
};

/// Size of a line that is shown; the rest of it is cut.
const MAX_LINE_BYTES: usize = 500;
/// Size of all lines that are shown.
const MAX_SHOWN_BYTES: usize = 256 * 1024;
/// Size of a compiled pattern.
const MAX_PATTERN_BYTES: usize = 8 * 1024 * 1024;
/// Size of a line that is looked through; a file with a longer one is named as unread.
const MAX_HEAP_BYTES: usize = 16 * 1024 * 1024;

/// Searches all files below a folder, or one file. Goes on counting beyond the limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepFiles {
    /// Folder or file.
    pub path: String,
    /// Regular expression in the syntax of Rust's crate `regex`.
    pub pattern: String,
    /// Take upper and lower case as the same.
    pub ignore_case: bool,
    /// Only files whose path fits this glob pattern.
    pub glob: Option<String>,
    /// Leave out what the `.gitignore` files below the folder exclude, and `.git`.
    pub gitignore: bool,
    /// Maximum number of lines that are returned; all lines have at most 256 KiB together.
    pub limit: usize,
}

/// Lines that a search found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLines {
    /// `path:line:content`, in order of the paths, name by name.
    pub shown: Vec<String>,
    /// Number of all lines that match.
    pub total: u64,
    /// Number of files with one.
    pub files: u64,
    /// Number of binary files, which are searched up to their first NUL.
    pub binary: u64,
    /// Paths that could not be read, then the binary files, which were not read whole.
    pub unread: Unread,
}

/// # Errors
/// `InvalidPattern`, and as for a walk.
pub(crate) fn grep(
    root: &FileRoot,
    asked: &GrepFiles,
    stop: Stop<'_>,
) -> Result<FoundLines, FileError> {
    let matcher = RegexMatcherBuilder::new()
        .case_insensitive(asked.ignore_case)
        // A pattern with `^` is then searched in many lines at once.
        .multi_line(true)
        .line_terminator(Some(b'\n'))
        .size_limit(MAX_PATTERN_BYTES)
        .build(&asked.pattern)
        .map_err(|error| {
            let message = format!("`{}` is not a valid pattern: {error}", asked.pattern);
            FileError::new(FileErrorKind::InvalidPattern, message)
        })?;
    let only = asked.glob.as_deref().map(glob::matcher).transpose()?;
    let run = Run { matcher: &matcher, only: only.as_ref(), limit: asked.limit, stop };
    let path = root.path(&asked.path)?;
    let top = root.followed(&path)?;
    if root.dir().metadata(top.as_str()).is_ok_and(|metadata| metadata.is_file()) {
        let (file, _) = read::open(root, &top)?;
        let (mut worker, mut unread) = (Worker::new(run), UnreadPaths::default());
        worker.search(&file.into_std(), &path.shown(), &mut unread);
        return Ok(worker.told(unread.told()));
    }
    let new = || Worker::new(run);
    let (found, unread) = walk::walk(root.dir(), &top, asked.gitignore, stop, new)?;
    Ok(found.told(unread))
}

/// Parameters of a search.
#[derive(Clone, Copy)]
struct Run<'s> {
    matcher: &'s RegexMatcher,
    only: Option<&'s GlobMatcher>,
    limit: usize,
    stop: Stop<'s>,
}

/// Worker of a search, with its findings.
struct Worker<'s> {
    run: Run<'s>,
    searcher: Searcher,
    first: FirstShown<PathBuf, String>,
    /// Counts; what is shown and unread comes at the end.
    found: FoundLines,
    binary: UnreadPaths,
}

impl<'s> Worker<'s> {
    fn new(run: Run<'s>) -> Self {
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_HEAP_BYTES))
            .build();
        let first = FirstShown::new(run.limit, MAX_SHOWN_BYTES, String::len);
        Self { run, searcher, first, found: FoundLines::default(), binary: UnreadPaths::default() }
    }

    fn search(&mut self, file: &File, path: &Path, unread: &mut UnreadPaths) {
        let before = self.found.total;
        let mut reader = TextReader { file, stop: self.run.stop, at: 0, nul: None, wide: false };
        let (shows, found) = (self.first.wants(path), &mut self.found);
        let (lines, bytes) = (Vec::new(), 0);
        let mut sink = LineSink { path, shows, first: &self.first, lines, bytes, found, nul: None };
        if let Err(error) = self.searcher.search_reader(self.run.matcher, &mut reader, &mut sink) {
            unread.add(path, error);
        }
        let (lines, nul) = (sink.lines, reader.nul.or(sink.nul));
        if let Some(at) = nul {
            self.found.binary += 1;
            self.binary
                .add(path, format_args!("binary, searched up to its first NUL, at byte {at}"));
        }
        self.first.add(path, lines);
        self.found.files += u64::from(self.found.total > before);
    }

    fn told(self, unread: Unread) -> FoundLines {
        let unread = unread.and(self.binary.told());
        FoundLines { shown: self.first.shown(), unread, ..self.found }
    }
}

impl Visit for Worker<'_> {
    fn visit(&mut self, step: &Step<'_>, unread: &mut UnreadPaths) {
        let fits = self.run.only.is_none_or(|glob| glob.is_match(step.below));
        if !step.kind.is_file() || !fits {
            return;
        }
        match read::open_file(step.folder, step.name) {
            Ok(Some((file, _))) => self.search(&file.into_std(), step.path, unread),
            Ok(None) => {}
            Err(error) => unread.add(step.path, error),
        }
    }

    fn join(&mut self, other: Self) {
        self.first.join(other.first);
        self.found.total += other.found.total;
        self.found.files += other.found.files;
        self.found.binary += other.found.binary;
        self.binary.join(other.binary);
    }
}

/// A file that ends at its first NUL, which in UTF-16 is half a letter, and when nobody waits for what is in it.
struct TextReader<'s> {
    file: &'s File,
    stop: Stop<'s>,
    /// Bytes before what is read next.
    at: usize,
    nul: Option<usize>,
    /// True if the file begins as UTF-16 does. The searcher, which decodes it, ends at a letter that is NUL.
    wide: bool,
}

impl Read for TextReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.nul.is_some() || (self.stop)() {
            return Ok(0);
        }
        let count = self.file.read(buffer)?;
        let read = buffer.get(..count).unwrap_or_default();
        if self.at == 0 {
            self.wide = read.starts_with(b"\xff\xfe") || read.starts_with(b"\xfe\xff");
        }
        let nul = memchr::memchr(0, read).filter(|_| !self.wide);
        self.nul = nul.map(|nul| self.at + nul);
        self.at += count;
        Ok(nul.unwrap_or(count))
    }
}

struct LineSink<'s> {
    path: &'s Path,
    /// Whether lines of this file may be shown.
    shows: bool,
    first: &'s FirstShown<PathBuf, String>,
    lines: Vec<String>,
    bytes: usize,
    found: &'s mut FoundLines,
    nul: Option<usize>,
}

impl Sink for LineSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.found.total += 1;
        if self.shows && !self.first.is_enough(self.lines.len(), self.bytes) {
            let content = found.bytes().trim_ascii_end();
            let cut = &content[..content.len().min(MAX_LINE_BYTES)];
            let more = if cut.len() < content.len() { " […]" } else { "" };
            let (path, text) = (self.path.display(), String::from_utf8_lossy(cut));
            let number = found.line_number().unwrap_or_default();
            let line = format!("{path}:{number}:{text}{more}");
            self.bytes += line.len();
            self.lines.push(line);
        }
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> Result<(), io::Error> {
        self.nul = finish.binary_byte_offset().and_then(|at| usize::try_from(at).ok());
        Ok(())
    }
}
