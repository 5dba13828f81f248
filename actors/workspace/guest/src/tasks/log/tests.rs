//! What is read back is what was written, whatever a machine's end left of the rest.

use proptest::prelude::*;

use super::*;

fn read(path: &Path) -> (TaskLog, Vec<Vec<u8>>) {
    let mut records = Vec::new();
    let log = TaskLog::open(path, |_, record| {
        records.push(record.to_vec());
        Ok(())
    });
    (log.expect("a log"), records)
}

fn new() -> (tempfile::TempDir, PathBuf, TaskLog) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("log");
    let log = TaskLog::create(&path, std::iter::empty()).expect("made").0;
    (dir, path, log)
}

fn record(n: usize, bytes: usize) -> Vec<u8> {
    format!("{n}:{}", "x".repeat(bytes)).into_bytes()
}

#[test]
fn records_are_read_back_in_their_order_and_at_their_places() {
    let (_dir, path, mut log) = new();
    let long = record(2, 300 * 1024);
    let mut places = log.append(&[record(0, 9), record(1, 0)], LogFlush::Now).expect("added");
    places.extend(log.append(std::slice::from_ref(&long), LogFlush::WithTheNext).expect("added"));
    let wanted = vec![record(0, 9), record(1, 0), long];
    let (again, found) = read(&path);
    assert_eq!(found, wanted);
    for log in [&log, &again] {
        let found: Vec<_> = places.iter().map(|at| log.record(*at).expect("there")).collect();
        assert_eq!(found, wanted);
    }
    let anew = wanted.iter().cloned().map(Ok);
    let (log, places) = TaskLog::create(&path, anew).expect("written anew");
    assert_eq!(log.record(places[2]).expect("there"), wanted[2]);
    assert_eq!(read(&path).1, wanted);
    assert!(!staged(&path).exists());
}

#[test]
fn a_record_changes_neither_the_files_length_nor_what_is_there() {
    let (_dir, path, mut log) = new();
    let length = || std::fs::metadata(&path).expect("there").len();
    let before = length();
    for n in 0..200 {
        log.append(&[record(n, 100)], LogFlush::Now).expect("added");
    }
    assert_eq!(length(), before, "200 tasks need no room of the file system");
    assert_eq!(read(&path).1.len(), 200);
}

#[test]
fn what_was_on_the_disk_before_what_precedes_it_never_comes_to_life() {
    let (_dir, path, mut log) = new();
    log.append(&[record(0, 5)], LogFlush::Now).expect("added");
    let at = log.end;
    log.append(&[record(1, 5)], LogFlush::WithTheNext).expect("added");
    log.append(&[record(2, 5)], LogFlush::WithTheNext).expect("added");
    // The machine's end: of the two that were not flushed only the later one was written.
    let length = (log.end - at) / 2;
    log.file.write_all_at(&vec![0; length as usize], at).expect("lost");
    let (mut log, found) = read(&path);
    assert_eq!(found, [record(0, 5)]);
    log.append(&[record(3, 5)], LogFlush::Now).expect("added");
    assert_eq!(read(&path).1, [record(0, 5), record(3, 5)]);
}

#[test]
fn a_record_that_is_none_is_refused_and_another_file_is_no_log() {
    let (dir, _path, mut log) = new();
    for bad in [vec![], vec![0; MAX_RECORD_BYTES + 1]] {
        let error = log.append(&[record(0, 1), bad], LogFlush::Now).expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    let other = dir.path().join("other");
    std::fs::write(&other, "x".repeat(100)).expect("written");
    let error = TaskLog::open(&other, |_, _| Ok(())).expect_err("no log");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// One byte of the last records is another: what is before it is there, and nothing else.
    #[test]
    fn a_torn_end_is_cut_off(
        sizes in proptest::collection::vec(0usize..2000, 1..20),
        torn in any::<prop::sample::Index>(),
        flip in 1u8..,
    ) {
        let (_dir, path, mut log) = new();
        let records: Vec<_> = sizes.iter().enumerate().map(|(n, bytes)| record(n, *bytes)).collect();
        let places: Vec<_> = records
            .iter()
            .map(|record| log.append(std::slice::from_ref(record), LogFlush::WithTheNext).unwrap()[0])
            .collect();
        let at = FIRST_AT + torn.index((log.end - FIRST_AT) as usize) as u64;
        let mut byte = [0];
        log.file.read_exact_at(&mut byte, at).unwrap();
        log.file.write_all_at(&[byte[0] ^ flip], at).unwrap();
        let whole = places.iter().filter(|place| **place <= at).count() - 1;
        let (mut log, found) = read(&path);
        prop_assert_eq!(&found, &records[..whole]);
        log.append(&[b"on".to_vec()], LogFlush::Now).unwrap();
        let mut wanted = records[..whole].to_vec();
        wanted.push(b"on".to_vec());
        prop_assert_eq!(read(&path).1, wanted);
    }
}
