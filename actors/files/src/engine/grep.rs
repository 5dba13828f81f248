//! Searching the contents of files by a regular expression, with ripgrep's libraries.

use std::{io, path::Path};

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt};
use cap_std::fs::{File, OpenOptions, OpenOptionsExt};
use globset::GlobMatcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch};
use hivekeep_kernel::{Layer, ToolError};
use rustix::fs::OFlags;
use tokio_util::sync::CancellationToken;

use super::{
    Unread,
    walk::{Step, walk},
};
use crate::{codes, place_path::PlacePath, places::Place};

/// Size of a line that is shown; the rest of it is cut.
const MAX_LINE_BYTES: usize = 500;
/// Size of all lines that are shown.
const MAX_SHOWN_BYTES: usize = 256 * 1024;
/// Size of a compiled pattern.
const MAX_PATTERN_BYTES: usize = 8 * 1024 * 1024;
/// Size of a line that is looked through; a file with a longer one is named as unread.
const MAX_HEAP_BYTES: usize = 16 * 1024 * 1024;

/// Wish of a search.
pub(crate) struct Search {
    pub(crate) pattern: String,
    pub(crate) ignore_case: bool,
    /// Only files whose path fits.
    pub(crate) glob: Option<GlobMatcher>,
    pub(crate) gitignore: bool,
    pub(crate) limit: usize,
}

/// Lines that a search found.
#[derive(Default)]
pub(crate) struct Lines {
    /// `path:line:content`, in the order of the walk.
    pub(crate) shown: Vec<String>,
    shown_bytes: usize,
    /// Number of all lines that match.
    pub(crate) total: u64,
    /// Number of files with one.
    pub(crate) files: u64,
    /// Number of binary files, which are searched up to their first NUL.
    pub(crate) binary: u64,
    pub(crate) unread: Unread,
}

/// Searches all files below `top`, or the file `top`. Goes on counting beyond the limit.
///
/// # Errors
/// `invalid_pattern`, and as for a walk.
pub(crate) fn grep(
    place: &Place,
    top: &PlacePath,
    search: &Search,
    stop: &CancellationToken,
) -> Result<Lines, ToolError> {
    let matcher = RegexMatcherBuilder::new()
        .case_insensitive(search.ignore_case)
        .line_terminator(Some(b'\n'))
        .size_limit(MAX_PATTERN_BYTES)
        .build(&search.pattern)
        .map_err(|error| {
            let message = format!("`{}` is not a valid pattern: {error}", search.pattern);
            ToolError::new(Layer::Actor, codes::INVALID_PATTERN, message)
        })?;
    let searcher = SearcherBuilder::new()
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(MAX_HEAP_BYTES))
        .build();
    let mut run = Run { matcher, searcher, limit: search.limit, stop, lines: Lines::default() };
    let root = place.root()?;
    if root.metadata(top.as_str()).is_ok_and(|metadata| metadata.is_file()) {
        let (file, _) = super::read::open(root, top)?;
        let mut unread = Unread::default();
        run.search(&file, Path::new(top.as_str()), &mut unread);
        run.lines.unread = unread;
        return Ok(run.lines);
    }
    let unread = walk(root, top, search.gitignore, stop, |step, unread| {
        let fits = search.glob.as_ref().is_none_or(|glob| glob.is_match(step.below));
        if !step.kind.is_file() || !fits {
            return;
        }
        match open(step) {
            Ok(Some(file)) => run.search(&file, step.path, unread),
            Ok(None) => {}
            Err(error) => unread.add(step.path, error),
        }
    })?;
    run.lines.unread = unread;
    Ok(run.lines)
}

/// Opens a file that the walk came by; `None` when something else stands there by now.
fn open(step: &Step<'_>) -> io::Result<Option<File>> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags).follow(FollowSymlinks::No);
    let file = step.folder.open_with(step.name, &options)?;
    Ok(file.metadata()?.is_file().then_some(file))
}

struct Run<'s> {
    matcher: RegexMatcher,
    searcher: Searcher,
    limit: usize,
    stop: &'s CancellationToken,
    lines: Lines,
}

impl Run<'_> {
    fn search(&mut self, file: &File, path: &Path, unread: &mut Unread) {
        let before = self.lines.total;
        let mut sink =
            LineSink { path, limit: self.limit, stop: self.stop, lines: &mut self.lines };
        if let Err(error) = self.searcher.search_reader(&self.matcher, file, &mut sink) {
            unread.add(path, error);
        }
        self.lines.files += u64::from(self.lines.total > before);
    }
}

struct LineSink<'s> {
    path: &'s Path,
    limit: usize,
    stop: &'s CancellationToken,
    lines: &'s mut Lines,
}

impl Sink for LineSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        let lines = &mut *self.lines;
        lines.total += 1;
        if lines.shown.len() < self.limit && lines.shown_bytes < MAX_SHOWN_BYTES {
            let content = found.bytes().trim_ascii_end();
            let cut = &content[..content.len().min(MAX_LINE_BYTES)];
            let more = if cut.len() < content.len() { " […]" } else { "" };
            let (path, text) = (self.path.display(), String::from_utf8_lossy(cut));
            let number = found.line_number().unwrap_or_default();
            let line = format!("{path}:{number}:{text}{more}");
            lines.shown_bytes += line.len();
            lines.shown.push(line);
        }
        Ok(!self.stop.is_cancelled())
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> Result<(), io::Error> {
        self.lines.binary += u64::from(finish.binary_byte_offset().is_some());
        Ok(())
    }
}
