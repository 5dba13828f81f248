//! A write-back cache of one file: what is on the disk, and what was changed since.

use fastrand::Rng;

/// What a disk writes at once, at most.
const PAGE: usize = 4096;

/// A file's bytes.
#[derive(Default)]
pub(crate) struct Contents {
    now: Vec<u8>,
    synced: Vec<u8>,
    since: Vec<Change>,
    /// Where the blocks end that were asked for beyond its length.
    pub(crate) reserved: usize,
}

enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Resize { from: usize, to: usize },
}

/// What becomes of the changes that were not synced.
enum Fate {
    Lost,
    Kept,
    /// In their order so many, and of the next one so many bytes.
    Prefix(usize, usize),
    /// Of each page one of the states that it had.
    Pages,
}

impl Change {
    /// Where it changes what was there.
    fn range(&self) -> (usize, usize) {
        match self {
            Self::Write { at, bytes } => (*at, at + bytes.len()),
            Self::Resize { from, to } => (*to, (*from).max(*to)),
        }
    }

    fn size_after(&self, size: usize) -> usize {
        match self {
            Self::Write { at, bytes } => size.max(at + bytes.len()),
            Self::Resize { to, .. } => *to,
        }
    }

    /// Applies what of it lies below `upto`, to a piece of a file that begins at `start`.
    fn apply(&self, piece: &mut [u8], start: usize, upto: usize) {
        let (from, to) = self.range();
        let (from, to) = (from.max(start), to.min(upto).min(start + piece.len()));
        if from >= to {
            return;
        }
        let piece = &mut piece[from - start..to - start];
        match self {
            Self::Write { at, bytes } => piece.copy_from_slice(&bytes[from - at..to - at]),
            Self::Resize { .. } => piece.fill(0),
        }
    }
}

impl Contents {
    /// A file that is on the disk.
    pub(crate) fn on_disk(bytes: &[u8]) -> Self {
        let (now, synced) = (bytes.to_vec(), bytes.to_vec());
        Self { now, synced, ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.now.len()
    }

    pub(crate) fn read(&self, at: usize, most: usize) -> &[u8] {
        let from = at.min(self.now.len());
        &self.now[from..from.saturating_add(most).min(self.now.len())]
    }

    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        self.change(Change::Write { at, bytes: bytes.to_vec() });
    }

    pub(crate) fn resize(&mut self, to: usize) {
        self.change(Change::Resize { from: self.now.len(), to });
    }

    fn change(&mut self, change: Change) {
        change_all(&mut self.now, &change);
        self.since.push(change);
    }

    /// Brings all of it onto the disk.
    pub(crate) fn sync(&mut self) {
        for change in self.since.drain(..) {
            change_all(&mut self.synced, &change);
        }
    }

    /// What is found after a power cut, and whether it is another than what was there.
    pub(crate) fn survivor(&self, rng: &mut Rng) -> (Vec<u8>, bool) {
        let fate = match rng.u8(..4) {
            0 => Fate::Lost,
            1 => Fate::Kept,
            2 => {
                let kept = rng.usize(..=self.since.len());
                let (from, to) = self.since.get(kept).map_or((0, 0), Change::range);
                Fate::Prefix(kept, rng.usize(from..=to))
            }
            _ => Fate::Pages,
        };
        let found = self.after(&fate, rng);
        let lost = found != self.now;
        (found, lost)
    }

    fn after(&self, fate: &Fate, rng: &mut Rng) -> Vec<u8> {
        let kept = match fate {
            Fate::Lost => 0,
            Fate::Kept => self.since.len(),
            Fate::Prefix(kept, _) => *kept,
            Fate::Pages => rng.usize(..=self.since.len()),
        };
        let sizes = self.since[..kept].iter();
        let mut size = sizes.fold(self.synced.len(), |size, change| change.size_after(size));
        if let (Fate::Prefix(_, torn), Some(Change::Write { .. })) = (fate, self.since.get(kept)) {
            size = size.max(*torn);
        }
        let mut found = self.synced.clone();
        found.resize(size, 0);
        for (number, page) in found.chunks_mut(PAGE).enumerate() {
            let start = number * PAGE;
            let touches = |change: &&Change| {
                let (from, to) = change.range();
                from < start + PAGE && to > start
            };
            let count = match fate {
                Fate::Pages => rng.usize(..=self.since.iter().filter(touches).count()),
                _ => self.since[..kept].iter().filter(touches).count(),
            };
            for change in self.since.iter().filter(touches).take(count) {
                change.apply(page, start, usize::MAX);
            }
            if let (Fate::Prefix(kept, torn), true) = (fate, kept < self.since.len()) {
                self.since[*kept].apply(page, start, *torn);
            }
        }
        found
    }
}

fn change_all(bytes: &mut Vec<u8>, change: &Change) {
    bytes.resize(change.size_after(bytes.len()), 0);
    change.apply(bytes, 0, usize::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that is ever found in many cuts.
    fn found(contents: &Contents) -> std::collections::BTreeSet<Vec<u8>> {
        (0..2000).map(|seed| contents.survivor(&mut Rng::with_seed(seed)).0).collect()
    }

    #[test]
    fn what_was_synced_is_found_and_the_rest_in_any_of_its_states() {
        let mut contents = Contents::default();
        contents.write(0, b"old");
        contents.sync();
        assert_eq!(found(&contents), [b"old".to_vec()].into());
        contents.write(0, b"new");
        contents.write(3, b"er");
        assert_eq!(contents.read(0, 99), b"newer");
        let found = found(&contents);
        // The last two are a torn write, and a length without its bytes.
        for expected in ["old", "new", "newer", "nld", "newe", "old\0\0"] {
            assert!(found.contains(expected.as_bytes()), "{expected:?}: {found:?}");
        }
        assert!(!found.contains(&b""[..]), "{found:?}");
    }

    #[test]
    fn pages_are_lost_independently_of_their_order() {
        let mut contents = Contents::on_disk(&[0; 2 * PAGE]);
        contents.write(0, &[1]);
        contents.write(PAGE, &[2]);
        let firsts: Vec<_> = found(&contents).iter().map(|it| (it[0], it[PAGE])).collect();
        assert_eq!(firsts, [(0, 0), (0, 2), (1, 0), (1, 2)]);
        contents.resize(PAGE);
        contents.sync();
        assert_eq!(contents.len(), PAGE);
        contents.resize(2 * PAGE);
        assert_eq!(contents.read(PAGE, 1), [0], "what was cut off does not come back");
    }
}
