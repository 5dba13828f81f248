//! Migrations of a database as an older program would have left it.

use super::*;
use crate::values::BaseKey;
use crate::{Journal, StreamId};

/// Migrates from an invented schema 0, which had records as plain text under `0<stream>`, one line
/// each.
fn frame_lines(db: &sled::Db, changes: &mut KeyChanges) -> Result<(), Error> {
    for pair in db.scan_prefix(b"0") {
        let (key, lines) = pair.map_err(|error| Error::sled("migrating", error))?;
        let stream = StreamId::parse(&String::from_utf8_lossy(&key[1..]))?;
        for (number, line) in (1..).zip(lines.split(|byte| *byte == b'\n')) {
            let seq = Seq::new(number);
            changes.write_new(&BaseKey::Record(stream.clone(), seq), seq, line);
        }
        changes.delete(key.to_vec());
    }
    Ok(())
}

const TO_1: Migration = Migration { from: 0, to: 1, name: "frame-lines", run: frame_lines };
const TO_2: Migration = Migration {
    from: 1,
    to: 2,
    name: "mark",
    run: |_, changes| {
        let stream = StreamId::parse("meta/mark")?;
        changes.write_new(&BaseKey::Record(stream, Seq::FIRST), Seq::FIRST, b"was 1");
        Ok(())
    },
};

const V0: MigrationPlan = MigrationPlan { schema: 0, migrations: &[] };
const V1: MigrationPlan = MigrationPlan { schema: 1, migrations: &[TO_1] };
const V2: MigrationPlan = MigrationPlan { schema: 2, migrations: &[TO_2, TO_1] };

fn v0(dir: &std::path::Path) -> Options {
    let options = Options::at(dir);
    let (journal, _) = Journal::open_as(options.clone(), V0).unwrap();
    stop(journal);
    let db = database::open(&dir.join("journal"), &options).unwrap();
    let mut tally = Tally::default();
    for (key, value) in [(b"0ws/a", b"one\ntwo"), (b"0ws/b", b"1st\n2nd")] {
        db.insert(key, value).unwrap();
        tally.add(key, value);
    }
    let last = Commit::read(&db).unwrap();
    let next = Commit { number: last.number + 1, tally };
    db.insert(values::COMMIT_KEY, &next.to_bytes()).unwrap();
    db.flush().unwrap();
    options
}

fn stop(journal: Journal) {
    tokio::runtime::Runtime::new().unwrap().block_on(journal.close());
}

fn records(journal: &Journal, stream: &str) -> Vec<Vec<u8>> {
    let replay = journal.replay(&StreamId::parse(stream).unwrap()).unwrap();
    replay.records.into_iter().map(|(_, bytes)| bytes).collect()
}

#[test]
fn an_old_database_is_brought_up_step_by_step_and_once() {
    let dir = tempfile::tempdir().unwrap();
    let options = v0(dir.path());
    let (journal, recovered) = Journal::open_as(options.clone(), V2).unwrap();
    assert_eq!(recovered.migrated, ["frame-lines", "mark"]);
    assert_eq!(records(&journal, "ws/a"), [b"one", b"two"]);
    assert_eq!(records(&journal, "ws/b"), [b"1st", b"2nd"]);
    assert_eq!(records(&journal, "meta/mark"), [b"was 1"]);
    stop(journal);
    let (journal, recovered) = Journal::open_as(options, V2).unwrap();
    assert!(recovered.migrated.is_empty());
    assert_eq!(journal.streams("").unwrap().len(), 3);
}

#[test]
fn a_migration_that_a_crash_cut_runs_again_from_its_start() {
    for point in ["apply", "flush", "head"] {
        let dir = tempfile::tempdir().unwrap();
        let options = v0(dir.path());
        let point = format!("store::commit::{point}");
        fail::cfg(&point, "return").unwrap();
        assert!(matches!(Journal::open_as(options.clone(), V1), Err(Error::Full { .. })));
        fail::remove(&point);
        let (journal, _) = Journal::open_as(options, V1).unwrap();
        assert_eq!(records(&journal, "ws/a"), [b"one", b"two"], "{point}");
    }
}

#[test]
fn a_newer_schema_and_a_missing_step_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let options = v0(dir.path());
    let gap = MigrationPlan { schema: 2, migrations: &[TO_2] };
    assert!(matches!(Journal::open_as(options.clone(), gap), Err(Error::Unreadable { .. })));
    stop(Journal::open_as(options.clone(), V2).unwrap().0);
    let older = Journal::open_as(options, V1);
    assert!(matches!(older, Err(Error::TooNew { found: 2, known: 1 })), "{older:?}");
}
