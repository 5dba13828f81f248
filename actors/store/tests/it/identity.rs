//! Store identity: the right store opens, with all of its files.

use std::fs;

use fail::FailScenario;
use hivekeep_store::{Error, Options};

use crate::util::{contents, files, open, opened, stream};

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_foreign_part_stops_start_up() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for dir in [&one, &two] {
        let journal = opened(&Options::at(dir.path())).await;
        journal.append(&stream("id/a"), vec![b"x".to_vec()]).await.unwrap();
        journal.close().await;
    }
    let from = |name: &str| two.path().join(name);
    for name in ["STORE", "HEAD", "journal"] {
        let path = one.path().join(name);
        let aside = one.path().join("aside");
        fs::rename(&path, &aside).unwrap();
        for foreign in [false, true] {
            if foreign {
                fs::rename(from(name), &path).unwrap();
            }
            let before = files(one.path());
            let found = open(&Options::at(one.path())).await;
            let refused = matches!(&found, Err(Error::Unreadable { .. }));
            assert!(refused, "{name} foreign: {foreign}: {found:?}");
            assert_eq!(files(one.path()), before, "{name} foreign: {foreign}");
            if foreign {
                fs::rename(&path, from(name)).unwrap();
            }
        }
        fs::rename(&aside, &path).unwrap();
    }
    // An empty folder replaces the database.
    fs::rename(one.path().join("journal"), one.path().join("aside")).unwrap();
    fs::create_dir(one.path().join("journal")).unwrap();
    assert!(matches!(open(&Options::at(one.path())).await, Err(Error::Unreadable { .. })));
    assert_eq!(fs::read_dir(one.path().join("journal")).unwrap().count(), 0);
    fs::remove_dir(one.path().join("journal")).unwrap();
    fs::rename(one.path().join("aside"), one.path().join("journal")).unwrap();
    let journal = opened(&Options::at(one.path())).await;
    assert_eq!(journal.replay(&stream("id/a")).unwrap().records.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_a_crash_cut_is_finished() {
    let scenario = FailScenario::setup();
    for point in ["built", "named", "renamed"] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::at(dir.path());
        let point = format!("store::create::{point}");
        fail::cfg(&point, "return").unwrap();
        assert!(open(&options).await.is_err());
        fail::remove(&point);
        let journal = opened(&options).await;
        journal.append(&stream("id/a"), vec![b"x".to_vec()]).await.unwrap();
        journal.close().await;
        assert_eq!(contents(&opened(&options).await).len(), 1, "{point}");
    }
    scenario.teardown();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::at(dir.path());
    let (journal, recovered) = open(&options).await.unwrap();
    assert!(recovered.created);
    assert!(matches!(open(&options).await, Err(Error::Locked { .. })));
    journal.close().await;
    let (_, again) = open(&options).await.unwrap();
    assert!(!again.created);
    assert_eq!(again.store_id, recovered.store_id);
}
