//! Damaged files: everything comes back, or the journal refuses and no byte has changed. A shorter
//! history is never served.

use std::collections::BTreeMap;

use hivekeep_store::{Error, Options, Replay};

use crate::util::{contents, event, files, open, opened, restore, stream};

type Files = BTreeMap<String, Vec<u8>>;

struct Store {
    options: Options,
    files: Files,
    contents: BTreeMap<String, Replay>,
    _dir: tempfile::TempDir,
}

/// End of the last process.
#[derive(Clone, Copy)]
enum End {
    Closed,
    /// Ends as after `kill -9`: the log's tail is in no index of the database yet.
    Killed,
}

/// Makes a store of several log segments, with snapshots, events, and restarts.
async fn build(end: End) -> Store {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::at(dir.path());
    for round in 0..3u8 {
        let journal = opened(&options).await;
        for number in 0..120u64 {
            let name = stream(&format!("damage/{}", number % 5));
            let records = vec![vec![round; 40 + (number as usize * 53) % 6000]; 2];
            journal.append_and_publish(&name, records, vec![event("e", number)]).await.unwrap();
        }
        let name = stream("damage/3");
        let last = journal.replay(&name).unwrap().last();
        journal.snapshot(&name, last, vec![round; 20_000]).await.unwrap();
        if round < 2 {
            journal.close().await;
            continue;
        }
        let contents = contents(&journal);
        let killed = files(dir.path());
        journal.close().await;
        let files = match end {
            End::Closed => files(dir.path()),
            End::Killed => killed,
        };
        return Store { files, contents, options, _dir: dir };
    }
    unreachable!("the last round returns");
}

impl Store {
    /// Opens the store: true when everything came back, false when the journal refused.
    async fn opens_with(&self, damaged: &Files, what: &str) -> bool {
        let dir = &self.options.dir;
        restore(dir, damaged);
        match open(&self.options).await {
            Ok((journal, _)) => {
                assert!(contents(&journal) == self.contents, "{what}: opened with other contents");
                assert_eq!(journal.events().last().get(), 360, "{what}");
                journal.close().await;
                true
            }
            Err(Error::Unreadable { .. } | Error::TooNew { .. }) => {
                let now = files(dir);
                for (name, bytes) in damaged {
                    assert!(now.get(name) == Some(bytes), "{what}: {name} was changed");
                }
                assert_eq!(now.len(), damaged.len(), "{what}: {:?}", now.keys());
                false
            }
            Err(other) => panic!("{what}: {other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_byte_loses_nothing_silently() {
    let store = build(End::Closed).await;
    assert!(store.opens_with(&store.files, "no damage").await);
    let mut refused = 0;
    for (name, bytes) in &store.files {
        let flips = if name == "journal/db" { 48 } else { 6 };
        for number in 0..flips {
            let mut damaged = store.files.clone();
            // Positions spread over the file, first and last byte included.
            let at = (bytes.len() - 1) * number / (flips - 1);
            damaged.get_mut(name).unwrap()[at] ^= 1 << (number % 8);
            let what = format!("{name} flipped at {at}");
            refused += u32::from(!store.opens_with(&damaged, &what).await);
        }
    }
    assert!(refused > 0, "some flips hit live data");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_file_loses_nothing_silently() {
    for end in [End::Closed, End::Killed] {
        let store = build(end).await;
        assert!(store.opens_with(&store.files, "no damage").await);
        let mut refused = 0;
        for (name, bytes) in &store.files {
            for number in 0..10 {
                let mut damaged = store.files.clone();
                let length = bytes.len() * number / 10;
                damaged.get_mut(name).unwrap().truncate(length);
                let what = format!("{name} cut to {length} of {}", bytes.len());
                refused += u32::from(!store.opens_with(&damaged, &what).await);
            }
        }
        assert!(refused > 0, "some cuts hit live data");
    }
}

/// The log ends early, at a place where it reads well: the database opens and yields a consistent,
/// shorter history. Only `HEAD` shows the loss.
#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_the_last_commits_is_noticed() {
    let mut store = build(End::Killed).await;
    restore(&store.options.dir, &store.files);
    let journal = opened(&store.options).await;
    let mut logs = vec![];
    for number in 0..5 {
        logs.push(files(&store.options.dir)["journal/db"].clone());
        let records = vec![vec![number; 900]];
        journal.append(&stream("damage/9"), records).await.unwrap();
    }
    store.contents = contents(&journal);
    store.files = files(&store.options.dir);
    journal.close().await;
    assert!(store.opens_with(&store.files, "no damage").await);
    for (kept, older) in logs.iter().enumerate() {
        let mut damaged = store.files.clone();
        damaged.insert("journal/db".into(), older.clone());
        assert!(!store.opens_with(&damaged, &format!("{kept} of 5 commits are left")).await);

        let log = damaged.get_mut("journal/db").unwrap();
        log.clone_from(&store.files["journal/db"]);
        for (byte, old) in log.iter_mut().zip(older) {
            *byte = if byte == old { *old } else { 0 };
        }
        assert!(!store.opens_with(&damaged, &format!("zeroed behind commit {kept} of 5")).await);
    }
}

/// A pair that the database forgets or invents, with no trace in its files.
#[tokio::test(flavor = "multi_thread")]
async fn a_pair_lost_changed_or_added_is_noticed() {
    let store = build(End::Closed).await;
    let tamper = |change: &dyn Fn(&sled::Db)| {
        restore(&store.options.dir, &store.files);
        let db = sled::open(store.options.dir.join("journal")).unwrap();
        change(&db);
        db.flush().unwrap();
    };
    let mut keys = vec![];
    tamper(&|_| {});
    let db = sled::open(store.options.dir.join("journal")).unwrap();
    for name in ["damage/0", "damage/4"] {
        // Last record: without it the stream is shorter and has no gap.
        let records = db.scan_prefix([b"r", name.as_bytes(), &[0]].concat());
        keys.push(records.keys().next_back().unwrap().unwrap());
    }
    keys.push(db.scan_prefix(b"e").keys().next_back().unwrap().unwrap());
    keys.push(db.scan_prefix(b"e").keys().next().unwrap().unwrap());
    keys.extend(db.scan_prefix(b"s").keys().map(Result::unwrap));
    drop(db);
    for key in &keys {
        tamper(&|db| drop(db.remove(key).unwrap().unwrap()));
        let found = open(&store.options).await;
        assert!(matches!(found, Err(Error::Unreadable { .. })), "lost {}", key.escape_ascii());
        tamper(&|db| drop(db.insert(key, b"other").unwrap()));
        assert!(open(&store.options).await.is_err(), "changed {}", key.escape_ascii());
    }
    tamper(&|db| drop(db.insert(b"x", b"new").unwrap()));
    assert!(open(&store.options).await.is_err(), "added");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zeroed_or_repeated_stretch_loses_nothing_silently() {
    let store = build(End::Killed).await;
    let length = store.files["journal/db"].len();
    for number in 0..24 {
        let at = length * number / 24;
        let end = (at + 8192).min(length);
        let mut damaged = store.files.clone();
        damaged.get_mut("journal/db").unwrap()[at..end].fill(0);
        store.opens_with(&damaged, &format!("zeroed {at}..{end}")).await;
        let mut damaged = store.files.clone();
        let db = damaged.get_mut("journal/db").unwrap();
        db.copy_within(0..end - at, at);
        store.opens_with(&damaged, &format!("start repeated at {at}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_copy_of_the_database_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::at(dir.path());
    let name = stream("damage/old");
    let mut copies = vec![];
    for _ in 0..2 {
        let journal = opened(&options).await;
        for _ in 0..3 {
            journal.append(&name, vec![b"x".to_vec()]).await.unwrap();
        }
        journal.close().await;
        copies.push(files(dir.path()));
    }
    let mix = |database: usize, rest: usize| -> Files {
        let of = |which: usize, wanted: bool| {
            copies[which]
                .clone()
                .into_iter()
                .filter(move |(name, _)| name.starts_with("journal/") == wanted)
        };
        of(database, true).chain(of(rest, false)).collect()
    };
    for (database, rest, good) in [(1, 1, true), (0, 1, false), (1, 0, false), (0, 0, true)] {
        restore(dir.path(), &mix(database, rest));
        let found = open(&options).await;
        assert_eq!(found.is_ok(), good, "{database} {rest}: {found:?}");
        if let Ok((journal, _)) = found {
            journal.close().await;
        }
    }
}
