//! `kill -9` at any moment: everything acknowledged is there, without a gap.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use hivekeep_store::{Journal, NewEvent, Options, Seq};

use crate::util::stream;

const DIR_VARIABLE: &str = "STORE_CRASH_TEST_DIR";
const THREADS: usize = 8;
const ROUNDS: u64 = 20;

fn options(dir: &str) -> Options {
    Options { queue_records: 4, commit_max_records: 5, ..Options::at(dir) }
}

/// Child process that gets killed. Appends from eight threads, each to a stream of its own, and
/// prints what was acknowledged. Stream 0 also publishes, stream 1 also compacts.
#[test]
#[ignore = "a helper process, started by the test below"]
fn child() {
    let dir = std::env::var(DIR_VARIABLE).expect("started by the test below");
    let (journal, _) = Journal::open(options(&dir)).unwrap();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let journal = journal.clone();
            std::thread::spawn(move || append_for_ever(&journal, thread))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

fn append_for_ever(journal: &Journal, thread: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let name = stream(&format!("crash/{thread}"));
    let mut last = journal.replay(&name).unwrap().last();
    runtime.block_on(async {
        loop {
            let size = 1 + last.get() as usize % 3;
            let expected = Seq::new(last.get() + size as u64);
            let records =
                (1..=size as u64).map(|n| record(thread, last.get() + n)).collect::<Vec<_>>();
            let events = match thread {
                0 => records.iter().map(|_| published()).collect(),
                _ => vec![],
            };
            last = journal.append_and_publish(&name, records, events).await.unwrap();
            assert_eq!(last, expected);
            let line = format!("ACK {thread} {last}\n");
            std::io::stdout().write_all(line.as_bytes()).unwrap();
            if thread == 1 && last.get() % 7 < 3 {
                journal.snapshot(&name, last, last.get().to_string().into()).await.unwrap();
            }
        }
    });
}

fn published() -> NewEvent {
    NewEvent { kind: "appended".into(), subject: "crash/0".into(), data: 0.into() }
}

fn record(thread: usize, seq: u64) -> Vec<u8> {
    let mut bytes = format!("{thread}:{seq}:").into_bytes();
    bytes.resize(bytes.len() + (seq as usize * 131) % 9000, seq as u8);
    bytes
}

#[test]
fn what_was_acknowledged_survives_sigkill() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let mut acknowledged = HashMap::<usize, u64>::new();
    for round in 0..ROUNDS {
        run_and_kill(path, Duration::from_millis(3 + round * 41 % 113), &mut acknowledged);
        check(path, &acknowledged);
    }
    assert_eq!(acknowledged.len(), THREADS, "every thread got something done");
}

fn run_and_kill(dir: &str, after: Duration, acknowledged: &mut HashMap<usize, u64>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["crash::child", "--exact", "--ignored", "--nocapture"])
        .env(DIR_VARIABLE, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (seen, first) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut acks = Vec::new();
        // The kill may cut the last line short.
        for line in output.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            let words: Vec<_> = line.split(' ').collect();
            if let ["ACK", thread, seq] = words[..] {
                acks.push((thread.parse::<usize>().unwrap(), seq.parse::<u64>().unwrap()));
                let _ = seen.send(());
            }
        }
        acks
    });
    first.recv().expect("the child acknowledges something");
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    for (thread, seq) in reader.join().unwrap() {
        let last = acknowledged.entry(thread).or_default();
        // A number cut short by the kill is smaller and changes nothing.
        *last = (*last).max(seq);
    }
}

fn check(dir: &str, acknowledged: &HashMap<usize, u64>) {
    let (journal, _) = Journal::open(options(dir)).unwrap();
    for (thread, seq) in acknowledged {
        let replay = journal.replay(&stream(&format!("crash/{thread}"))).unwrap();
        assert!(replay.last().get() >= *seq, "thread {thread}: {seq} was acknowledged");
        if let Some((upto, bytes)) = &replay.snapshot {
            assert_eq!(bytes, upto.get().to_string().as_bytes());
        }
        for (seq, bytes) in &replay.records {
            assert_eq!(*bytes, record(*thread, seq.get()));
        }
    }
    let appended = journal.replay(&stream("crash/0")).unwrap().last();
    assert_eq!(journal.events().last(), appended, "a record and its event commit together");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(journal.close());
}
