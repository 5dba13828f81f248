//! Recovery at start-up: from a directory to a running journal, or to a clear refusal.
//!
//! ```text
//! lock ─ settle leftovers ─ STORE? ─no──▶ create
//!                             │yes
//!                     check a copy ─▶ compact if due ─▶ open ─▶ migrate ─▶ index ─▶ HEAD
//! ```
//!
//! Creation writes `HEAD` last. Without `HEAD` nothing was ever acknowledged, so an interrupted
//! creation is finished if the database is still empty.
//!
//! Recovery by the database writes: it blanks what follows the first damaged message of its log,
//! including acknowledged records. So the files are copied first and the copy is recovered and
//! checked; only when it passes is the original opened. The copy shares blocks with the original
//! where the file system can. Compaction limits the size, and with it the cost. The check has a deadline, for
//! damage that makes recovery loop.
//!
//! Schema migrations are run once each, in order.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use chrono::Utc;
use serde::Serialize;
use uuid::Uuid;

use crate::commit::{Commit, Committer, Tally};
use crate::compact::{self, Compacted, millis};
use crate::database::{self, CheckResult};
use crate::error::IoContext;
use crate::index::JournalIndex;
use crate::pending_commit::KeyChanges;
use crate::reserve::{self, Reserve};
use crate::state_files::{self, DirLock, HeadFile, StoreIdentity};
use crate::{Error, Options, Seq, fsx, values};

pub(crate) const JOURNAL_DIR: &str = "journal";
const CREATE_DIR: &str = "journal.create";

/// Result of start-up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recovered {
    /// Id of the store; constant for its whole life.
    pub store_id: Uuid,
    /// True if the directory was empty and the store was created.
    pub created: bool,
    /// Number of streams.
    pub streams: usize,
    /// Number of records not yet covered by a snapshot.
    pub records: u64,
    /// Oldest event kept; above `last_event` when there is none.
    pub oldest_event: Seq,
    /// Last event, 0 when there was never one.
    pub last_event: Seq,
    /// True if the database was ahead of `HEAD`: by a commit that was never acknowledged, or by the
    /// last one before a power cut. Its records are kept, so a caller that saw an error may find
    /// its record.
    pub unacknowledged_commit: bool,
    /// Names of the migrations that ran.
    pub migrated: Vec<&'static str>,
    /// Result of the compaction, if the database was compacted.
    pub compacted: Option<Compacted>,
}

/// Checked, open database with its lock.
pub(crate) struct OpenedJournal {
    pub(crate) lock: DirLock,
    pub(crate) committer: Committer,
    pub(crate) index: JournalIndex,
    pub(crate) reserve: Reserve,
    pub(crate) recovered: Recovered,
}

/// Opens or creates the store. Blocks; after an error nothing runs and nothing that was
/// acknowledged has changed.
pub(crate) fn open(options: &Options, plan: MigrationPlan) -> Result<OpenedJournal, Error> {
    options.check()?;
    let dir = &options.dir;
    fsx::make_dir(dir)?;
    let lock = DirLock::take(dir)?;
    fsx::remove_tree(&dir.join(PROBE_DIR))?;
    let identity = StoreIdentity::read(dir)?;
    if identity.is_some() {
        compact::settle(dir)?;
    }
    let created = identity.is_none();
    let identity = match identity {
        Some(identity) => identity,
        None => create(options, plan)?,
    };
    let store_id = identity.store_id;
    let path = dir.join(JOURNAL_DIR);
    finish_creation(dir)?;
    reserve::give_up(dir, fsx::tree_bytes(&path))?;
    // A killed process may have left pages that only the page cache has: what recovery makes of
    // them must not reach the disk before they do.
    fsx::sync_tree(&path)?;
    let (head, at) = recall(options, plan, store_id)?;
    let checked = probe(&path, store_id, Some(at), plan.schema, options)?;
    plan.accepts(checked.schema)?;
    let compacted = compact_if_due(options, &checked)?;

    let db = database::open(&path, options)?;
    let found = database::check(&db, store_id)?;
    if found != checked {
        return Err(Error::unreadable("the database differs from the copy that was checked"));
    }
    let mut committer = Committer::new(db, head, &found);
    let unacknowledged_commit = committer.catch_up(at, &path)?;
    let migrated = plan.run(&mut committer, found.schema)?;
    let index = database::guarded(|| JournalIndex::build(&committer.db))?;
    fsx::sync_dir(&path)?;
    let reserve = Reserve::of(&path, options)?;
    let recovered = Recovered {
        store_id,
        created,
        streams: index.streams.len(),
        records: index.records,
        oldest_event: index.events.oldest,
        last_event: index.events.last,
        unacknowledged_commit,
        migrated,
        compacted,
    };
    Ok(OpenedJournal { lock, committer, index, reserve, recovered })
}

/// Creates the store up to, but without, `HEAD`.
fn create(options: &Options, plan: MigrationPlan) -> Result<StoreIdentity, Error> {
    let dir = &options.dir;
    for (name, path) in
        [("a database", dir.join(JOURNAL_DIR)), ("HEAD", dir.join(state_files::HEAD_FILE))]
    {
        if path.exists() {
            return Err(Error::unreadable(format!("there is {name} but no STORE")));
        }
    }
    let building = dir.join(CREATE_DIR);
    fsx::remove_tree(&building)?;
    let identity = StoreIdentity::fresh();
    let db = database::open(&building, options)?;
    let mut batch = sled::Batch::default();
    batch.insert(values::STORE_KEY, identity.store_id.as_bytes());
    batch.insert(values::SCHEMA_KEY, &plan.schema.to_be_bytes());
    batch.insert(values::COMMIT_KEY, &FIRST_COMMIT.to_bytes());
    db.apply_batch(batch).doing("creating the database")?;
    db.flush().doing("creating the database")?;
    drop(db);
    fsx::sync_tree(&building)?;
    fsx::crash_point("store::create::built")?;
    identity.write(dir)?;
    fsx::crash_point("store::create::named")?;
    Ok(identity)
}

const FIRST_COMMIT: Commit = Commit { number: 1, tally: Tally { pairs: 0, sum: 0 } };

/// Renames a freshly built database into its place.
fn finish_creation(dir: &Path) -> Result<(), Error> {
    let (building, path) = (dir.join(CREATE_DIR), dir.join(JOURNAL_DIR));
    let acknowledged = dir.join(state_files::HEAD_FILE).exists();
    if building.exists() && !path.exists() && !acknowledged {
        fsx::rename(&building, &path)?;
        fsx::crash_point("store::create::renamed")?;
    }
    if !path.join(database::LOG).exists() {
        return Err(Error::unreadable("there is a STORE but its database is missing"));
    }
    fsx::remove_tree(&building)
}

/// Reads `HEAD`. Without one the creation never ended, and the database must be the untouched first
/// commit.
fn recall(
    options: &Options,
    plan: MigrationPlan,
    store_id: Uuid,
) -> Result<(HeadFile, Commit), Error> {
    let dir = &options.dir;
    if dir.join(state_files::HEAD_FILE).exists() {
        return HeadFile::open(dir, store_id);
    }
    let path = dir.join(JOURNAL_DIR);
    let checked = probe(&path, store_id, None, plan.schema, options)?;
    if checked.commit != FIRST_COMMIT {
        return Err(Error::unreadable(format!(
            "HEAD is missing and the database is at commit {}",
            checked.commit.number
        )));
    }
    Ok((HeadFile::create(dir, store_id, &FIRST_COMMIT)?, FIRST_COMMIT))
}

fn compact_if_due(options: &Options, checked: &CheckResult) -> Result<Option<Compacted>, Error> {
    let path = options.dir.join(JOURNAL_DIR);
    let (began, before_bytes) = (Instant::now(), fsx::tree_bytes(&path));
    if !compact::due_at_start(options, before_bytes, checked.live_bytes) {
        return Ok(None);
    }
    compact::run(options, checked)?;
    let (at, after_bytes, took_ms) = (Utc::now(), fsx::tree_bytes(&path), millis(began.elapsed()));
    let compacted = Compacted { at, before_bytes, after_bytes, took_ms, held_ms: took_ms };
    tracing::info!(?compacted, "journal compacted");
    Ok(Some(compacted))
}

/// Directory of the copy, beside the original.
const PROBE_DIR: &str = "journal.probe";

/// Checks a copy of the database at `path` without touching the original.
fn probe(
    path: &Path,
    store_id: Uuid,
    head: Option<Commit>,
    known_schema: u32,
    options: &Options,
) -> Result<CheckResult, Error> {
    let copy = options.dir.join(PROBE_DIR);
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

/// Migration from one schema to a later one.
///
/// `run` reads the database and gathers changes; they commit together with the new schema number,
/// so a crash leaves the old schema or the new one.
pub(crate) struct Migration {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) name: &'static str,
    pub(crate) run: fn(&sled::Db, &mut KeyChanges) -> Result<(), Error>,
}

/// Chain of migrations and the schema it leads to.
#[derive(Clone, Copy)]
pub(crate) struct MigrationPlan {
    pub(crate) schema: u32,
    migrations: &'static [Migration],
}

/// Shipped plan. Schema 1 is the first; a change of `values.rs` adds a migration here
/// and raises the number.
pub(crate) const SHIPPED: MigrationPlan = MigrationPlan { schema: 1, migrations: &[] };

impl MigrationPlan {
    /// Refuses a database with a newer schema.
    pub(crate) fn accepts(&self, schema: u32) -> Result<(), Error> {
        if schema > self.schema {
            return Err(Error::TooNew { found: schema, known: self.schema });
        }
        Ok(())
    }

    /// Migrates the database from `schema` to the plan's; returns the names of the steps that ran.
    pub(crate) fn run(
        &self,
        committer: &mut Committer,
        mut schema: u32,
    ) -> Result<Vec<&'static str>, Error> {
        self.accepts(schema)?;
        let mut names = Vec::new();
        while schema < self.schema {
            let step =
                self.migrations.iter().find(|step| step.from == schema).ok_or_else(|| {
                    Error::unreadable(format!("no migration leads on from schema {schema}"))
                })?;
            let mut changes = KeyChanges::default();
            (step.run)(&committer.db, &mut changes)?;
            changes.put(values::SCHEMA_KEY.to_vec(), step.to.to_be_bytes().to_vec());
            committer.commit(changes)?;
            committer.settle()?;
            tracing::info!(step = step.name, from = step.from, to = step.to, "state migrated");
            names.push(step.name);
            schema = step.to;
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests;
