//! A directory journal: the names that are on the disk, and those that were changed since.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use fastrand::Rng;

/// An inode's number.
pub(crate) type Ino = u64;

/// In which order names that were not synced reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// In the order of the changes, as with ext4, xfs and btrfs: one journal has all of them, so
    /// a synced directory takes with it all that was changed anywhere before.
    Journal,
    /// Each directory for itself: all that POSIX promises.
    Apart,
}

/// A name set to an inode, or to none.
pub(crate) struct Set {
    pub(crate) dir: Ino,
    pub(crate) name: OsString,
    pub(crate) ino: Option<Ino>,
}

/// Names that are set together.
struct Change {
    number: u64,
    sets: Vec<Set>,
}

/// The entries of each directory.
#[derive(Clone, Default)]
pub(crate) struct Tree(BTreeMap<Ino, BTreeMap<OsString, Ino>>);

/// All names.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) now: Tree,
    synced: Tree,
    since: Vec<Change>,
    /// How many changes there were, and up to which of them a journal would be on the disk.
    changes: u64,
    durable: u64,
}

impl Tree {
    pub(crate) fn entries(&self, dir: Ino) -> impl Iterator<Item = (&OsString, Ino)> {
        self.0.get(&dir).into_iter().flatten().map(|(name, ino)| (name, *ino))
    }

    pub(crate) fn get(&self, dir: Ino, name: &OsStr) -> Option<Ino> {
        self.0.get(&dir)?.get(name).copied()
    }

    fn apply(&mut self, change: &Change) {
        for Set { dir, name, ino } in &change.sets {
            let entries = self.0.entry(*dir).or_default();
            match ino {
                Some(ino) => entries.insert(name.clone(), *ino),
                None => entries.remove(name),
            };
        }
    }
}

impl Names {
    /// Names that are on the disk.
    pub(crate) fn on_disk(sets: Vec<Set>) -> Self {
        let mut names = Self::default();
        let change = Change { number: 0, sets };
        names.now.apply(&change);
        names.synced.apply(&change);
        names
    }

    pub(crate) fn change(&mut self, sets: Vec<Set>) {
        self.changes += 1;
        let change = Change { number: self.changes, sets };
        self.now.apply(&change);
        self.since.push(change);
    }

    /// Brings the names in a directory onto the disk.
    pub(crate) fn sync(&mut self, dir: Ino) {
        let wanted = vec![false; self.since.len()];
        let mut wanted = closed(&self.since, wanted, [dir].into()).into_iter();
        let (done, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.since).into_iter().partition(|_| wanted.next() == Some(true));
        for change in &done {
            self.synced.apply(change);
            self.durable = self.durable.max(change.number);
        }
        self.since = rest;
    }

    /// What is found after a power cut, and whether it is another than what was there.
    pub(crate) fn survivor(&self, order: Order, rng: &mut Rng) -> (Tree, bool) {
        let kept = match order {
            Order::Journal => {
                let upto = rng.u64(self.durable..=self.changes);
                self.since.iter().map(|change| change.number <= upto).collect()
            }
            Order::Apart => closed(&self.since, self.last_of_each(rng), BTreeSet::new()),
        };
        let mut found = self.synced.clone();
        let with_fate = self.since.iter().zip(&kept);
        with_fate.filter(|(_, kept)| **kept).for_each(|(change, _)| found.apply(change));
        (found, kept.contains(&false))
    }

    /// Of each directory the last change that survives, if one does.
    fn last_of_each(&self, rng: &mut Rng) -> Vec<bool> {
        let mut kept = vec![false; self.since.len()];
        let dirs: BTreeSet<Ino> = self.since.iter().flat_map(Change::dirs).collect();
        for dir in dirs {
            let of_dir =
                self.since.iter().enumerate().filter(|(_, it)| it.dirs().any(|d| d == dir));
            let of_dir: Vec<usize> = of_dir.map(|(at, _)| at).collect();
            if let Some(last) = rng.usize(..=of_dir.len()).checked_sub(1) {
                kept[of_dir[last]] = true;
            }
        }
        kept
    }

    /// Every inode that has a name, or may be found to have one.
    pub(crate) fn reachable(&self) -> BTreeSet<Ino> {
        let trees = [&self.now, &self.synced].into_iter();
        let named = trees.flat_map(|tree| tree.0.values().flat_map(|entries| entries.values()));
        let since = self.since.iter().flat_map(|change| &change.sets);
        named.copied().chain(since.filter_map(|set| set.ino)).collect()
    }

    /// Forgets directories that are gone.
    pub(crate) fn retain(&mut self, there: impl Fn(Ino) -> bool) {
        for tree in [&mut self.now, &mut self.synced] {
            tree.0.retain(|dir, _| there(*dir));
        }
    }
}

impl Change {
    fn dirs(&self) -> impl Iterator<Item = Ino> {
        self.sets.iter().map(|set| set.dir)
    }
}

/// Adds to the wanted changes those before them in the same directories, and those in `dirs`.
fn closed(changes: &[Change], mut wanted: Vec<bool>, mut dirs: BTreeSet<Ino>) -> Vec<bool> {
    for (change, wanted) in changes.iter().zip(&mut wanted).rev() {
        *wanted |= change.dirs().any(|dir| dirs.contains(&dir));
        if *wanted {
            dirs.extend(change.dirs());
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Ino = 2;
    const B: Ino = 3;

    fn set(dir: Ino, name: &str, ino: Option<Ino>) -> Set {
        Set { dir, name: name.into(), ino }
    }

    /// All that is ever found in many cuts, as lists of paths.
    fn found(names: &Names, order: Order) -> BTreeSet<Vec<String>> {
        let one = |seed| {
            let (tree, _) = names.survivor(order, &mut Rng::with_seed(seed));
            let in_dir = |dir| tree.entries(dir).map(move |(name, _)| (dir, name));
            let all = in_dir(A).chain(in_dir(B));
            all.map(|(dir, name)| format!("{dir}/{}", name.display())).collect()
        };
        (0..500).map(one).collect()
    }

    fn lists(expected: &[&[&str]]) -> BTreeSet<Vec<String>> {
        expected.iter().map(|list| list.iter().map(|&path| path.to_owned()).collect()).collect()
    }

    #[test]
    fn a_journal_keeps_the_order_and_directories_apart_do_not() {
        let mut names = Names::default();
        names.change(vec![set(A, "x", Some(9))]);
        names.change(vec![set(B, "y", Some(10))]);
        let in_order = lists(&[&[], &["2/x"], &["2/x", "3/y"]]);
        assert_eq!(found(&names, Order::Journal), in_order);
        let apart = lists(&[&[], &["2/x"], &["2/x", "3/y"], &["3/y"]]);
        assert_eq!(found(&names, Order::Apart), apart);
        names.sync(B);
        assert_eq!(found(&names, Order::Journal), lists(&[&["2/x", "3/y"]]));
        assert_eq!(found(&names, Order::Apart), lists(&[&["3/y"], &["2/x", "3/y"]]));
    }

    #[test]
    fn a_rename_is_there_whole_or_not_at_all() {
        let mut names = Names::on_disk(vec![set(A, "x", Some(9))]);
        names.change(vec![set(A, "x", None), set(B, "x", Some(9))]);
        for order in [Order::Journal, Order::Apart] {
            assert_eq!(found(&names, order), lists(&[&["2/x"], &["3/x"]]));
        }
        names.sync(B);
        assert_eq!(found(&names, Order::Apart), lists(&[&["3/x"]]));
    }
}
