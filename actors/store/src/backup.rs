//! Online backup: a copy of the database in a folder of its own, made while commits continue and
//! brought up to one of them, with its own `STORE` and `HEAD` that describe it as the original's
//! do.
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

use tokio::sync::oneshot;

use crate::commit::Commit;
use crate::copier::{self, Copier};
use crate::database_copy::{self, DatabaseCopy};
use crate::error::IoContext;
use crate::head::HeadFile;
use crate::identity::StoreIdentity;
use crate::open::JOURNAL_DIR;
use crate::writer::JournalWriter;
use crate::{Error, crash, database, fsx};

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
            copier::remove(&self.to.join(JOURNAL_DIR));
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
                copier::remove(&order.to.join(JOURNAL_DIR));
            }
            order.answer(made);
        });
    }
}

/// Closes the copy in `to` and writes its `STORE` and `HEAD`, durably.
fn seal(copy: DatabaseCopy, dir: &Path, to: &Path, at: Commit) -> Result<(), Error> {
    drop(copy);
    crash::point("store::backup::closed")?;
    let identity =
        StoreIdentity::read(dir)?.ok_or_else(|| Error::unreadable("STORE is missing"))?;
    fsx::sync_tree(&to.join(JOURNAL_DIR))?;
    HeadFile::create(to, identity.store_id, &at)?;
    identity.write(to)
}

/// Refuses a folder that is missing or not empty.
pub(crate) fn prepare(to: &Path) -> Result<(), Error> {
    match std::fs::read_dir(to).doing("listing the backup's folder")?.next() {
        None => Ok(()),
        Some(_) => Err(Error::invalid(format!("{} is not empty", to.display()))),
    }
}
