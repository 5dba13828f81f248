//! Copier thread: makes a copy while the journal runs, and cleans up after it.
//!
//! ```text
//! writer ── begin ──▶ copies, follows the commits ──▶ DatabaseCopy ──▶ writer finishes it
//! writer ◀── ended ── closes and removes what is left over ◀── what that is ──┘
//! ```
//!
//! Closing a database and removing its files takes longer than a commit may wait, so the writer
//! returns both to this thread. The writer begins the next copy when the thread has ended.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

use crate::database::{self, Database};
use crate::database_copy::{self, DatabaseCopy};
use crate::dirty_keys::DirtyKeys;
use crate::error::IoContext;
use crate::{Error, Options, fsx};

/// Clean-up left to do once the writer has taken or rejected the copy.
pub(crate) type CopyCleanup = Box<dyn FnOnce() + Send>;

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
