//! The thread that makes a copy while the journal runs, and clears up after it.
//!
//! ```text
//! writer ── begin ──▶ copies, follows the commits ──▶ Copy ──▶ writer finishes it
//! writer ◀── ended ── closes and removes what is left over ◀── what that is ──┘
//! ```
//!
//! Closing a database and removing its files takes longer than a commit may wait, so the writer
//! hands both back. It begins the next copy when this thread has ended.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

use crate::copying::{self, Copy};
use crate::database::{self, Database};
use crate::error::Doing;
use crate::mirror::Mirror;
use crate::{Error, Options, fsx};

/// What is left to be done once the writer has the copy, or does not want it.
pub(crate) type Rest = Box<dyn FnOnce() + Send>;

/// A copy in the making. The writer's end.
pub(crate) struct Copier {
    pub(crate) mirror: Arc<Mirror>,
    made: Receiver<Result<Copy, Error>>,
    rest: Sender<Rest>,
    thread: JoinHandle<()>,
}

/// How far it is.
pub(crate) enum Progress {
    /// It makes the copy, or clears up.
    Busy,
    Made(Box<Copy>),
    Failed(Error),
    /// There is nothing left to do.
    Ended,
}

impl Copier {
    /// Begins to copy `source` to `to`. Every commit from now on must be noted in the mirror.
    pub(crate) fn begin(
        source: Arc<Database>,
        to: PathBuf,
        options: Options,
    ) -> Result<Self, Error> {
        let mirror = Arc::new(Mirror::default());
        let ((done, made), (rest, rests)) = (channel(), channel());
        let thread_mirror = mirror.clone();
        let thread = thread::Builder::new()
            .name("journal-copier".into())
            .spawn(move || run(source, &thread_mirror, &to, &options, done, &rests))
            .doing("starting the copier")?;
        Ok(Copier { mirror, made, rest, thread })
    }

    pub(crate) fn progress(&self) -> Progress {
        match self.made.try_recv() {
            Ok(Ok(copy)) => Progress::Made(Box::new(copy)),
            Ok(Err(error)) => Progress::Failed(error),
            Err(TryRecvError::Disconnected) if self.thread.is_finished() => Progress::Ended,
            Err(_) => Progress::Busy,
        }
    }

    /// Has the thread do the rest.
    pub(crate) fn leave(&self, rest: impl FnOnce() + Send + 'static) {
        // Without the thread it is left to the next start.
        let _ = self.rest.send(Box::new(rest));
    }

    /// Ends the thread, and the copy with it if nobody has taken it.
    pub(crate) fn stop(self) {
        let Copier { mirror, made, rest, thread } = self;
        mirror.end("the journal closes");
        drop((made, rest));
        // A panic there was caught and said.
        let _ = thread.join();
    }
}

fn run(
    source: Arc<Database>,
    mirror: &Mirror,
    to: &Path,
    options: &Options,
    made: Sender<Result<Copy, Error>>,
    rests: &Receiver<Rest>,
) {
    let copy = database::guarded(|| copying::copy(&source, mirror, to, options));
    drop(source);
    if copy.is_err() {
        remove(to);
        // The other side is gone when the journal closes.
        let _ = made.send(copy);
        return;
    }
    // One that nobody takes is closed first.
    drop(made.send(copy));
    drop(made);
    match rests.recv() {
        Ok(rest) => rest(),
        Err(_) => remove(to),
    }
}

/// Removes a directory; what cannot be removed is removed at the next start.
pub(crate) fn remove(dir: &Path) {
    if let Err(error) = fsx::remove_tree(dir) {
        tracing::warn!(%error, dir = %dir.display(), "what compaction left over stays");
    }
}
