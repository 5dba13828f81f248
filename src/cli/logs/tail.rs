//! The end of a log file that is rotated under its reader.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Interval between two looks at a followed file.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The most of the current file that is searched for its last lines.
const SEARCHED_BYTES: u64 = 32 * 1024 * 1024;

/// A reader at the end of a log.
pub(super) struct Tail {
    path: PathBuf,
    file: Option<BufReader<File>>,
    last: Vec<String>,
    /// The part of a line that was written so far.
    part: Vec<u8>,
}

impl Tail {
    /// Opens a log and keeps its last `lines` lines that are wanted.
    pub(super) fn open(
        path: &Path,
        lines: usize,
        wanted: impl Fn(&str) -> bool,
    ) -> io::Result<Self> {
        let mut tail =
            Self { path: path.to_owned(), file: None, last: Vec::new(), part: Vec::new() };
        let Some(mut file) = open(path)? else { return Ok(tail) };
        let length = file.metadata()?.len();
        if length > SEARCHED_BYTES {
            file.seek(SeekFrom::Start(length - SEARCHED_BYTES))?;
        }
        tail.file = Some(BufReader::new(file));
        let mut all = tail.read()?;
        if length > SEARCHED_BYTES && !all.is_empty() {
            // The first one may be cut.
            all.remove(0);
        }
        all.retain(|line| wanted(line));
        tail.last = all.split_off(all.len().saturating_sub(lines));
        Ok(tail)
    }

    /// The last lines, once.
    pub(super) fn last(&mut self) -> Vec<String> {
        std::mem::take(&mut self.last)
    }

    /// Returns the lines written since the last call; waits a moment first. Reads a rotated file to
    /// its end before the new one.
    pub(super) fn more(&mut self) -> io::Result<Vec<String>> {
        std::thread::sleep(LOOK_EVERY);
        let mut lines = self.read()?;
        if self.was_rotated()? {
            lines.extend(self.read()?);
            self.part.clear();
            self.file = open(&self.path)?.map(BufReader::new);
            lines.extend(self.read()?);
        }
        Ok(lines)
    }

    fn was_rotated(&self) -> io::Result<bool> {
        let now = match std::fs::metadata(&self.path) {
            Ok(now) => now,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let Some(file) = &self.file else { return Ok(true) };
        let own = file.get_ref().metadata()?;
        Ok((own.dev(), own.ino()) != (now.dev(), now.ino()))
    }

    fn read(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        let Some(file) = &mut self.file else { return Ok(lines) };
        loop {
            file.read_until(b'\n', &mut self.part)?;
            if self.part.last() != Some(&b'\n') {
                return Ok(lines);
            }
            self.part.pop();
            lines.push(String::from_utf8_lossy(&self.part).into_owned());
            self.part.clear();
        }
    }
}

fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_are_followed_through_a_rotation_and_never_cut() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("log");
        std::fs::write(&path, "1\n2\n3\npart").expect("writes");
        let mut tail = Tail::open(&path, 2, |_| true).expect("opens");
        assert_eq!(tail.last(), ["2", "3"]);
        let mut file = File::options().append(true).open(&path).expect("opens");
        writeln!(file, "ial").expect("writes");
        assert_eq!(tail.more().expect("reads"), ["partial"]);
        writeln!(file, "before").expect("writes");
        std::fs::rename(&path, dir.path().join("log.1")).expect("renames");
        std::fs::write(&path, "after\n").expect("writes");
        assert_eq!(tail.more().expect("reads"), ["before", "after"]);
    }

    #[test]
    fn a_log_that_is_not_there_yet_can_be_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("log");
        let mut tail = Tail::open(&path, 5, |_| true).expect("opens");
        std::fs::write(&path, "first\n").expect("writes");
        assert_eq!(tail.more().expect("reads"), ["first"]);
    }
}
