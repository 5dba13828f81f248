//! Meter of the memory of a tree of processes: what they have beyond what they share with files.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

const LOOK: Duration = Duration::from_secs(1);
/// Processes that are looked at; a browser has some dozens.
const MOST: usize = 512;

/// Waits until the processes below `root`, itself included, take more; answers with the amount in MiB.
pub(crate) async fn beyond(root: u32, memory_mb: u64) -> u64 {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        // Files of /proc: a kilobyte each, and nothing to wait for.
        let taken = tokio::task::spawn_blocking(move || of_tree(root)).await.unwrap_or_default();
        let taken_mb = taken / (1024 * 1024);
        if taken_mb > memory_mb {
            return taken_mb;
        }
    }
}

/// Bytes of a tree of processes.
fn of_tree(root: u32) -> u64 {
    let page = rustix::param::page_size() as u64;
    let (mut found, mut at, mut pages) = (vec![root], 0, 0);
    while let Some(pid) = found.get(at).copied().filter(|_| at < MOST) {
        at += 1;
        let text = |path: String| std::fs::read_to_string(path).unwrap_or_default();
        let statm = text(format!("/proc/{pid}/statm"));
        let mut numbers = statm.split(' ').skip(1).map(|it| it.parse::<u64>().unwrap_or_default());
        let (resident, of_files) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        pages += resident.saturating_sub(of_files);
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children = std::fs::read_to_string(thread.path().join("children"));
            let children = children.unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|it| it.parse::<u32>().ok()));
        }
    }
    pages * page
}
