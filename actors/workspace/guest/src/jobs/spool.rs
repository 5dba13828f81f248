//! Output store of a job: each stream is kept in a file up to a limit, and counted beyond it; or its
//! last bytes are, in [`segments`].

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::pipe::PipeFlags;

use super::dir::JobDir;
use super::segments;

/// Bytes that are taken at once.
const BUFFER_BYTES: usize = 64 * 1024;
/// Bytes that are taken although their stream is held back: the next buffer, and what the pipe holds when
/// nobody writes to it any more.
const SLACK_BYTES: u64 = 2 * BUFFER_BYTES as u64;

/// Both streams of a job.
#[derive(Debug)]
pub(super) struct Spool {
    streams: [Stream; 2],
    totals: PathBuf,
    totals_file: Option<File>,
}

#[derive(Debug)]
struct Stream {
    pipe: Option<File>,
    folder: PathBuf,
    name: &'static str,
    /// File of the kept bytes, made with the first byte.
    file: Option<File>,
    kept: Kept,
    room: u64,
    total: u64,
    /// Bytes that the reader has, if the stream is held back for one.
    read: Option<u64>,
}

/// Part of a stream that is kept.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kept {
    /// The first bytes.
    First(u64),
    /// The last bytes, in segments of this size.
    Last(u64),
}

impl Spool {
    /// Opens the spool of a job and the ends of its pipes that the job writes to.
    ///
    /// # Errors
    /// When no pipe can be made.
    pub(super) fn open(job: &JobDir, kept: Kept) -> io::Result<(Self, [OwnedFd; 2])> {
        let ((stdout, out), (stderr, err)) = (pipe()?, pipe()?);
        Ok((Self::reading(job, kept, Some(stdout), Some(stderr)), [out, err]))
    }

    /// Opens the spool of a process that writes to a terminal: one stream.
    pub(super) fn of_terminal(job: &JobDir, kept: Kept, master: File) -> Self {
        Self::reading(job, kept, Some(master), None)
    }

    fn reading(job: &JobDir, kept: Kept, stdout: Option<File>, stderr: Option<File>) -> Self {
        let stream = |name, pipe| {
            let folder = job.outputs().to_path_buf();
            let room = if let Kept::First(bytes) = kept { bytes } else { u64::MAX };
            Stream { pipe, folder, name, file: None, kept, room, total: 0, read: None }
        };
        let streams = [stream("stdout", stdout), stream("stderr", stderr)];
        Self { streams, totals: job.path().join("totals"), totals_file: None }
    }

    /// The pipes that are open and not held back.
    pub(super) fn pipes(&self) -> impl Iterator<Item = &File> {
        let streams = self.streams.iter().filter(|stream| !stream.is_held());
        streams.filter_map(|stream| stream.pipe.as_ref())
    }

    /// Holds back output that would drop bytes a reader does not have. `read` is what the reader has of each
    /// stream; `None` holds back nothing.
    pub(super) fn hold_for(&mut self, read: Option<[u64; 2]>) {
        for (nth, stream) in self.streams.iter_mut().enumerate() {
            stream.read = read.map(|read| read[nth]);
        }
    }

    /// Whether something is held back now.
    pub(super) fn is_held(&self) -> bool {
        self.streams.iter().any(Stream::is_held)
    }

    /// Bytes written to stdout and stderr, kept or not.
    pub(super) fn totals(&self) -> [u64; 2] {
        [self.streams[0].total, self.streams[1].total]
    }

    /// Takes what the pipes hold; at the end all of it, else one buffer each, so
    /// that a chatty stream does not keep its neighbour waiting.
    pub(super) fn drain(&mut self, all: bool) {
        let mut beyond = false;
        for stream in &mut self.streams {
            if all || !stream.is_held() {
                while stream.take() && all {}
            }
            beyond |= stream.room == 0 && stream.total > 0;
        }
        if beyond {
            // On a full disk it is made as soon as there is room again.
            if self.totals_file.is_none() {
                self.totals_file = File::create(&self.totals).ok();
            }
            if let Some(file) = &self.totals_file {
                let _ = file.write_all_at(&self.totals().map(u64::to_be_bytes).concat(), 0);
            }
        }
    }

    /// Makes durable what was kept, as far as the disk lets it.
    pub(super) fn sync(&self) {
        for file in self.streams.iter().filter_map(|stream| stream.file.as_ref()) {
            let _ = file.sync_all();
        }
    }
}

fn pipe() -> io::Result<(File, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((read.into(), write))
}

impl Stream {
    /// Keeps bytes, of which the first one is `at` in the stream.
    fn keep(&mut self, mut at: u64, mut bytes: &[u8]) -> io::Result<()> {
        let Kept::Last(segment_bytes) = self.kept else { return self.append(0, bytes) };
        let segment_bytes = segment_bytes.max(1);
        while !bytes.is_empty() {
            let (number, offset) = (at / segment_bytes, at % segment_bytes);
            if offset == 0 && number > 0 {
                self.file = None;
                if let Some(oldest) = number.checked_sub(2) {
                    std::fs::remove_file(segments::path(&self.folder, self.name, oldest))?;
                }
            }
            let left = usize::try_from(segment_bytes - offset).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(left.min(bytes.len()));
            self.append(number, now)?;
            (at, bytes) = (at + now.len() as u64, later);
        }
        Ok(())
    }

    fn append(&mut self, segment: u64, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                // No parent is made: the tasks' folder may have become another machine's.
                match std::fs::create_dir(&self.folder) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(error);
                    }
                    _ => {
                        none.insert(File::create(segments::path(&self.folder, self.name, segment))?)
                    }
                }
            }
        };
        file.write_all(bytes)
    }

    fn is_held(&self) -> bool {
        let (Kept::Last(bytes), Some(read)) = (self.kept, self.read) else { return false };
        let unread = self.total.saturating_sub(read);
        // Output that is not kept is not held back.
        self.room > 0 && self.pipe.is_some() && unread > bytes.saturating_sub(SLACK_BYTES)
    }

    /// Takes one buffer. Returns whether there may be more.
    fn take(&mut self) -> bool {
        let Some(pipe) = &mut self.pipe else { return false };
        let mut buffer = [0; BUFFER_BYTES];
        match pipe.read(&mut buffer) {
            Ok(0) => {
                self.pipe = None;
                false
            }
            Ok(n) => {
                let at = self.total;
                self.total += n as u64;
                let keep = usize::try_from(self.room).unwrap_or(usize::MAX).min(n);
                // On a full disk the output is counted on, as beyond the limit.
                if self.room > 0 {
                    let kept = self.keep(at, &buffer[..keep]);
                    self.room = kept.map_or(0, |()| self.room - keep as u64);
                }
                true
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::WouldBlock {
                    self.pipe = None;
                }
                false
            }
        }
    }
}
