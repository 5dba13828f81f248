//! Work and findings of the workers of a walk: a stack that they take from and put what they find on, and
//! findings that are joined. They find in any order; the first ones by path are shown or named.

use std::{
    borrow::Borrow,
    collections::BTreeMap,
    fmt::Display,
    path::{Path, PathBuf},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::Stop;

/// Work that is not done yet. The last comes first, which keeps the walk deep and the stack small.
pub(crate) struct WorkQueue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    stack: Vec<T>,
    /// Workers that may still put something on the stack.
    busy: usize,
}

impl<T> WorkQueue<T> {
    pub(crate) fn of(first: Vec<T>) -> Self {
        let state = Mutex::new(State { stack: first, busy: 0 });
        Self { state, changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts work on the stack, the last of it to be done first.
    pub(crate) fn push(&self, work: impl IntoIterator<Item = T>) {
        self.state().stack.extend(work);
        self.changed.notify_all();
    }

    /// Works until nothing is left and nobody works any more, or `stop` fires.
    pub(crate) fn work(&self, stop: Stop<'_>, mut each: impl FnMut(T)) {
        while let Some(work) = self.take(stop) {
            let _turn = Turn(self);
            each(work);
        }
    }

    fn take(&self, stop: Stop<'_>) -> Option<T> {
        let mut state = self.state();
        loop {
            if stop() {
                state.stack.clear();
            }
            if let Some(work) = state.stack.pop() {
                state.busy += 1;
                return Some(work);
            }
            if state.busy == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A worker's turn, which ends also when it panics: the others do not wait for it.
struct Turn<'q, T>(&'q WorkQueue<T>);

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.busy -= 1;
        if state.busy == 0 {
            self.0.changed.notify_all();
        }
    }
}

/// First findings in order of their keys, such as lines of paths, up to a number and a size. Holds little more
/// than is shown, whoever finds them and whenever.
#[derive(Debug)]
pub struct FirstShown<K, T> {
    limit: usize,
    max_bytes: usize,
    size: fn(&T) -> usize,
    by_key: BTreeMap<K, Vec<T>>,
    count: usize,
    bytes: usize,
}

impl<K: Ord, T> FirstShown<K, T> {
    /// Collector without findings; `size` gives the bytes of one.
    pub fn new(limit: usize, max_bytes: usize, size: fn(&T) -> usize) -> Self {
        Self { limit, max_bytes, size, by_key: BTreeMap::new(), count: 0, bytes: 0 }
    }

    /// Whether findings of a key may be among the first: not once enough of earlier keys are there.
    pub fn wants<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let enough = self.is_enough(self.count, self.bytes);
        !enough
            || self.by_key.last_key_value().is_some_and(|(last, _)| key.cmp(last.borrow()).is_lt())
    }

    /// Whether no finding more is shown behind so many of so many bytes.
    pub(crate) fn is_enough(&self, count: usize, bytes: usize) -> bool {
        count >= self.limit || bytes >= self.max_bytes
    }

    /// Adds the findings of a key. Drops what is behind enough others.
    pub fn add<Q: ToOwned<Owned = K> + ?Sized>(&mut self, key: &Q, found: Vec<T>) {
        if !found.is_empty() {
            self.insert(key.to_owned(), found);
        }
    }

    fn insert(&mut self, key: K, found: Vec<T>) {
        self.count += found.len();
        self.bytes += self.bytes_of(&found);
        self.by_key.insert(key, found);
        while let Some((_, last)) = self.by_key.last_key_value() {
            let (count, bytes) = (self.count - last.len(), self.bytes - self.bytes_of(last));
            if !self.is_enough(count, bytes) {
                break;
            }
            (self.count, self.bytes) = (count, bytes);
            self.by_key.pop_last();
        }
    }

    fn bytes_of(&self, found: &[T]) -> usize {
        found.iter().map(self.size).sum()
    }

    /// Takes over what another worker found.
    pub(crate) fn join(&mut self, other: Self) {
        for (key, found) in other.by_key {
            self.insert(key, found);
        }
    }

    /// The first ones, as one worker alone would have found them. The last may go beyond the size.
    pub fn shown(self) -> Vec<T> {
        let (mut shown, mut bytes) = (Vec::new(), 0);
        for one in self.by_key.into_values().flatten() {
            if shown.len() >= self.limit || bytes >= self.max_bytes {
                break;
            }
            bytes += (self.size)(&one);
            shown.push(one);
        }
        shown
    }
}

/// Unreadable paths that are named; the others are counted.
pub(crate) const MAX_NAMED: usize = 20;

/// Paths that could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {
    /// The first ones, each with the reason.
    pub named: Vec<String>,
    /// Number of all.
    pub total: u64,
}

impl Unread {
    /// These, and behind them others.
    pub(crate) fn and(mut self, others: Self) -> Self {
        self.total += others.total;
        self.named.extend(others.named);
        self.named.truncate(MAX_NAMED);
        self
    }
}

/// Collector of unreadable paths, of one worker or of several.
#[derive(Debug, Default)]
pub(crate) struct UnreadPaths {
    named: Vec<(PathBuf, String)>,
    total: u64,
}

impl UnreadPaths {
    pub(crate) fn add(&mut self, path: &Path, why: impl Display) {
        self.total += 1;
        self.named.push((path.to_owned(), format!("{}: {why}", path.display())));
        if self.named.len() >= 8 * MAX_NAMED {
            self.cut();
        }
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.total += other.total;
        self.named.extend(other.named);
        self.cut();
    }

    fn cut(&mut self) {
        self.named.sort();
        self.named.truncate(MAX_NAMED);
    }

    /// The first ones in order of the paths, whoever met them.
    pub(crate) fn told(mut self) -> Unread {
        self.cut();
        let named = self.named.into_iter().map(|(_, named)| named).collect();
        Unread { named, total: self.total }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However lines are spread over workers and whenever they come, the same are shown.
        #[test]
        fn the_first_are_shown_whoever_finds_them(
            found in prop::collection::btree_map("[ab]/[a-d]{1,2}", prop::collection::vec("[x]{0,9}", 1..4), 0..20),
            turns in prop::collection::vec((0..3_usize, any::<u16>()), 20),
            limit in 1..12_usize,
            max_bytes in 1..60_usize,
        ) {
            let sorted: BTreeMap<PathBuf, Vec<String>> =
                found.iter().map(|(path, lines)| (path.into(), lines.clone())).collect();
            let mut alone = FirstShown::new(usize::MAX, usize::MAX, String::len);
            for (path, lines) in &sorted {
                alone.add(path, lines.clone());
            }
            let (mut wanted, mut bytes) = (Vec::new(), 0);
            for line in alone.shown() {
                if wanted.len() >= limit || bytes >= max_bytes {
                    break;
                }
                bytes += line.len();
                wanted.push(line);
            }
            let mut mixed: Vec<_> = sorted.iter().zip(&turns).collect();
            mixed.sort_by_key(|(_, (_, turn))| *turn);
            let mut workers = [(); 3].map(|()| FirstShown::new(limit, max_bytes, String::len));
            for ((path, lines), (worker, _)) in mixed {
                if workers[*worker].wants(path) {
                    workers[*worker].add(path, lines.clone());
                }
            }
            let [mut one, two, three] = workers;
            one.join(two);
            one.join(three);
            prop_assert_eq!(one.shown(), wanted);
        }
    }
}
