//! Group commit: the one thread that writes the files in the state folder.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufReader, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::json;

use crate::{
    Entry, Error, Head, Options,
    chain::{push_line, split_line},
    entry::TRIMMED,
    files::{Lines, Segment, Segments, TailFile},
    log::{Batch, LogShared},
};

const MIB: u64 = 1024 * 1024;
/// Pause before a failed sync is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Length of the file `head`: padded, so that a shorter head leaves no rest of a longer one.
const HEAD_BYTES: usize = 128;

/// The files in the state folder.
pub(crate) struct SegmentWriter {
    state: PathBuf,
    sync: Duration,
    segment_bytes: u64,
    keep_bytes: u64,
    /// The newest file and its size; none before the first line.
    segment: Option<(File, PathBuf, u64)>,
    head_file: File,
    /// The tail of the batch that was taken; emptied once that is synced.
    taken: TailFile,
}

/// State of the log as a start found it.
pub(crate) struct FoundLog {
    pub(crate) head: Head,
    /// Bytes of half a line behind the last whole line, which were removed.
    pub(crate) mended_bytes: u64,
    /// Stored head, where the log does not reach it.
    pub(crate) cut: Option<Head>,
}

/// Starts the thread.
pub(crate) fn start(
    worker: SegmentWriter,
    shared: Arc<LogShared>,
) -> Result<JoinHandle<()>, Error> {
    let path = worker.state.clone();
    let named = thread::Builder::new().name("audit-writer".to_owned());
    named.spawn(move || worker.run(&shared)).map_err(Error::io(path))
}

impl SegmentWriter {
    /// Opens the files, mends the end of the last one, and appends the further lines of the tails. One of
    /// the tails is for new lines then.
    pub(crate) fn recover(
        state: &Path,
        options: &Options,
        [taken, mut tail]: [TailFile; 2],
    ) -> Result<(Self, TailFile, FoundLog), Error> {
        let head_path = Segments::head(state);
        let told = Segments::stored_head(state)?;
        let mut how = OpenOptions::new();
        how.create(true).write(true).truncate(false).mode(0o600);
        let head_file = how.open(&head_path).map_err(Error::io(&head_path))?;
        let mut worker = Self {
            state: state.to_owned(),
            sync: Duration::from_millis(options.sync_ms),
            segment_bytes: options.segment_mb * MIB,
            keep_bytes: options.keep_mb * MIB,
            segment: None,
            head_file,
            taken,
        };
        let (mut head, mended_bytes) = worker.last_entry()?;
        let mut batch = Batch { first: head.seq + 1, lines: Vec::new() };
        for line in TailFile::continuing([&worker.taken, &tail], head)? {
            let hash = push_line(&mut batch.lines, head.hash, |json| json.extend(&line.json));
            head = Head { seq: line.seq, hash };
        }
        worker.write(&batch, head)?;
        worker.taken.clear()?;
        tail.clear()?;
        let cut = told.filter(|told| told.seq > head.seq);
        Ok((worker, tail, FoundLog { head, mended_bytes, cut }))
    }

    /// Finds the last entry, and removes half a line behind it.
    fn last_entry(&mut self) -> Result<(Head, u64), Error> {
        let mut mended = 0;
        for Segment { path, bytes, .. } in Segments::list(&self.state)?.into_iter().rev() {
            let file = File::open(&path).map_err(Error::io(&path))?;
            let (mut last, mut whole_bytes) = (None, 0);
            for line in Lines::new(path.clone(), BufReader::new(file)) {
                let line = line?;
                if line.whole {
                    whole_bytes += line.bytes.len() as u64 + 1;
                    last = Some(line.bytes);
                }
            }
            let file = append_to(&path)?;
            if whole_bytes < bytes {
                file.set_len(whole_bytes).map_err(Error::io(&path))?;
                mended += bytes - whole_bytes;
            }
            if let Some(last) = last {
                let unreadable = || Error::Unreadable { path: path.clone() };
                let (hash, json) = split_line(&last).ok_or_else(unreadable)?;
                let entry: Entry = serde_json::from_slice(json).map_err(|_| unreadable())?;
                self.segment = Some((file, path, whole_bytes));
                return Ok((Head { seq: entry.seq, hash }, mended));
            }
            fs::remove_file(&path).map_err(Error::io(&path))?;
        }
        Ok((Head::START, mended))
    }

    fn run(mut self, shared: &LogShared) {
        loop {
            let closing = self.wait(shared);
            let Some((batch, head)) = self.take(shared) else {
                if closing {
                    self.empty(shared);
                    return;
                }
                continue;
            };
            while let Err(error) = self.write(&batch, head) {
                tracing::error!(%error, "the audit log is not synced");
                if shared.lock().closing {
                    // The tail has the batch for the next start.
                    return;
                }
                thread::sleep(RETRY);
            }
            self.synced(shared, head);
            if let Err(error) = self.trim(shared) {
                tracing::error!(%error, "the audit log is not trimmed");
            }
        }
    }

    /// Waits for a batch and gives it time to grow. True when the log is closing.
    fn wait(&self, shared: &LogShared) -> bool {
        let idle =
            |state: &mut crate::log::LogState| state.batch.lines.is_empty() && !state.closing;
        let state = shared.lock();
        let Ok(state) = shared.changed.wait_while(state, idle) else { return true };
        if state.closing {
            return true;
        }
        let growing = |state: &mut crate::log::LogState| !state.closing;
        match shared.changed.wait_timeout_while(state, self.sync, growing) {
            Ok((state, _)) => state.closing,
            Err(_) => true,
        }
    }

    fn write(&mut self, batch: &Batch, head: Head) -> Result<(), Error> {
        if batch.lines.is_empty() {
            return Ok(());
        }
        if self.segment.as_ref().is_none_or(|(.., bytes)| *bytes >= self.segment_bytes) {
            let path = Segments::path(&self.state, batch.first);
            let file = append_to(&path)?;
            // Removes what a failed attempt left in the file.
            file.set_len(0).map_err(Error::io(&path))?;
            hivekeep_fs::sync_folder(&self.state).map_err(Error::io(&self.state))?;
            self.segment = Some((file, path, 0));
        }
        let Some((file, path, bytes)) = &mut self.segment else { return Ok(()) };
        let written = file.write_all(&batch.lines).and_then(|()| file.sync_data());
        if let Err(source) = written {
            // Written again as a whole; half a line that stays is mended by the next start.
            let _ = file.set_len(*bytes);
            return Err(Error::Io { path: path.clone(), source });
        }
        *bytes += batch.lines.len() as u64;
        let text = format!("{:<width$}\n", head.to_string(), width = HEAD_BYTES - 1);
        // Not synced: it may be behind, and tells of a cut all the same.
        self.head_file
            .write_all_at(text.as_bytes(), 0)
            .map_err(Error::io(Segments::head(&self.state)))
    }

    /// Takes the batch with its tail, and leaves the other one for new lines.
    fn take(&mut self, shared: &LogShared) -> Option<(Batch, Head)> {
        let mut state = shared.lock();
        if state.batch.lines.is_empty() {
            return None;
        }
        std::mem::swap(&mut state.tail, &mut self.taken);
        state.taken_bytes = state.batch.lines.len();
        Some((std::mem::take(&mut state.batch), state.head))
    }

    fn synced(&mut self, shared: &LogShared, head: Head) {
        if let Err(error) = self.taken.rewind() {
            // Its lines are known to be in the log by their numbers.
            tracing::warn!(%error, "a tail of the audit log is not emptied");
        }
        let mut state = shared.lock();
        (state.taken_bytes, state.settled) = (0, head.seq);
        drop(state);
        shared.settled.notify_all();
    }

    /// Leaves nothing in the tails when all is in the state folder.
    fn empty(&mut self, shared: &LogShared) {
        let mut state = shared.lock();
        if state.batch.lines.is_empty() {
            for tail in [&mut self.taken, &mut state.tail] {
                if let Err(error) = tail.clear() {
                    tracing::warn!(%error, "a tail of the audit log is not emptied");
                }
            }
        }
    }

    /// Removes the oldest files beyond what is kept, once the log says so.
    fn trim(&self, shared: &LogShared) -> Result<(), Error> {
        let segments = Segments::list(&self.state)?;
        let mut bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        let mut gone = 0;
        while bytes > self.keep_bytes && gone + 1 < segments.len() {
            bytes -= segments[gone].bytes;
            gone += 1;
        }
        if gone == 0 {
            return Ok(());
        }
        let kept = &segments[gone];
        let file = File::open(&kept.path).map_err(Error::io(&kept.path))?;
        let line = Lines::new(kept.path.clone(), BufReader::new(file)).next().transpose()?;
        let unreadable = || Error::Unreadable { path: kept.path.clone() };
        let line = line.ok_or_else(unreadable)?;
        let (hash, _) = split_line(&line.bytes).ok_or_else(unreadable)?;
        shared.append(TRIMMED, &json!({ "first": kept.first, "first_hash": hash.to_string() }))?;
        // The entry is in the tail at least, which the next start brings in before anything else.
        for segment in &segments[..gone] {
            fs::remove_file(&segment.path).map_err(Error::io(&segment.path))?;
        }
        Ok(())
    }
}

fn append_to(path: &Path) -> Result<File, Error> {
    let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    opened.map_err(Error::io(path))
}
