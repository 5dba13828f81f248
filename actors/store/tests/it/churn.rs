//! Compaction of a running journal: the size stays bounded, nobody waits for it, nothing is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use fail::FailScenario;
use hivekeep_store::{Journal, Options, Seq, SubscriptionItem};
use tokio::task::spawn_blocking;

use crate::util::{contents, event, files, hold_at, open, opened, stream};

pub const STREAMS: u64 = 12;
pub const RECORDS: usize = 20;
const RECORD_BYTES: usize = 6000;
/// Allowance on top of three times the live data and `compact_at_mb`, as the documentation of that
/// option says. There is so little live data here that the copy fits in it.
const MORE_BYTES: u64 = 32 << 20;

pub fn small(dir: &std::path::Path) -> Options {
    Options { compact_at_mb: 1, events_kept: 500, ..Options::at(dir) }
}

/// Rewrites one stream; its previous contents are dead.
pub async fn turn(journal: &Journal, round: u64) {
    let name = stream(&format!("churn/{}", round % STREAMS));
    journal.forget(&name).await.unwrap();
    let records = (0..RECORDS).map(|number| record(round, number)).collect();
    let events = vec![event("turn", round)];
    journal.append_and_publish(&name, records, events).await.unwrap();
    journal.append(&stream("kept/a"), vec![round.to_le_bytes().to_vec()]).await.unwrap();
}

pub fn record(round: u64, number: usize) -> Vec<u8> {
    // Contents of many sizes that cannot be told from their length.
    let mut bytes = vec![
        (round % 251) as u8;
        RECORD_BYTES / 2 + (round as usize * 7 + number * 577) % RECORD_BYTES
    ];
    bytes.extend(round.to_le_bytes());
    bytes
}

/// Checks that everything acknowledged by `rounds` turns is there, and nothing else.
fn check(journal: &Journal, rounds: u64) {
    let found = contents(journal);
    assert_eq!(found.len() as u64, STREAMS.min(rounds) + 1);
    for round in rounds.saturating_sub(STREAMS)..rounds {
        let replay = &found[&format!("churn/{}", round % STREAMS)];
        let bytes: Vec<_> = replay.records.iter().map(|(_, bytes)| bytes.clone()).collect();
        let expected: Vec<_> = (0..RECORDS).map(|number| record(round, number)).collect();
        assert!(bytes == expected, "round {round}");
    }
    let kept: Vec<_> = found["kept/a"].records.iter().map(|(_, bytes)| bytes.clone()).collect();
    assert!(kept == (0..rounds).map(|round| round.to_le_bytes().to_vec()).collect::<Vec<_>>());
    assert_eq!(journal.events().last().get(), rounds);
}

fn within_bounds(journal: &Journal, options: &Options) -> u64 {
    let stats = journal.stats();
    let most = 3 * stats.live_bytes + (options.compact_at_mb << 20) + MORE_BYTES;
    assert!(stats.disk_bytes <= most, "{stats:?}");
    assert_eq!(stats.compaction_given_up, None);
    stats.compactions
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_journal_that_is_written_over_stays_small() {
    let dir = tempfile::tempdir().unwrap();
    let options = small(dir.path());
    let journal = opened(&options).await;
    let done = Arc::new(AtomicBool::new(false));
    // Readers continue while the database under them is exchanged.
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (journal, done) = (journal.clone(), done.clone());
            spawn_blocking(move || {
                let mut last = Seq::ZERO;
                while !done.load(Relaxed) {
                    let replay = journal.replay(&stream("kept/a")).unwrap();
                    assert!(replay.last() >= last, "what was read is gone");
                    last = replay.last();
                    journal.events().read(last, 50).unwrap();
                }
            })
        })
        .collect();
    let mut subscription = journal.events().subscribe(Some(Seq::FIRST), 1024);
    let subscriber = tokio::spawn(async move {
        for expected in 1.. {
            match subscription.next().await {
                Ok(SubscriptionItem::Event(event)) => assert_eq!(event.seq.get(), expected),
                Ok(missed) => panic!("{missed:?} at {expected}"),
                Err(_closed) => return expected,
            }
        }
        0
    });
    let (rounds, mut compactions) = (50 * STREAMS, 0);
    for round in 0..rounds {
        turn(&journal, round).await;
        compactions = within_bounds(&journal, &options);
    }
    done.store(true, Relaxed);
    for reader in readers {
        reader.await.unwrap();
    }
    let stats = journal.stats();
    assert!(compactions > 2, "{stats:#?}");
    check(&journal, rounds);
    journal.close().await;
    assert_eq!(subscriber.await.unwrap(), rounds + 1);
    let (journal, recovered) = open(&options).await.unwrap();
    assert!(!recovered.unacknowledged_commit);
    check(&journal, rounds);
    journal.close().await;
}

/// Appends are answered while a copy is being made, however long that takes.
#[tokio::test(flavor = "multi_thread")]
async fn appends_do_not_wait_for_a_copy() {
    let scenario = FailScenario::setup();
    for point in ["begun", "built", "verified", "caught_up"] {
        let dir = tempfile::tempdir().unwrap();
        let options = small(dir.path());
        let journal = opened(&options).await;
        let paused = hold_at(&format!("store::compact::{point}"));
        let mut rounds = 0;
        while !paused.reached() {
            turn(&journal, rounds).await;
            rounds += 1;
            assert!(rounds < 2000, "{point}: it is never compacted");
        }
        // Each of these is answered; the copy has missed them all.
        for _ in 0..2 * STREAMS {
            turn(&journal, rounds).await;
            rounds += 1;
        }
        assert!(journal.stats().compacting, "{point}");
        assert_eq!(journal.stats().compactions, 0, "{point}");
        paused.release();
        while journal.stats().compactions == 0 || journal.stats().compacting {
            turn(&journal, rounds).await;
            rounds += 1;
        }
        check(&journal, rounds);
        journal.close().await;
        check(&opened(&options).await, rounds);
    }
    scenario.teardown();
}

/// A failed copy costs only the copy: the journal keeps running and tries again.
#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_that_fails_is_given_up_and_tried_again() {
    let scenario = FailScenario::setup();
    for point in ["begun", "built", "verified", "caught_up", "finish", "moved"] {
        let dir = tempfile::tempdir().unwrap();
        let options = small(dir.path());
        let journal = opened(&options).await;
        fail::cfg(format!("store::compact::{point}"), "1*return").unwrap();
        let mut rounds = 0;
        while journal.stats().compaction_given_up.is_none() {
            turn(&journal, rounds).await;
            rounds += 1;
            assert!(rounds < 2000, "{point}: it never fails");
        }
        assert_eq!(journal.stats().compactions, 0, "{point}");
        check(&journal, rounds);
        while journal.stats().compactions == 0 {
            turn(&journal, rounds).await;
            rounds += 1;
            assert!(rounds < 4000, "{point}: it is never tried again");
        }
        assert_eq!(journal.stats().compaction_given_up, None, "{point}");
        check(&journal, rounds);
        journal.close().await;
        check(&opened(&options).await, rounds);
        let left: BTreeMap<_, _> = files(dir.path());
        assert!(left.keys().all(|name| !name.contains("journal.")), "{point}: {:?}", left.keys());
    }
    scenario.teardown();
}
