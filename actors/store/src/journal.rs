//! Journal handle: appends, snapshots and reads of streams.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use crate::compact::Compacting;
use crate::copier::{self, BackupRequest};
use crate::error::IoContext;
use crate::index::{self, Replay};
use crate::open::{self, MigrationPlan, OpenedJournal, SHIPPED};
use crate::queue::{self, QueueSender};
use crate::request::{
    Append, AppendCallback, OnceCallback, ReplyPath, WriteOperation, WriteRequest,
};
use crate::shared::{self, JournalShared, JournalStats};
use crate::writer::{CallerEstimate, JournalWriter};
use crate::{Error, Events, NewEvent, Options, Recovered, Seq, StopReason, StreamId};

/// Handle on the journal; clones share it. The writer ends when the last handle is dropped.
///
/// Dropping the future of an `async` method cancels only the wait; what was already queued still
/// commits. Appends of one caller to one stream commit in the order in which they were first
/// polled.
#[derive(Clone)]
pub struct Journal {
    inner: Arc<Inner>,
}

struct Inner {
    inlet: QueueSender,
    /// Room in the queue: a permit per KiB of `queue_mb`.
    room: Arc<Semaphore>,
    shared: Arc<JournalShared>,
    options: Options,
}

impl Journal {
    /// Opens or creates the journal. Blocks for as long as it takes to copy and read the database:
    /// call it from `spawn_blocking`.
    /// [`Error::Unreadable`], [`Error::TooNew`] and [`Error::Locked`] leave every file as it was.
    pub fn open(options: Options) -> Result<(Journal, Recovered), Error> {
        Self::open_as(options, SHIPPED)
    }

    pub(crate) fn open_as(
        options: Options,
        plan: MigrationPlan,
    ) -> Result<(Journal, Recovered), Error> {
        let OpenedJournal { lock, committer, index, reserve, recovered } =
            open::open(&options, plan)?;
        let live_bytes = committer.live_bytes();
        let db = committer.db.clone();
        let shared = JournalShared::new(db, lock, options.dir.clone(), options.events_buffered);
        shared.oldest_event.store(index.events.oldest.get(), SeqCst);
        shared.last_event.store(index.events.last.get(), SeqCst);
        shared.counters.live_bytes.store(live_bytes, SeqCst);
        shared.counters.streams.store(index.streams.len() as u64, SeqCst);
        if let Some(compacted) = recovered.compacted {
            shared.compaction().done(compacted);
        }
        let shared = Arc::new(shared);
        let (inlet, intake) = queue::bounded(options.queue_records);
        let writer = JournalWriter {
            committer,
            index,
            reserve,
            options: options.clone(),
            shared: shared.clone(),
            intake,
            group: CallerEstimate::default(),
            compacting: Compacting::default(),
        };
        thread::Builder::new()
            .name("journal-writer".into())
            .spawn(move || writer.run())
            .doing("starting the writer")?;
        let room = Arc::new(Semaphore::new(options.queue_mb * 1024));
        Ok((Journal { inner: Arc::new(Inner { inlet, room, shared, options }) }, recovered))
    }

    /// Appends records to a stream, all or none; durable on return. Returns the number of the last
    /// record.
    pub async fn append(&self, stream: &StreamId, records: Vec<Vec<u8>>) -> Result<Seq, Error> {
        self.append_and_publish(stream, records, Vec::new()).await
    }

    /// Appends records and publishes events in the same commit: after a crash both are there or
    /// neither is.
    pub async fn append_and_publish(
        &self,
        stream: &StreamId,
        records: Vec<Vec<u8>>,
        events: Vec<NewEvent>,
    ) -> Result<Seq, Error> {
        self.ask(WriteOperation::Append { stream: stream.clone(), records, events }).await
    }

    /// Checks an append against the limits that would refuse it.
    ///
    /// # Errors
    /// `TooLarge`; `Invalid` for an append without records.
    pub fn check(&self, append: &Append) -> Result<(), Error> {
        append.check(&self.inner.options)
    }

    /// Appends and publishes for a caller that does not wait: `done` is called once, on the
    /// writer's thread, which it must not block, when the append is durable or has failed. There is
    /// no deadline: the outcome passed to `done` is final.
    ///
    /// Returns both arguments when there is no room at once.
    pub fn try_append(
        &self,
        append: Append,
        done: AppendCallback,
    ) -> Result<(), (Append, AppendCallback)> {
        let Append { stream, records, events } = append;
        let work = WriteOperation::Append { stream, records, events };
        if let Err(error) = work.check(&self.inner.options) {
            done(Err(error));
            return Ok(());
        }
        let room = self.inner.room.clone().try_acquire_many_owned(permits(&work));
        let then = OnceCallback::new(done);
        let refused = match room {
            Err(_none) => Some(work),
            Ok(room) => {
                let request =
                    WriteRequest { work, reply: Some(ReplyPath::Then(then.clone())), room };
                self.inner.inlet.try_ask(request).map(|request| request.work)
            }
        };
        if let Some(WriteOperation::Append { stream, records, events }) = refused
            && let Some(done) = then.take()
        {
            return Err((Append { stream, records, events }, done));
        }
        if self.inner.inlet.ended() {
            then.answer(Err(self.inner.shared.why_stopped()));
        }
        Ok(())
    }

    /// Fence: waits until everything queued before is on the disk or refused, including requests
    /// whose callers no longer wait. Call it before replaying a stream that another has written to.
    pub async fn settled(&self) -> Result<(), Error> {
        self.ask(WriteOperation::Fence).await.map(drop)
    }

    /// Replaces the stream's snapshot and its records up to and including `upto` by a new snapshot,
    /// durably and atomically. `upto` must not lie before the last snapshot or after the last
    /// record.
    pub async fn snapshot(
        &self,
        stream: &StreamId,
        upto: Seq,
        bytes: Vec<u8>,
    ) -> Result<(), Error> {
        self.ask(WriteOperation::Snapshot { stream: stream.clone(), upto, bytes }).await.map(drop)
    }

    /// Removes a whole stream, durably and atomically. A missing stream is no error. Its numbers
    /// start from 1 again.
    pub async fn forget(&self, stream: &StreamId) -> Result<(), Error> {
        self.ask(WriteOperation::Forget { stream: stream.clone() }).await.map(drop)
    }

    /// Reads a stream back. Blocks; for a stream's owner, at start-up. The stream must not be
    /// forgotten meanwhile.
    pub fn replay(&self, stream: &StreamId) -> Result<Replay, Error> {
        index::replay(&self.inner.shared.live()?.db, stream)
    }

    /// Reads records of a stream that has no snapshot behind a position, at most so many. Blocks, as [`Self::replay`].
    ///
    /// # Errors
    /// When they cannot be read, or one is missing.
    pub fn replay_behind(
        &self,
        stream: &StreamId,
        after: Seq,
        most: usize,
    ) -> Result<Vec<(Seq, Vec<u8>)>, Error> {
        index::replay_behind(&self.inner.shared.live()?.db, stream, after, most)
    }

    /// Lists the streams whose names start with `prefix`, sorted. Blocks: it walks the keys.
    pub fn streams(&self, prefix: &str) -> Result<Vec<StreamId>, Error> {
        let live = self.inner.shared.live()?;
        crate::index::streams(&live.db, prefix)
    }

    /// Event bus of this journal.
    pub fn events(&self) -> Events {
        Events::new(self.clone())
    }

    /// Makes a backup in the existing, empty folder `to`: a store of its own, at the state of some
    /// commit between the call and its return. Appends continue meanwhile. The copy was read back
    /// and is on the disk. Dropping the future gives the copy up.
    ///
    /// # Errors
    /// [`Error::Full`] without room for it; [`Error::Invalid`] while another backup waits, and for
    /// a folder that is not empty. After an error the caller removes the contents of `to`.
    pub async fn backup(&self, to: PathBuf) -> Result<(), Error> {
        copier::prepare_backup(&to)?;
        let (reply, mut answer) = oneshot::channel();
        self.inner.shared.order(BackupRequest { to, reply })?;
        // The writer looks for orders after each commit.
        self.settled().await?;
        let made = tokio::select! {
            biased;
            made = &mut answer => made.ok(),
            _ = self.stopped() => answer.try_recv().ok(),
        };
        made.unwrap_or_else(|| Err(self.inner.shared.why_stopped()))
    }

    /// Statistics. Blocks: it looks at the directory.
    pub fn stats(&self) -> JournalStats {
        shared::gather_stats(&self.inner.shared, &self.inner.options, self.inner.inlet.len())
    }

    /// Waits until the writer has stopped; the directory is free by then.
    pub async fn stopped(&self) -> StopReason {
        let mut watch = self.inner.shared.watch_stopped();
        let stopped = watch.wait_for(Option::is_some).await;
        stopped.ok().and_then(|stopped| stopped.clone()).unwrap_or(StopReason::Closed)
    }

    /// Commits what is queued, stops the writer and waits for it. Requests queued later are
    /// refused, on every handle.
    pub async fn close(&self) -> StopReason {
        // A writer that has stopped already gives its reason below.
        let _ = self.ask(WriteOperation::Close).await;
        self.stopped().await
    }

    pub(crate) async fn ask(&self, work: WriteOperation) -> Result<Seq, Error> {
        work.check(&self.inner.options)?;
        let after_secs = self.inner.options.append_timeout_secs;
        let asked = async {
            let room = self.inner.room.clone().acquire_many_owned(permits(&work)).await;
            let room = room.expect("the semaphore is never closed");
            let (reply, answer) = oneshot::channel();
            let request = WriteRequest { work, reply: Some(ReplyPath::Waiter(reply)), room };
            if !self.inner.inlet.ask(request).await {
                return Err(self.stopped().await.into());
            }
            self.answer(answer).await
        };
        let deadline = Duration::from_secs(after_secs);
        tokio::time::timeout(deadline, asked).await.unwrap_or(Err(Error::Timeout { after_secs }))
    }

    /// Waits for an answer, or for the end of the writer: a request queued at the very end is never
    /// handled.
    async fn answer(
        &self,
        mut answer: oneshot::Receiver<Result<Seq, Error>>,
    ) -> Result<Seq, Error> {
        let answered = tokio::select! {
            biased;
            answered = &mut answer => answered.ok(),
            _ = self.stopped() => answer.try_recv().ok(),
        };
        match answered {
            Some(answered) => answered,
            None => Err(self.stopped().await.into()),
        }
    }

    /// Queues work if there is room at once.
    pub(crate) fn try_tell(&self, work: WriteOperation) -> bool {
        let room = self.inner.room.clone();
        let Ok(room) = room.try_acquire_many_owned(permits(&work)) else { return false };
        self.inner.inlet.tell(WriteRequest { work, reply: None, room })
    }

    pub(crate) fn shared(&self) -> &Arc<JournalShared> {
        &self.inner.shared
    }

    pub(crate) fn options(&self) -> &Options {
        &self.inner.options
    }
}

/// Weight in KiB, at least one; `WriteOperation::check` keeps it within the semaphore.
fn permits(work: &WriteOperation) -> u32 {
    u32::try_from(work.weight().div_ceil(1024).max(1)).unwrap_or(u32::MAX)
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("dir", &self.inner.options.dir).finish_non_exhaustive()
    }
}
