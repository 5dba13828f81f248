//! A disk that has no room.

use std::path::{Path, PathBuf};

use hivekeep_protocol::*;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::{results, task};
use crate::client::Host;
use crate::guest::{Guest, eventually, ways};

/// A file system of 512 KiB, until it is dropped.
struct Small(PathBuf);

impl Small {
    fn at(path: &Path) -> Option<Self> {
        match mount("tmpfs", path, "tmpfs", MountFlags::empty(), c"size=512k") {
            Ok(()) => Some(Self(path.to_path_buf())),
            Err(error) => {
                hivekeep_skip::skip(format_args!("cannot mount a small file system here: {error}"));
                None
            }
        }
    }

    fn fill(&self) {
        let filled = std::fs::write(self.0.join("filler"), vec![0; 1024 * 1024]);
        assert_eq!(filled.expect_err("full").kind(), std::io::ErrorKind::StorageFull);
    }

    fn empty(&self) {
        std::fs::remove_file(self.0.join("filler")).expect("removed");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// The log is written ahead: a task that asks for much takes all of that but for some bytes.
async fn leave_no_room_in(log: &Path, host: &Host) {
    const LEFT: usize = 150;
    // Of the task that begins and of its end, beside what it asks for.
    const RECORDS: usize = 800;
    let left = || {
        let bytes = std::fs::read(log).expect("a log");
        bytes.iter().rev().take_while(|byte| **byte == 0).count()
    };
    let command = format!("true #{}", "x".repeat(left() - RECORDS - LEFT));
    host.ask(task("pads", &command)).await.expect("taken");
    assert_eq!(results(host, 1).await["pads"].outcome, GuestTaskOutcome::Ended(Exit::Code(0)));
    assert!(left() < 340, "{} bytes are enough for an end", left());
}

#[tokio::test]
async fn a_full_disk_is_an_answer_and_loses_nothing_that_was_acknowledged() {
    let mut guest = Guest::start(ways()[0]);
    guest.stop();
    let state = guest.dir.path().join("state");
    let Some(disk) = Small::at(&state) else { return };
    guest.go_on();
    let host = Host::to(&guest).await;
    let dir = guest.dir.path().display().to_string();
    let line =
        format!("echo x >> {dir}/began; while [ ! -e {dir}/go ]; do sleep 0.05; done; exit 4");
    host.ask(task("runs", &line)).await.expect("taken");
    eventually("it runs", || guest.dir.path().join("began").exists());

    leave_no_room_in(&state.join("tasks/log"), &host).await;
    disk.fill();
    let late = || task("late", &format!("true #{}", "x".repeat(100_000)));
    let refused = host.ask(late()).await.expect_err("no room");
    assert_eq!(refused.code, GuestCode::NoSpace, "{refused}");
    std::fs::write(guest.dir.path().join("go"), "").expect("go");
    // Its end cannot be written down: it is not lost, and nothing is said that may not last.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let listed = host.ask(TaskList).await.expect("a list");
    assert_eq!((listed.running, listed.queued, listed.results), (vec!["runs".into()], vec![], 1));

    disk.empty();
    let result = results(&host, 2).await.remove("runs").expect("its result");
    assert_eq!(result.outcome, GuestTaskOutcome::Ended(Exit::Code(4)));
    let taken = host.ask(late()).await.expect("room");
    assert!(!taken.repeat);
    assert_eq!(results(&host, 3).await["late"].outcome, GuestTaskOutcome::Ended(Exit::Code(0)));
    drop(host);
    guest.stop();
    drop(disk);
}
