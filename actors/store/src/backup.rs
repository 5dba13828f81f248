//! An online backup: a copy of the database in a folder of its own, made while commits go on and
//! brought to one of them, with a `STORE` and a `HEAD` that say the same of it as the original's.
//!
//! ```text
//! Journal::backup ── Order ──▶ writer ── begin ──▶ copier, as for a compaction
//!                              writer ◀── Copy ──── copier
//!        finishes it between two commits ── leave ──▶ closes, names and syncs it, answers
//! ```
//!
//! One copy is made at a time: an order waits while the journal is compacted, and the other way
//! round.

use std::path::{Path, PathBuf};

use tokio::sync::oneshot;

use crate::commit::Commit;
use crate::copier::{self, Copier};
use crate::copying::{self, Copy};
use crate::error::Doing;
use crate::head::Head;
use crate::identity::Identity;
use crate::open::JOURNAL_DIR;
use crate::writer::Writer;
use crate::{Error, crash, database, fsx};

/// A backup that somebody waits for.
pub(crate) struct Order {
    /// A folder that holds nothing.
    pub(crate) to: PathBuf,
    pub(crate) reply: oneshot::Sender<Result<(), Error>>,
}

impl Order {
    /// Answers; for who stopped waiting there is no copy.
    pub(crate) fn answer(self, made: Result<(), Error>) {
        if let Err(Ok(())) = self.reply.send(made) {
            copier::remove(&self.to.join(JOURNAL_DIR));
        }
    }
}

impl Writer {
    /// Begins the backup that was ordered, if one was.
    pub(crate) fn begin_backup(&mut self) -> Option<(Copier, Order)> {
        let order = self.shared.take_order()?;
        let begun = || {
            copying::room_for(&order.to, self.committer.live_bytes())?;
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

    /// Makes the copy that of the last commit; the copier's thread does the rest.
    pub(crate) fn finish_backup(&mut self, mut copy: Copy, copier: &Copier, order: Order) {
        let committer = &mut self.committer;
        let (mirror, at) = (committer.mirror.take().unwrap_or_default(), committer.last());
        let finished = database::guarded(|| copy.finish(&committer.db, &mirror, at));
        let identity = self.options.dir.clone();
        copier.leave(move || {
            let made = finished.and_then(|()| seal(copy, &identity, &order.to, at));
            if made.is_err() {
                copier::remove(&order.to.join(JOURNAL_DIR));
            }
            order.answer(made);
        });
    }
}

/// Closes the copy in `to` and names it as the store in `dir` at a commit, durably.
fn seal(copy: Copy, dir: &Path, to: &Path, at: Commit) -> Result<(), Error> {
    drop(copy);
    crash::point("store::backup::closed")?;
    let identity = Identity::read(dir)?.ok_or_else(|| Error::unreadable("STORE is missing"))?;
    fsx::sync_tree(&to.join(JOURNAL_DIR))?;
    Head::create(to, identity.store_id, &at)?;
    identity.write(to)
}

/// Refuses a folder that holds something, or is not there.
pub(crate) fn prepare(to: &Path) -> Result<(), Error> {
    match std::fs::read_dir(to).doing("listing the backup's folder")?.next() {
        None => Ok(()),
        Some(_) => Err(Error::invalid(format!("{} is not empty", to.display()))),
    }
}
