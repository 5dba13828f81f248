//! `kill -9` at each step of a compaction that runs beside the writer.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use hivekeep_store::Journal;

use crate::churn::{RECORDS, STREAMS, record, small, turn};
use crate::util::{contents, stream};

const DIR_VARIABLE: &str = "STORE_KILLED_TEST_DIR";
const POINT_VARIABLE: &str = "STORE_KILLED_TEST_POINT";
/// Crash points of a compaction, in order.
const POINTS: [&str; 8] =
    ["begun", "built", "verified", "caught_up", "finish", "moved", "swapped", "cleared"];
const RUNTIME: fn() -> std::io::Result<tokio::runtime::Runtime> = tokio::runtime::Runtime::new;

/// Child process that kills itself at its second compaction.
#[test]
#[ignore = "a helper process, started by the test below"]
fn child() {
    let dir = std::env::var(DIR_VARIABLE).expect("started by the test below");
    let point = std::env::var(POINT_VARIABLE).expect("started by the test below");
    let times = std::sync::atomic::AtomicU32::new(0);
    fail::cfg_callback(point, move || {
        if times.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 1 {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .unwrap();
            std::thread::park();
        }
    })
    .unwrap();
    let (journal, _) = Journal::open(small(Path::new(&dir))).unwrap();
    let first = journal.replay(&stream("kept/a")).unwrap().last().get();
    RUNTIME().unwrap().block_on(async {
        for round in first..first + 3000 {
            turn(&journal, round).await;
            std::io::stdout().write_all(format!("ACK {}\n", round + 1).as_bytes()).unwrap();
        }
    });
}

/// Runs the child until it kills itself; returns the number of turns it reported as done.
fn run(dir: &Path, point: &str) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["killed::child", "--exact", "--ignored", "--nocapture"])
        .env(DIR_VARIABLE, dir)
        .env(POINT_VARIABLE, format!("store::compact::{point}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let said = output.split(b'\n').map_while(Result::ok).filter_map(|line| {
        // A number cut short by the kill is smaller and changes nothing.
        String::from_utf8_lossy(&line).strip_prefix("ACK ").and_then(|text| text.parse().ok())
    });
    let acknowledged = said.max().expect("the child gets something done");
    assert_eq!(child.wait().unwrap().signal(), Some(9), "{point}: it was not reached");
    acknowledged
}

#[test]
fn what_was_acknowledged_survives_a_kill_at_every_step_of_a_compaction() {
    let dir = tempfile::tempdir().unwrap();
    for point in POINTS {
        let acknowledged = run(dir.path(), point);
        // Opened without compaction, so that the next child begins where this one was killed.
        let options = hivekeep_store::Options { compact_at_mb: 512, ..small(dir.path()) };
        let (journal, _) = Journal::open(options).unwrap();
        let found = contents(&journal);
        let kept = &found["kept/a"].records;
        let rounds = kept.len() as u64;
        assert!(rounds >= acknowledged, "{point}: {rounds} of {acknowledged}");
        for ((_, bytes), round) in kept.iter().zip(0u64..) {
            assert_eq!(*bytes, round.to_le_bytes(), "{point}");
        }
        // The turn after the last one may have begun: its stream is left out.
        for round in rounds.saturating_sub(STREAMS - 1)..rounds {
            let replay = &found[&format!("churn/{}", round % STREAMS)];
            assert_eq!(replay.records.len(), RECORDS, "{point}: {round}");
            for ((_, bytes), number) in replay.records.iter().zip(0..) {
                assert!(*bytes == record(round, number), "{point}: {round}");
            }
        }
        RUNTIME().unwrap().block_on(journal.close());
        for left in ["journal.old", "journal.compact", "journal.probe"] {
            assert!(!dir.path().join(left).exists(), "{point}: {left} is left");
        }
    }
}
