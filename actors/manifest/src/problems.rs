//! Problems of a document, bounded in number, each with its place.

use hivekeep_kernel::ports::ManifestProblem;

use crate::path::ManifestPath;
use crate::yaml::{TextPosition, YamlNode};

/// Most problems that are reported of one text; more are not looked for.
pub const MAX_PROBLEMS: usize = 20;

/// Problems of one document.
pub(crate) struct ProblemList<'d> {
    document: &'d YamlNode,
    pub(crate) found: Vec<(TextPosition, ManifestProblem)>,
}

impl<'d> ProblemList<'d> {
    pub(crate) fn of(document: &'d YamlNode) -> Self {
        Self { document, found: Vec::new() }
    }

    /// Adds a problem of the value at a path.
    pub(crate) fn add(&mut self, path: &ManifestPath, message: impl Into<String>) {
        self.put(self.document.place(&path.0, false), path, message.into());
    }

    /// Adds a problem of the key at a path.
    pub(crate) fn add_key(&mut self, path: &ManifestPath, message: impl Into<String>) {
        self.put(self.document.place(&path.0, true), path, message.into());
    }

    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= MAX_PROBLEMS
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(crate) fn put(&mut self, at: TextPosition, path: &ManifestPath, message: String) {
        let told = problem(at, path, message);
        if !self.is_full() && !self.found.iter().any(|(_, known)| *known == told) {
            self.found.push((at, told));
        }
    }
}

/// Problem at a place.
pub(crate) fn problem(at: TextPosition, path: &ManifestPath, message: String) -> ManifestProblem {
    let TextPosition { line, column } = at;
    ManifestProblem { line, column, path: path.to_string(), message }
}
