//! Full disk, on a real file system.

use std::path::Path;
use std::process::Command;

use hivekeep_store::{Error, Options, Seq, StopReason, SubscriptionItem, reserved_bytes};

use crate::util::{open, opened, stream};

struct Small(tempfile::TempDir);

impl Small {
    /// Mounts a file system of a few megabytes; `None` where mounting is not allowed.
    fn mount(megabytes: u32) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "store-test"])
            .arg(dir.path())
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(Small(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_said_and_loses_nothing() {
    let Some(disk) = Small::mount(8) else {
        return hivekeep_skip::skip("a full disk needs the right to mount a tmpfs");
    };
    let options = Options { reserve_mb: 0, ..Options::at(disk.path().join("state")) };
    let journal = opened(&options).await;
    let name = stream("full/a");
    let filler = disk.path().join("filler");
    let mut acknowledged = 0;
    journal.append(&name, vec![vec![1; 1000]]).await.unwrap();
    acknowledged += 1;
    // Leaves less than one log segment.
    let bytes = rustix::fs::statvfs(disk.path()).map(|fs| fs.f_bavail * fs.f_bsize).unwrap();
    std::fs::write(&filler, vec![0; bytes as usize - 300_000]).unwrap();
    let error = loop {
        match journal.append(&name, vec![vec![1; 1000]; 20]).await {
            Ok(seq) => acknowledged = seq.get(),
            Err(error) => break error,
        }
        assert!(acknowledged < 100_000, "the disk never filled");
    };
    assert!(matches!(error, Error::Full { .. }), "{error:?}");
    assert!(matches!(journal.stopped().await, StopReason::Poisoned { .. }));
    // There is no room for the check: this is reported, and nothing is lost by it.
    let refused = open(&options).await;
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");

    std::fs::remove_file(filler).unwrap();
    let (journal, _) = open(&options).await.unwrap();
    assert!(journal.replay(&name).unwrap().last().get() >= acknowledged);
    journal.append(&name, vec![b"room again".to_vec()]).await.unwrap();
    journal.close().await;
}

/// Fills the disk to the last byte.
fn fill(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    for size in [1 << 20, 4096, 1] {
        while std::io::Write::write_all(&mut file, &vec![0; size]).is_ok() {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_goes_on_and_starts_on_a_disk_that_others_filled() {
    let Some(disk) = Small::mount(64) else {
        return hivekeep_skip::skip("a full disk needs the right to mount a tmpfs");
    };
    let options = Options { reserve_mb: 16, ..Options::at(disk.path().join("state")) };
    let journal = opened(&options).await;
    let name = stream("full/a");
    let filler = disk.path().join("filler");
    journal.append(&name, vec![vec![1; 1000]]).await.unwrap();
    assert_eq!(reserved_bytes(&options.dir), 12 << 20);
    fill(&filler);
    // More data than a segment of the log holds.
    let mut acknowledged = 1;
    for _ in 0..30 {
        acknowledged = journal.append(&name, vec![vec![1; 1000]; 20]).await.unwrap().get();
    }
    journal.close().await;
    fill(&disk.path().join("more"));

    let (journal, recovered) = open(&options).await.unwrap();
    assert_eq!(reserved_bytes(&options.dir), 0, "it was given up for the start");
    assert!(!recovered.unacknowledged_commit);
    assert_eq!(journal.replay(&name).unwrap().last().get(), acknowledged);
    journal.append(&name, vec![b"on a full disk".to_vec()]).await.unwrap();

    // The reserve refills by itself, and both changes are published.
    std::fs::remove_file(filler).unwrap();
    let mut events = journal.events().subscribe(Some(Seq::FIRST), 16);
    let mut whole = Vec::new();
    while whole.last() != Some(&true) {
        let SubscriptionItem::Event(event) = events.next().await.unwrap() else {
            panic!("none is missed")
        };
        whole.extend((event.kind == "journal.reserve").then(|| event.data["whole"] == true));
    }
    assert_eq!(whole.first(), Some(&false));
    assert_eq!(reserved_bytes(&options.dir), 12 << 20);
    journal.close().await;
}
