//! Dry-run recovery: the database is checked on a copy before the original is opened.
//!
//! Recovery by the database writes: it blanks what follows the first damaged message of its log,
//! including acknowledged records. So the files are copied first and the copy is recovered and
//! checked; only when it passes is the original opened. The copy shares blocks with the original
//! where the file system can. Compaction limits the size, and with it the cost.
//!
//! The check has a deadline, for damage that makes recovery loop.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use uuid::Uuid;

use crate::commit::Commit;
use crate::database::{self, CheckResult};
use crate::error::IoContext;
use crate::index::JournalIndex;
use crate::{Error, Options, fsx};

/// Directory of the copy, beside the original.
pub(crate) const DIR: &str = "journal.probe";

/// Checks a copy of the database at `path` without touching the original.
pub(crate) fn run(
    path: &Path,
    store_id: Uuid,
    head: Option<Commit>,
    known_schema: u32,
    options: &Options,
) -> Result<CheckResult, Error> {
    let copy = options.dir.join(DIR);
    fsx::remove_tree(&copy)?;
    fsx::copy_tree(path, &copy)?;
    let (done, outcome) = channel();
    let thread_copy = copy.clone();
    let thread_options = options.clone();
    thread::Builder::new()
        .name("journal-probe".into())
        .spawn(move || {
            let checked = look(&thread_copy, store_id, head, known_schema, &thread_options);
            // The receiver is gone only after its deadline.
            let _ = done.send(checked);
        })
        .doing("starting the check")?;
    let seconds = options.probe_timeout_secs;
    let checked = outcome.recv_timeout(Duration::from_secs(seconds)).unwrap_or_else(|error| {
        Err(Error::unreadable(match error {
            RecvTimeoutError::Timeout => format!("its check did not end within {seconds} s"),
            RecvTimeoutError::Disconnected => "its check panicked".into(),
        }))
    });
    fsx::remove_tree(&copy)?;
    checked
}

fn look(
    copy: &Path,
    store_id: Uuid,
    head: Option<Commit>,
    known_schema: u32,
    options: &Options,
) -> Result<CheckResult, Error> {
    let db = database::open(copy, options).map_err(as_unreadable)?;
    let checked = database::guarded(|| {
        let checked = database::check(&db, store_id)?;
        if let Some(head) = head {
            database::compare(head, checked.commit)?;
        }
        if checked.schema == known_schema {
            JournalIndex::build(&db)?;
        }
        Ok(checked)
    });
    drop(db);
    checked.map_err(as_unreadable)
}

/// Maps read errors to unreadable state: besides a full disk, only the contents make reading a copy
/// fail.
fn as_unreadable(error: Error) -> Error {
    match error {
        Error::Io { doing, cause, .. } => Error::unreadable(format!("{doing}: {cause}")),
        other => other,
    }
}
