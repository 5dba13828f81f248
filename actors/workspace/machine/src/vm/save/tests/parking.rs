//! Forks that are parked and woken: their memory is read from outside, or written by QEMU where it cannot be.

use super::super::devices;
use super::*;
use crate::ParkRequest;

const RANDOM: &str =
    "head -c 8000000 /dev/urandom > /dev/shm/x; head -c 9000 /dev/zero >> /dev/shm/x; sync";
const SEEN: &str = "sha256sum < /dev/shm/x; sha256sum < /root/y; hostname";

impl Bench {
    /// Parks a fork, wakes it, and answers how many bytes its memory took.
    async fn sleep(&self, fork: Fork, base: Option<&SnapshotFolder>, name: &str) -> (Fork, u64) {
        let (driver, into) = (&self.driver, SnapshotFolder::new(self.path(name)));
        let request = ParkRequest { into: into.clone(), base: base.cloned() };
        let first = counter(&fork.link).await;
        run(&fork.link, "head -c 100000 /dev/urandom > /root/y").await;
        let before = run(&fork.link, SEEN).await;
        let parked = driver.park(&fork.handle, &fork.plan, &request).await.unwrap();
        driver.kill(&fork.handle).await.unwrap();
        eprintln!("{name}: {parked:?}");
        drop(fork.link);
        driver.prepare(&fork.plan).await.unwrap();
        let handle = driver.wake(&fork.plan, &request).await.unwrap().handle;
        self.living.lock().unwrap().push(handle.process);
        driver.resume(&handle).await.unwrap();
        let link = connect(&handle, &fork.token).await.unwrap();
        assert_eq!(run(&link, SEEN).await, before);
        assert!(counter(&link).await >= first);
        goes_on(&link, counter(&link).await).await;
        into.remove().unwrap();
        (Fork { handle, link, ..fork }, parked.ram_bytes)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_is_parked_by_what_it_changed_and_wakes_as_it_was() {
    let bench = bench_or_skip!();
    let (snapshot, saved) = bench.save(&bench.handle, &bench.plan, "one").await;
    let frozen = bench.plan.disk().top;
    // The head that is written here is the one that QEMU itself writes.
    let head = devices::head();
    assert_eq!(std::fs::read(snapshot.device()).unwrap()[..head.len()], head);
    let image_bytes = saved.memory.unwrap().ram_bytes;

    let fork = bench.fork(1, vec![frozen.clone()], &snapshot, &bench.token).await;
    run(&fork.link, RANDOM).await;
    let (fork, bytes) = bench.sleep(fork, Some(&snapshot), "over-its-image").await;
    assert!((8_000_000..image_bytes / 2).contains(&bytes), "{bytes} of {image_bytes}");
    // Its memory is its own now.
    let (fork, _) = bench.sleep(fork, Some(&snapshot), "of-its-own").await;
    bench.end(&fork.plan, &fork.handle).await;

    let fork = bench.fork(2, vec![frozen.clone()], &snapshot, &bench.token).await;
    run(&fork.link, RANDOM).await;
    let (fork, bytes) = bench.sleep(fork, None, "without-a-base").await;
    assert!(bytes > 8_000_000, "all of it: {bytes}");
    bench.end(&fork.plan, &fork.handle).await;

    // As an earlier daemon left it: nobody knows where its image is.
    let mut fork = bench.fork(3, vec![frozen], &snapshot, &bench.token).await;
    run(&fork.link, RANDOM).await;
    fork.handle.memory.as_mut().unwrap().ram = RamLocation::Private { image: None };
    let (fork, _) = bench.sleep(fork, Some(&snapshot), "by-qemu").await;
    bench.end(&fork.plan, &fork.handle).await;
    bench.driver.discard_snapshot(&snapshot).await.unwrap();
    bench.end(&bench.plan, &bench.handle).await;
    bench.driver.host_env.cgroups.leave();
}
