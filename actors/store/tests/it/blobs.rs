//! The blob folder.

use std::collections::HashSet;
use std::fs;
use std::io::Read;

use fail::FailScenario;
use hivekeep_store::{BlobHash, Blobs, Error};

#[test]
fn a_blob_is_named_by_its_contents() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = Blobs::open(dir.path()).unwrap();
    let large = vec![7; 200_000];
    let hash = blobs.put(&large).unwrap();
    assert_eq!(blobs.put_from(&large[..]).unwrap(), hash);
    assert_eq!(hash.to_string().parse::<BlobHash>().unwrap(), hash);
    assert!(hash.to_string().to_uppercase().parse::<BlobHash>().is_err());
    let mut read = vec![];
    blobs.get(&hash).unwrap().read_to_end(&mut read).unwrap();
    assert_eq!(read, large);
    blobs.verify(&hash).unwrap();

    let other = blobs.put(b"").unwrap();
    blobs.remove(&other).unwrap();
    assert!(matches!(blobs.remove(&other), Err(Error::NoBlob { .. })));
    assert!(matches!(blobs.get(&other), Err(Error::NoBlob { .. })));
    assert!(!blobs.contains(&other));
}

#[test]
fn a_changed_blob_does_not_pass() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = Blobs::open(dir.path()).unwrap();
    let hash = blobs.put(b"good").unwrap();
    let name = hash.to_string();
    fs::write(dir.path().join(&name[..2]).join(&name), b"bad").unwrap();
    assert!(matches!(blobs.verify(&hash), Err(Error::Unreadable { .. })));
}

#[test]
fn a_crash_leaves_no_part_under_a_name() {
    let scenario = FailScenario::setup();
    let dir = tempfile::tempdir().unwrap();
    let temp = dir.path().join("tmp");
    let blobs = Blobs::open(dir.path()).unwrap();
    fail::cfg("store::blobs::written", "panic").unwrap();
    let crashed = std::panic::catch_unwind(|| blobs.put(b"half").map(drop));
    assert!(crashed.is_err());
    fail::remove("store::blobs::written");
    assert_eq!(fs::read_dir(&temp).unwrap().count(), 1, "the crash left its file");
    let blobs = Blobs::open(dir.path()).unwrap();
    assert_eq!(fs::read_dir(&temp).unwrap().count(), 0);
    assert_eq!(blobs.sweep(|_| true).unwrap().kept, 0);

    // A reader that fails leaves nothing behind either.
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("broken"))
        }
    }
    assert!(matches!(blobs.put_from(Broken), Err(Error::Io { .. })));
    assert_eq!(fs::read_dir(&temp).unwrap().count(), 0);
    scenario.teardown();
}

#[test]
fn a_sweep_removes_what_nobody_wants() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = Blobs::open(dir.path()).unwrap();
    let hashes: Vec<_> = (0..20u8).map(|n| blobs.put(&[n; 10]).unwrap()).collect();
    let wanted: HashSet<_> = hashes[..5].iter().copied().collect();
    fs::write(dir.path().join("note"), b"not a blob").unwrap();
    let swept = blobs.sweep(|hash| wanted.contains(hash)).unwrap();
    assert_eq!((swept.kept, swept.removed, swept.removed_bytes), (5, 15, 150));
    for hash in &hashes {
        assert_eq!(blobs.contains(hash), wanted.contains(hash));
    }
    assert!(dir.path().join("note").exists());
}
