//! Manifest port: static checks of a workflow's text before anything keeps it.

use schemars::JsonSchema;
use serde::Serialize;

/// Problem of a manifest, at the place in its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ManifestProblem {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Path of the value, as `steps[2].depends`; empty for the whole text.
    pub path: String,
    /// Problem in a sentence.
    pub message: String,
}

impl std::fmt::Display for ManifestProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { line, column, path, message } = self;
        match path.is_empty() {
            true => write!(f, "line {line}, column {column}: {message}"),
            false => write!(f, "line {line}, column {column}: {path}: {message}"),
        }
    }
}

/// Checks of manifests. They look at the text alone: that it is valid does not say that it can run.
pub trait ManifestCheck: Send + Sync {
    /// Problems of a DAG's YAML in the order of the text, bounded in number; none for a valid one.
    /// Bounded in time by the size of the text, but not quick: a caller runs it beside its mailbox.
    fn dag(&self, text: &str) -> Vec<ManifestProblem>;
}
