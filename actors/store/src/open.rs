//! Recovery at start-up: from a directory to a running journal, or to a clear refusal.
//!
//! ```text
//! lock ─ settle leftovers ─ STORE? ─no──▶ create
//!                             │yes
//!            check a copy (probe.rs) ─▶ compact if due ─▶ open ─▶ migrate ─▶ index ─▶ HEAD
//! ```
//!
//! Creation writes `HEAD` last. Without `HEAD` nothing was ever acknowledged, so an interrupted
//! creation is finished if the database is still empty.

use std::path::Path;
use std::time::Instant;

use chrono::Utc;
use serde::Serialize;
use uuid::Uuid;

use crate::commit::{Commit, Committer};
use crate::compact::Compacted;
use crate::compacting::millis;
use crate::database::CheckResult;
use crate::error::IoContext;
use crate::head::{self, HeadFile};
use crate::identity::StoreIdentity;
use crate::index::JournalIndex;
use crate::lock::DirLock;
use crate::migrate::MigrationPlan;
use crate::reserve::{self, Reserve};
use crate::{Error, Options, Seq, compact, crash, database, fsx, keys, probe};

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
    fsx::remove_tree(&dir.join(probe::DIR))?;
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
    let checked = probe::run(&path, store_id, Some(at), plan.schema, options)?;
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
    for (name, path) in [("a database", dir.join(JOURNAL_DIR)), ("HEAD", dir.join(head::FILE))] {
        if path.exists() {
            return Err(Error::unreadable(format!("there is {name} but no STORE")));
        }
    }
    let building = dir.join(CREATE_DIR);
    fsx::remove_tree(&building)?;
    let identity = StoreIdentity::fresh();
    let db = database::open(&building, options)?;
    let mut batch = sled::Batch::default();
    batch.insert(keys::STORE_KEY, identity.store_id.as_bytes());
    batch.insert(keys::SCHEMA_KEY, &plan.schema.to_be_bytes());
    batch.insert(keys::COMMIT_KEY, &FIRST_COMMIT.to_bytes());
    db.apply_batch(batch).doing("creating the database")?;
    db.flush().doing("creating the database")?;
    drop(db);
    fsx::sync_tree(&building)?;
    crash::point("store::create::built")?;
    identity.write(dir)?;
    crash::point("store::create::named")?;
    Ok(identity)
}

const FIRST_COMMIT: Commit = Commit { number: 1, tally: crate::tally::Tally { pairs: 0, sum: 0 } };

/// Renames a freshly built database into its place.
fn finish_creation(dir: &Path) -> Result<(), Error> {
    let (building, path) = (dir.join(CREATE_DIR), dir.join(JOURNAL_DIR));
    let acknowledged = dir.join(head::FILE).exists();
    if building.exists() && !path.exists() && !acknowledged {
        fsx::rename(&building, &path)?;
        crash::point("store::create::renamed")?;
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
    if dir.join(head::FILE).exists() {
        return HeadFile::open(dir, store_id);
    }
    let path = dir.join(JOURNAL_DIR);
    let checked = probe::run(&path, store_id, None, plan.schema, options)?;
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
