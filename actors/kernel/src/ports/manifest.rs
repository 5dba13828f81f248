//! Manifest port: judging the text of a manifest before it is put in place.

/// Problem of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestProblem {
    /// Line, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
    /// What is wrong, for people.
    pub message: String,
}

/// Check of manifests, such as those of workflows.
pub trait ManifestCheck: Send + Sync {
    /// Problems of a text of YAML, in their order; empty for a sound one. Pure and bounded.
    fn check(&self, text: &str) -> Vec<ManifestProblem>;
}
