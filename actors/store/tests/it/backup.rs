//! Backups of a journal under load: each is a complete store at one moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use fail::FailScenario;
use hivekeep_store::{Error, Journal, Options};

use crate::churn::{RECORDS, STREAMS, record, small, turn};
use crate::util::{contents, event, open, opened, stream};

/// Checks the contents of all turns that the backup contains; returns their number.
fn rounds(journal: &Journal) -> u64 {
    let found = contents(journal);
    let kept = &found["kept/a"].records;
    for ((_, bytes), round) in kept.iter().zip(0u64..) {
        assert_eq!(*bytes, round.to_le_bytes());
    }
    let rounds = kept.len() as u64;
    // The turn after the last one may have begun: its stream is left out.
    for round in rounds.saturating_sub(STREAMS - 1)..rounds {
        let replay = &found[&format!("churn/{}", round % STREAMS)];
        assert_eq!(replay.records.len(), RECORDS, "{round}");
        for ((_, bytes), number) in replay.records.iter().zip(0..) {
            assert!(*bytes == record(round, number), "{round}");
        }
    }
    rounds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_backup_is_a_store_of_one_moment_while_others_write_and_compact() {
    let (dir, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let journal = opened(&small(dir.path())).await;
    turn(&journal, 0).await;
    let (done, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(1)));
    let writer = {
        let (journal, done, acknowledged) = (journal.clone(), done.clone(), acknowledged.clone());
        tokio::spawn(async move {
            for round in 1.. {
                if done.load(SeqCst) {
                    break;
                }
                turn(&journal, round).await;
                acknowledged.store(round + 1, SeqCst);
            }
        })
    };
    let mut last = 0;
    for number in 0..6 {
        let to = kept.path().join(number.to_string());
        std::fs::create_dir(&to).unwrap();
        let before = acknowledged.load(SeqCst);
        journal.backup(to.clone()).await.unwrap();
        let after = acknowledged.load(SeqCst);
        let (copy, recovered) = open(&Options::at(&to)).await.unwrap();
        assert!(!recovered.created && !recovered.unacknowledged_commit, "{recovered:?}");
        let found = rounds(&copy);
        assert!((before..=after + 1).contains(&found) && found >= last, "{before} {found} {after}");
        last = found;
        // The backup works as a store of its own.
        turn(&copy, found).await;
        copy.close().await;
    }
    done.store(true, SeqCst);
    writer.await.unwrap();
    assert!(journal.stats().compactions > 0, "none beside the backups: {:?}", journal.stats());
    journal.close().await;
    let journal = opened(&small(dir.path())).await;
    assert_eq!(rounds(&journal), acknowledged.load(SeqCst));
    journal.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_backup_that_cannot_be_made_is_refused_and_leaves_no_database() {
    let (dir, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let journal = opened(&Options::at(dir.path())).await;
    let name = stream("kept/a");
    journal.append_and_publish(&name, vec![vec![1]], vec![event("one", 1)]).await.unwrap();
    let to = |name: &str| {
        let to = kept.path().join(name);
        std::fs::create_dir(&to).unwrap();
        to
    };
    let full = to("full");
    std::fs::write(full.join("file"), "").unwrap();
    let refused = journal.backup(full).await.unwrap_err();
    assert!(matches!(&refused, Error::Invalid { what } if what.contains("not empty")), "{refused}");
    let refused = journal.backup(kept.path().join("absent")).await.unwrap_err();
    assert!(matches!(refused, Error::Io { .. }), "{refused}");

    // The disk is full at the end of the copy, and after it.
    let scenario = FailScenario::setup();
    for point in ["store::compact::finish", "store::backup::closed"] {
        fail::cfg(point, "return").unwrap();
        let to = to(point);
        let refused = journal.backup(to.clone()).await.unwrap_err();
        assert!(matches!(refused, Error::Full { .. }), "{refused}");
        assert_eq!(std::fs::read_dir(&to).unwrap().count(), 0, "{point}: something is left");
        fail::remove(point);
    }
    // While one backup is made another waits, and a third is refused; a caller that no longer waits
    // is forgotten.
    fail::cfg("store::compact::built", "pause").unwrap();
    let [first, second, third] = ["1", "2", "3"].map(to);
    let begun = tokio::spawn({
        let (journal, to) = (journal.clone(), first.clone());
        async move { journal.backup(to).await }
    });
    while !first.join("journal").exists() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let waits = tokio::spawn({
        let (journal, to) = (journal.clone(), second.clone());
        async move { journal.backup(to).await }
    });
    journal.settled().await.unwrap();
    let refused = loop {
        let attempt = journal.backup(third.clone());
        match tokio::time::timeout(std::time::Duration::from_millis(50), attempt).await {
            Ok(refused) => break refused.unwrap_err(),
            // The first backup ran before the second, which is refused then.
            Err(_dropped) if waits.is_finished() => break waits.await.unwrap().unwrap_err(),
            Err(_dropped) => {}
        }
    };
    assert!(refused.to_string().contains("another backup"), "{refused}");
    begun.abort();
    assert!(begun.await.unwrap_err().is_cancelled());
    fail::remove("store::compact::built");
    scenario.teardown();
    while first.join("journal").exists() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let last = to("last");
    while let Err(error) = journal.backup(last.clone()).await {
        assert!(error.to_string().contains("another backup"), "{error}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    journal.close().await;
    let refused = journal.backup(to("late")).await.unwrap_err();
    assert!(matches!(refused, Error::Closed), "{refused}");
    let copy = opened(&Options::at(&last)).await;
    assert_eq!(contents(&copy).len(), 1);
    copy.close().await;
}
