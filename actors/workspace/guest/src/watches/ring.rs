//! Ring of changes: the last of them, each with a number.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hivekeep_protocol::{ChangeKind, WatchChange, WatchChanges, limits};

/// Changes that are kept, and the size of their paths.
const KEPT: usize = 4096;
const KEPT_BYTES: usize = 1024 * 1024;

/// Changes of one watch.
#[derive(Debug)]
pub(super) struct ChangeRing {
    kept: VecDeque<KeptChange>,
    bytes: usize,
    /// Number of the last change.
    last: u64,
    /// Number of the last change that was dropped.
    dropped: u64,
    /// Number of the last change that a reader has.
    read: u64,
    read_at: Instant,
}

#[derive(Debug)]
enum KeptChange {
    Change(WatchChange),
    /// Changes are missing here.
    Gap(u64),
}

impl KeptChange {
    fn seq(&self) -> u64 {
        match self {
            Self::Change(change) => change.seq,
            Self::Gap(seq) => *seq,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Change(change) => change.path.len(),
            Self::Gap(_) => 0,
        }
    }
}

impl ChangeRing {
    pub(super) fn new(now: Instant) -> Self {
        let kept = VecDeque::new();
        Self { kept, bytes: 0, last: 0, dropped: 0, read: 0, read_at: now }
    }

    /// Keeps a change. One more write of what was written last, and not read since, is the same.
    pub(super) fn push(&mut self, kind: ChangeKind, path: String) {
        if let Some(KeptChange::Change(last)) = self.kept.back()
            && kind == ChangeKind::Write
            && (last.kind, &last.path) == (kind, &path)
            && last.seq > self.read
        {
            return;
        }
        let seq = self.last + 1;
        self.keep(KeptChange::Change(WatchChange { seq, kind, path }));
    }

    /// Notes that some are missing here.
    pub(super) fn gap(&mut self) {
        if !matches!(self.kept.back(), Some(KeptChange::Gap(seq)) if *seq > self.read) {
            self.keep(KeptChange::Gap(self.last + 1));
        }
    }

    fn keep(&mut self, change: KeptChange) {
        self.last = change.seq();
        self.bytes += change.bytes();
        self.kept.push_back(change);
        while self.kept.len() > KEPT || self.bytes > KEPT_BYTES {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.bytes -= oldest.bytes();
            self.dropped = oldest.seq();
        }
    }

    /// Changes behind a number, as many as one answer takes.
    pub(super) fn read(&mut self, after: u64, now: Instant) -> WatchChanges {
        self.read_at = now;
        let mut answer = WatchChanges {
            next: after.min(self.last),
            lost: after < self.dropped,
            ..WatchChanges::default()
        };
        let mut bytes = 0;
        let first = self.kept.partition_point(|kept| kept.seq() <= after);
        for kept in self.kept.range(first..) {
            bytes += kept.bytes();
            if answer.changes.len() == limits::MAX_CHANGES || bytes > limits::MAX_CHANGES_BYTES {
                break;
            }
            answer.next = kept.seq();
            match kept {
                KeptChange::Change(change) => answer.changes.push(change.clone()),
                KeptChange::Gap(_) => answer.lost = true,
            }
        }
        if answer.lost {
            answer.next = answer.next.max(self.dropped);
        }
        self.read = self.read.max(answer.next);
        answer
    }

    /// True if nobody has read for [`limits::WATCH_IDLE_SECS`].
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.read_at) > Duration::from_secs(limits::WATCH_IDLE_SECS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seqs(read: &WatchChanges) -> Vec<u64> {
        read.changes.iter().map(|change| change.seq).collect()
    }

    #[test]
    fn the_last_changes_are_kept_and_a_late_reader_is_told_once() {
        let now = Instant::now();
        let mut ring = ChangeRing::new(now);
        assert_eq!(ring.read(7, now), WatchChanges::default());
        for n in 0..KEPT + 10 {
            ring.push(ChangeKind::Create, n.to_string());
        }
        let late = ring.read(0, now);
        assert_eq!((late.lost, late.changes.len(), late.changes[0].seq), (true, 1000, 11));
        let (mut after, mut seen) = (late.next, 1000);
        loop {
            let read = ring.read(after, now);
            if read.changes.is_empty() {
                break;
            }
            assert!(!read.lost && read.changes[0].seq == after + 1);
            (after, seen) = (read.next, seen + read.changes.len());
        }
        assert_eq!((seen, after), (KEPT, KEPT as u64 + 10));
        ring.gap();
        ring.gap();
        let gap = ring.read(after, now);
        assert_eq!((gap.lost, gap.changes.len(), gap.next), (true, 0, after + 1));
        assert!(!ring.read(gap.next, now).lost);
    }

    #[test]
    fn writes_in_a_row_are_one_until_it_is_read() {
        let now = Instant::now();
        let mut ring = ChangeRing::new(now);
        for _ in 0..3 {
            ring.push(ChangeKind::Write, "f".into());
        }
        ring.push(ChangeKind::Write, "g".into());
        assert_eq!(seqs(&ring.read(0, now)), [1, 2]);
        ring.push(ChangeKind::Write, "g".into());
        assert_eq!(seqs(&ring.read(2, now)), [3]);
        assert_eq!(seqs(&ring.read(0, now)), [1, 2, 3], "reading consumes nothing");
    }

    #[test]
    fn long_paths_have_a_bound_of_their_own_and_idleness_a_time() {
        let now = Instant::now();
        let mut ring = ChangeRing::new(now);
        for n in 0..1000 {
            ring.push(ChangeKind::Create, format!("{n:04000}"));
        }
        assert!(ring.bytes <= KEPT_BYTES && ring.kept.len() < 300);
        let read = ring.read(0, now);
        let bytes: usize = read.changes.iter().map(|change| change.path.len()).sum();
        assert!(read.lost && bytes <= limits::MAX_CHANGES_BYTES);
        let long = Duration::from_secs(limits::WATCH_IDLE_SECS);
        assert!(!ring.is_idle(now + long) && ring.is_idle(now + long + Duration::from_secs(1)));
    }
}
