//! Paths that a walk could not read, or not whole: all are counted, the first ones named.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

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
