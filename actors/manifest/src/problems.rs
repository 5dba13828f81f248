//! Problems of a document, bounded in number, each with its place.

use std::fmt;

use hivekeep_kernel::ports::ManifestProblem;

use crate::yaml::{TextPosition, YamlNode};

/// Most problems that are reported of one text; more are not looked for.
pub const MAX_PROBLEMS: usize = 20;

/// Path of a value in a manifest, from its root: steps of keys and indices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ManifestPath(pub(crate) Vec<String>);

impl ManifestPath {
    /// Path of a JSON pointer.
    pub(crate) fn of_pointer(pointer: &str) -> Self {
        let steps = pointer.split('/').skip(1);
        Self(steps.map(|step| step.replace("~1", "/").replace("~0", "~")).collect())
    }

    /// Path of a key or an item below.
    pub(crate) fn join(&self, step: impl ToString) -> Self {
        let mut steps = self.0.clone();
        steps.push(step.to_string());
        Self(steps)
    }
}

/// Format as in `steps[2].depends`; a step is cut to 60 characters, the whole to 300.
impl fmt::Display for ManifestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for step in &self.0 {
            let shown: String = step.chars().filter(|c| !c.is_control()).take(60).collect();
            let index = !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit());
            match (index, text.is_empty()) {
                (true, _) => text.push_str(&format!("[{shown}]")),
                (false, true) => text.push_str(&shown),
                (false, false) => text.push_str(&format!(".{shown}")),
            }
        }
        f.write_str(&text.chars().take(300).collect::<String>())
    }
}

/// Makes a path of its steps.
macro_rules! at {
    ($($step:expr),* $(,)?) => {
        $crate::problems::ManifestPath(vec![$($step.to_string()),*])
    };
}
pub(crate) use at;

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
