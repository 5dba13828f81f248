//! Compaction at start-up, and a crash at each of its steps.

use fail::FailScenario;
use hivekeep_store::{Error, Options};

use crate::util::{contents, files, open, opened, restore, stream};

/// Writes much and leaves little live. The log grows by half a megabyte at a time: several times, here.
async fn churn(options: &Options) {
    let journal = opened(options).await;
    for round in 0..150u8 {
        let name = stream(&format!("churn/{}", round % 3));
        let last = journal.append(&name, vec![vec![round; 3000]; 20]).await.unwrap();
        journal.snapshot(&name, last, vec![round; 100]).await.unwrap();
    }
    journal.append(&stream("churn/0"), vec![b"live".to_vec()]).await.unwrap();
    journal.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_gives_space_back_and_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let keep = Options::at(dir.path());
    churn(&keep).await;
    let journal = opened(&keep).await;
    let before = contents(&journal);
    journal.close().await;
    let (journal, recovered) = open(&Options { compact_at_mb: 0, ..keep }).await.unwrap();
    let gained = recovered.compacted.unwrap();
    assert!(gained.after_bytes * 2 < gained.before_bytes, "{gained:?}");
    assert_eq!(contents(&journal), before);
    journal.append(&stream("churn/0"), vec![b"more".to_vec()]).await.unwrap();
    journal.close().await;
    let journal = opened(&Options::at(dir.path())).await;
    assert_eq!(journal.replay(&stream("churn/0")).unwrap().records.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_survives_a_crash_at_every_step() {
    let scenario = FailScenario::setup();
    let dir = tempfile::tempdir().unwrap();
    let keep = Options::at(dir.path());
    churn(&keep).await;
    let journal = opened(&keep).await;
    let before = contents(&journal);
    journal.close().await;
    let start = files(dir.path());
    let compact = Options { compact_at_mb: 0, ..keep.clone() };
    for step in ["built", "verified", "moved", "swapped"] {
        let point = format!("store::compact::{step}");
        restore(dir.path(), &start);
        fail::cfg(&point, "return").unwrap();
        assert!(matches!(open(&compact).await, Err(Error::Full { .. })), "{step}");
        fail::remove(&point);
        let journal = opened(&keep).await;
        assert_eq!(contents(&journal), before, "{step}");
        journal.close().await;
        for left in ["journal.old", "journal.compact", "journal.probe"] {
            assert!(!dir.path().join(left).exists(), "{step}: {left} is left");
        }
    }
    scenario.teardown();
}
