//! Top-k selection of lines by the path that they are of: workers find them in any order, and the first
//! ones of all are shown.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// First lines in order of their paths, up to a number and a size. Holds little more than is shown.
#[derive(Debug)]
pub(crate) struct FirstShown {
    limit: usize,
    max_bytes: usize,
    by_path: BTreeMap<PathBuf, Vec<String>>,
    lines: usize,
    bytes: usize,
}

impl FirstShown {
    pub(crate) fn new(limit: usize, max_bytes: usize) -> Self {
        Self { limit, max_bytes, by_path: BTreeMap::new(), lines: 0, bytes: 0 }
    }

    /// Whether lines of a path may be among the first: not once enough of earlier paths are there.
    pub(crate) fn wants(&self, path: &Path) -> bool {
        let enough = self.is_enough(self.lines, self.bytes);
        !enough || self.by_path.last_key_value().is_some_and(|(last, _)| path < last.as_path())
    }

    /// Whether no line more is shown behind so many of so many bytes.
    pub(crate) fn is_enough(&self, lines: usize, bytes: usize) -> bool {
        lines >= self.limit || bytes >= self.max_bytes
    }

    /// Adds the lines of a path. Drops what is behind enough others.
    pub(crate) fn add(&mut self, path: &Path, lines: Vec<String>) {
        if lines.is_empty() {
            return;
        }
        self.lines += lines.len();
        self.bytes += size(&lines);
        self.by_path.insert(path.to_owned(), lines);
        while let Some((_, last)) = self.by_path.last_key_value() {
            let (lines, bytes) = (self.lines - last.len(), self.bytes - size(last));
            if !self.is_enough(lines, bytes) {
                break;
            }
            (self.lines, self.bytes) = (lines, bytes);
            self.by_path.pop_last();
        }
    }

    /// Takes over what another worker found.
    pub(crate) fn join(&mut self, other: Self) {
        for (path, lines) in other.by_path {
            self.add(&path, lines);
        }
    }

    /// The first lines, as one that walks alone would have found them.
    pub(crate) fn shown(self) -> Vec<String> {
        let (mut shown, mut bytes) = (Vec::new(), 0);
        for line in self.by_path.into_values().flatten() {
            if shown.len() >= self.limit || bytes >= self.max_bytes {
                break;
            }
            bytes += line.len();
            shown.push(line);
        }
        shown
    }
}

fn size(lines: &[String]) -> usize {
    lines.iter().map(String::len).sum()
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
            let mut alone = FirstShown::new(usize::MAX, usize::MAX);
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
            let mut workers = [(); 3].map(|()| FirstShown::new(limit, max_bytes));
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
