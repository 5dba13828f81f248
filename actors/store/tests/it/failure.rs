//! Failed commits: no caller is answered with success, and everything stops.

use fail::FailScenario;
use hivekeep_store::{Error, Options, StopReason};

use crate::util::{contents, hold, open, opened, stream};

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_commit_answers_everyone_and_poisons() {
    let scenario = FailScenario::setup();
    for point in ["apply", "flush", "head"] {
        let point = format!("store::commit::{point}");
        let dir = tempfile::tempdir().unwrap();
        let options = Options::at(dir.path());
        let journal = opened(&options).await;
        let name = stream("fail/a");
        journal.append(&name, vec![b"kept".to_vec()]).await.unwrap();

        let blocked = hold(&journal).await;
        let waiting: Vec<_> = (0..6)
            .map(|_| {
                let (journal, name) = (journal.clone(), name.clone());
                tokio::spawn(async move { journal.append(&name, vec![b"new".to_vec()]).await })
            })
            .collect();
        while journal.stats().queue_depth < 6 {
            tokio::task::yield_now().await;
        }
        // The blocked commit, which is past the first point, passes.
        let past = point == "store::commit::apply";
        fail::cfg(&point, if past { "return" } else { "1*off->return" }).unwrap();
        blocked.release().await.unwrap();
        for waiting in waiting {
            let answer = waiting.await.unwrap();
            assert!(matches!(answer, Err(Error::Full { .. })), "{point}: {answer:?}");
        }
        fail::remove(&point);

        assert!(matches!(journal.stopped().await, StopReason::Poisoned { .. }));
        let refused = journal.append(&name, vec![b"more".to_vec()]).await;
        assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
        assert!(matches!(journal.replay(&name), Err(Error::Poisoned { .. })));
        assert!(journal.stats().poisoned.is_some());

        // A stale handle does not keep the directory locked.
        let (again, recovered) = open(&options).await.unwrap();
        let records = again.replay(&name).unwrap().records;
        assert_eq!(records[0].1, b"kept");
        assert!(records[1..].iter().all(|(_, bytes)| bytes == b"new"));
        assert_eq!(recovered.unacknowledged_commit, records.len() > 1, "{point}");
        again.append(&name, vec![b"after".to_vec()]).await.unwrap();
        let before = contents(&again);
        again.close().await;
        assert_eq!(contents(&opened(&options).await), before);
    }
    scenario.teardown();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_in_the_log_that_was_never_acknowledged_is_kept() {
    let scenario = FailScenario::setup();
    let dir = tempfile::tempdir().unwrap();
    let options = Options::at(dir.path());
    let journal = opened(&options).await;
    let name = stream("fail/a");
    fail::cfg("store::commit::head", "return").unwrap();
    assert!(journal.append(&name, vec![b"x".to_vec()]).await.is_err());
    fail::remove("store::commit::head");
    journal.stopped().await;
    let (journal, recovered) = open(&options).await.unwrap();
    assert!(recovered.unacknowledged_commit);
    assert_eq!(journal.replay(&name).unwrap().records.len(), 1);
    journal.close().await;
    assert!(!open(&options).await.unwrap().1.unacknowledged_commit);
    scenario.teardown();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_the_writer_is_a_failed_commit() {
    let scenario = FailScenario::setup();
    let dir = tempfile::tempdir().unwrap();
    let options = Options::at(dir.path());
    let journal = opened(&options).await;
    fail::cfg("store::commit::apply", "panic(boom)").unwrap();
    let answer = journal.append(&stream("fail/a"), vec![vec![]]).await;
    assert!(
        matches!(&answer, Err(Error::Poisoned { cause }) if cause.contains("boom")),
        "{answer:?}"
    );
    fail::remove("store::commit::apply");
    let stopped = journal.stopped().await;
    assert!(matches!(stopped, StopReason::Poisoned { .. }));
    assert!(opened(&options).await.streams("").unwrap().is_empty());
    scenario.teardown();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_does_not_reach_the_disk_stops_the_journal_and_takes_nothing_back() {
    let scenario = FailScenario::setup();
    let dir = tempfile::tempdir().unwrap();
    let options = Options::at(dir.path());
    let journal = opened(&options).await;
    let name = stream("fail/a");
    journal.append(&name, vec![b"first".to_vec()]).await.unwrap();
    journal.close().await;
    let head = dir.path().join("HEAD");
    let before = std::fs::read(&head).unwrap();

    let journal = opened(&options).await;
    fail::cfg("store::commit::settle", "return").unwrap();
    journal.append(&name, vec![b"second".to_vec()]).await.unwrap();
    assert!(matches!(journal.stopped().await, StopReason::Poisoned { .. }));
    fail::remove("store::commit::settle");
    // State as after a power cut: the log has what was answered, `HEAD` is older.
    std::fs::write(&head, before).unwrap();
    let (journal, recovered) = open(&options).await.unwrap();
    assert!(recovered.unacknowledged_commit);
    let records = journal.replay(&name).unwrap().records;
    assert_eq!(
        records.into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>(),
        [b"first".to_vec(), b"second".to_vec()]
    );
    scenario.teardown();
}
