//! Output store of a job: each stream is kept in a file up to a limit, and counted beyond it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::pipe::PipeFlags;

use super::dir::JobDir;

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
    path: PathBuf,
    /// Made with the first byte.
    file: Option<File>,
    room: u64,
    total: u64,
}

impl Spool {
    /// Opens the spool of a job, which keeps so many bytes of each stream, and the ends of its pipes
    /// that the job writes to.
    ///
    /// # Errors
    /// When no pipe can be made.
    pub(super) fn open(job: &JobDir, bytes: u64) -> io::Result<(Self, [OwnedFd; 2])> {
        let (stdout, out) = Stream::open(job.outputs().join("stdout"), bytes)?;
        let (stderr, err) = Stream::open(job.outputs().join("stderr"), bytes)?;
        let totals = job.path().join("totals");
        Ok((Self { streams: [stdout, stderr], totals, totals_file: None }, [out, err]))
    }

    /// The pipes that are open.
    pub(super) fn pipes(&self) -> impl Iterator<Item = &File> {
        self.streams.iter().filter_map(|stream| stream.pipe.as_ref())
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
            while stream.take() && all {}
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

impl Stream {
    fn open(path: PathBuf, room: u64) -> io::Result<(Self, OwnedFd)> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&read, true)?;
        Ok((Self { pipe: Some(read.into()), path, file: None, room, total: 0 }, write))
    }

    fn keep(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                // Nothing above: the tasks' folder may have become another machine's.
                match std::fs::create_dir(self.path.parent().unwrap_or(Path::new("/"))) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(error);
                    }
                    _ => none.insert(File::create(&self.path)?),
                }
            }
        };
        file.write_all(bytes)
    }

    /// Takes one buffer. Returns whether there may be more.
    fn take(&mut self) -> bool {
        let Some(pipe) = &mut self.pipe else { return false };
        let mut buffer = [0; 64 * 1024];
        match pipe.read(&mut buffer) {
            Ok(0) => {
                self.pipe = None;
                false
            }
            Ok(n) => {
                self.total += n as u64;
                let keep = usize::try_from(self.room).unwrap_or(usize::MAX).min(n);
                // On a full disk the output is counted on, as beyond the limit.
                if self.room > 0 {
                    let kept = self.keep(&buffer[..keep]);
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
