//! Closing a journal frees its files and its directory.

use std::fs::{self, File};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use hivekeep_store::Options;

use crate::util::{open, opened, stream};

/// Keeps the processors busy, so that threads are preempted at the worst moments.
fn busy() -> impl Drop {
    struct Busy(Arc<AtomicBool>);
    impl Drop for Busy {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let done = Arc::new(AtomicBool::new(false));
    for _ in 0..4 {
        let done = done.clone();
        std::thread::spawn(move || while !done.load(Relaxed) {});
    }
    Busy(done)
}

/// Closing waits for reads that have begun, and for the database's own threads, which keep its log
/// open for a moment after the last write.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_journal_holds_no_file() {
    let busy = busy();
    let dir = tempfile::tempdir().unwrap();
    let options = Options::at(dir.path());
    for round in 0..40 {
        let journal = opened(&options).await;
        for size in [10, 5000] {
            journal.append(&stream("closing/a"), vec![vec![1; size]; 20]).await.unwrap();
        }
        let reader = journal.clone();
        let reader =
            std::thread::spawn(move || while reader.replay(&stream("closing/a")).is_ok() {});
        journal.close().await;
        for file in ["LOCK", "journal/db"] {
            let opened = File::open(dir.path().join(file)).unwrap();
            assert!(
                opened.try_lock().is_ok(),
                "round {round}: {file} of a closed journal is locked"
            );
        }
        reader.join().unwrap();
        fs::remove_dir_all(dir.path()).unwrap();
    }
    drop(busy);
}

/// Locks of an inherited file: a child that is being started has a copy of every file of its
/// parent, with its locks, until it executes its own program.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_started_meanwhile_does_not_keep_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::at(dir.path());
    let done = Arc::new(AtomicBool::new(false));
    let starters: Vec<_> = (0..2)
        .map(|_| {
            let done = done.clone();
            std::thread::spawn(move || {
                while !done.load(Relaxed) {
                    Command::new("true").status().unwrap();
                }
            })
        })
        .collect();
    for round in 0..40 {
        let found = open(&options).await;
        let (journal, _) = found.unwrap_or_else(|error| panic!("round {round}: {error}"));
        journal.close().await;
    }
    done.store(true, Relaxed);
    starters.into_iter().for_each(|starter| starter.join().unwrap());
}
