//! Copier thread: makes a copy of the database while the journal runs, for a compaction or a backup, and cleans
//! up after it.
//!
//! ```text
//! writer ── begin ──▶ copies, follows the commits ──▶ DatabaseCopy ──▶ writer finishes it
//! writer ◀── ended ── closes and removes what is left over ◀── what that is ──┘
//! ```
//!
//! Closing a database and removing its files takes longer than a commit may wait, so the writer
//! returns both to this thread. The writer begins the next copy when the thread has ended.
//!
//! An online backup is a copy in a folder of its own, brought up to one commit, with its own `STORE` and `HEAD`
//! that describe it as the original's do.
//!
//! ```text
//! Journal::backup ── BackupRequest ──▶ writer ── begin ──▶ copier, as for a compaction
//!                                      writer ◀── DatabaseCopy ── copier
//!        finishes it between two commits ── leave ──▶ closes, names and syncs it, answers
//! ```
//!
//! Only one copy is made at a time: a backup waits while the journal is compacted, and a compaction
//! while a backup is made.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;

use crate::commit::Commit;
use crate::database::{self, Database};
use crate::database_copy::{self, DatabaseCopy, DirtyKeys};
use crate::error::IoContext;
use crate::open::JOURNAL_DIR;
use crate::state_files::{HeadFile, StoreIdentity};
use crate::writer::JournalWriter;
use crate::{Error, Options, fsx};

/// Clean-up left to do once the writer has taken or rejected the copy.
type CopyCleanup = Box<dyn FnOnce() + Send>;

/// Handle of the writer on a copy in the making.
pub(crate) struct Copier {
    pub(crate) mirror: Arc<DirtyKeys>,
    made: Receiver<Result<DatabaseCopy, Error>>,
    rest: Sender<CopyCleanup>,
    thread: JoinHandle<()>,
}

/// Progress of the copier.
pub(crate) enum CopyProgress {
    /// Making the copy, or cleaning up.
    Busy,
    Made(Box<DatabaseCopy>),
    Failed(Error),
    /// Finished, with nothing left to do.
    Ended,
}

impl Copier {
    /// Begins to copy `source` to `to`. Every commit from now on must be noted in the mirror.
    pub(crate) fn begin(
        source: Arc<Database>,
        to: PathBuf,
        options: Options,
    ) -> Result<Self, Error> {
        let mirror = Arc::new(DirtyKeys::default());
        let ((done, made), (rest, rests)) = (channel(), channel());
        let thread_mirror = mirror.clone();
        let thread = thread::Builder::new()
            .name("journal-copier".into())
            .spawn(move || run(source, &thread_mirror, &to, &options, done, &rests))
            .doing("starting the copier")?;
        Ok(Copier { mirror, made, rest, thread })
    }

    pub(crate) fn progress(&self) -> CopyProgress {
        match self.made.try_recv() {
            Ok(Ok(copy)) => CopyProgress::Made(Box::new(copy)),
            Ok(Err(error)) => CopyProgress::Failed(error),
            Err(TryRecvError::Disconnected) if self.thread.is_finished() => CopyProgress::Ended,
            Err(_) => CopyProgress::Busy,
        }
    }

    /// Passes the clean-up to the thread.
    pub(crate) fn leave(&self, rest: impl FnOnce() + Send + 'static) {
        // If the thread is gone, the next start cleans up.
        let _ = self.rest.send(Box::new(rest));
    }

    /// Stops the thread, and the copy with it if nobody has taken it.
    pub(crate) fn stop(self) {
        let Copier { mirror, made, rest, thread } = self;
        mirror.end("the journal closes");
        drop((made, rest));
        // A panic there was caught and logged.
        let _ = thread.join();
    }
}

fn run(
    source: Arc<Database>,
    mirror: &DirtyKeys,
    to: &Path,
    options: &Options,
    made: Sender<Result<DatabaseCopy, Error>>,
    rests: &Receiver<CopyCleanup>,
) {
    let copy = database::guarded(|| database_copy::copy(&source, mirror, to, options));
    drop(source);
    if copy.is_err() {
        remove(to);
        // The receiver is gone when the journal closes.
        let _ = made.send(copy);
        return;
    }
    // A copy that nobody takes is closed before its files are removed.
    drop(made.send(copy));
    drop(made);
    match rests.recv() {
        Ok(rest) => rest(),
        Err(_) => remove(to),
    }
}

/// Removes a directory; on failure the next start removes it.
pub(crate) fn remove(dir: &Path) {
    if let Err(error) = fsx::remove_tree(dir) {
        tracing::warn!(%error, dir = %dir.display(), "leftovers of a compaction could not be removed");
    }
}

/// Order for a backup, with a caller that waits.
pub(crate) struct BackupRequest {
    /// Target folder, which is empty.
    pub(crate) to: PathBuf,
    pub(crate) reply: oneshot::Sender<Result<(), Error>>,
}

impl BackupRequest {
    /// Answers the caller; without one the copy is removed.
    pub(crate) fn answer(self, made: Result<(), Error>) {
        if let Err(Ok(())) = self.reply.send(made) {
            remove(&self.to.join(JOURNAL_DIR));
        }
    }
}

impl JournalWriter {
    /// Begins the backup that was ordered, if any.
    pub(crate) fn begin_backup(&mut self) -> Option<(Copier, BackupRequest)> {
        let order = self.shared.take_order()?;
        let begun = || {
            database_copy::room_for(&order.to, self.committer.live_bytes())?;
            let to = order.to.join(JOURNAL_DIR);
            Copier::begin(self.committer.db.clone(), to, self.options.clone())
        };
        match begun() {
            Ok(copier) => Some((copier, order)),
            Err(error) => {
                order.answer(Err(error));
                None
            }
        }
    }

    /// Brings the copy up to the last commit; the copier's thread does the rest.
    pub(crate) fn finish_backup(
        &mut self,
        mut copy: DatabaseCopy,
        copier: &Copier,
        order: BackupRequest,
    ) {
        let committer = &mut self.committer;
        let (mirror, at) = (committer.mirror.take().unwrap_or_default(), committer.last());
        let finished = database::guarded(|| copy.finish(&committer.db, &mirror, at));
        let identity = self.options.dir.clone();
        copier.leave(move || {
            let made = finished.and_then(|()| seal(copy, &identity, &order.to, at));
            if made.is_err() {
                remove(&order.to.join(JOURNAL_DIR));
            }
            order.answer(made);
        });
    }
}

/// Closes the copy in `to` and writes its `STORE` and `HEAD`, durably.
fn seal(copy: DatabaseCopy, dir: &Path, to: &Path, at: Commit) -> Result<(), Error> {
    drop(copy);
    fsx::crash_point("store::backup::closed")?;
    let identity =
        StoreIdentity::read(dir)?.ok_or_else(|| Error::unreadable("STORE is missing"))?;
    fsx::sync_tree(&to.join(JOURNAL_DIR))?;
    HeadFile::create(to, identity.store_id, &at)?;
    identity.write(to)
}

/// Refuses a folder that is missing or not empty.
pub(crate) fn prepare_backup(to: &Path) -> Result<(), Error> {
    match std::fs::read_dir(to).doing("listing the backup's folder")?.next() {
        None => Ok(()),
        Some(_) => Err(Error::invalid(format!("{} is not empty", to.display()))),
    }
}
