//! Faults of a configuration, each with the place that it comes from.

use std::{fmt, path::PathBuf};

use serde::Serialize;

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "from")]
pub enum ProblemSource {
    /// Nobody set it.
    Default,
    /// A line of the configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// An environment variable.
    Env {
        /// The variable's name.
        name: String,
    },
    /// A flag on the command line.
    Flag {
        /// The flag as it was typed.
        name: String,
    },
}

impl fmt::Display for ProblemSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Env { name } => write!(f, "${name}"),
            Self::Flag { name } => f.write_str(name),
        }
    }
}

/// A problem of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The origin of the value.
    pub source: ProblemSource,
    /// The key, joined by dots; empty for a file as a whole.
    pub key: String,
    /// The reason why it is refused.
    pub reason: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => write!(f, "{}: {}", self.source, self.reason),
            key => write!(f, "{}: {key}: {}", self.source, self.reason),
        }
    }
}

/// Everything that is wrong, at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the configuration is refused:{}", lines(.0))]
pub struct ConfigProblems(pub Vec<ConfigProblem>);

fn lines(problems: &[ConfigProblem]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}
