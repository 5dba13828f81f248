//! Options of the vault.

use std::path::{Path, PathBuf};

use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Section `[vault]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Whether there is a vault. Off: its tool refuses every call.
    pub enabled: bool,
    /// The folder of notes. Unset: `vault` in the state directory, made if it is missing. A
    /// folder that is set here has to be there: one that is not, on a disk that is not mounted
    /// for example, is not made, and the tool refuses until it is.
    pub path: Option<PathBuf>,
    /// Extensions of notes, without the dot. Other files are neither read, listed nor written.
    pub extensions: Vec<String>,
    /// Names of folders, at any depth, that are not part of the vault.
    pub exclude_dirs: Vec<String>,
    /// The largest note in MiB. Larger ones are not read; search names them.
    #[schemars(range(min = 1, max = 64))]
    pub max_note_mb: u64,
    /// The most that all files in the vault take together in MiB, each rounded up to 4 KiB. No
    /// note is written beyond it.
    #[schemars(range(min = 1, max = 1_073_741_824))]
    pub max_total_mb: u64,
    /// The most results of one search, also when it asks for more or for all.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_results: usize,
    /// How long one search may take, at most 50. What was found until then is answered, and that it is not
    /// all.
    #[schemars(range(min = 1, max = 50))]
    pub search_timeout_secs: u64,
    /// Threads of one search. Unset: as many as there are processors, at most 8.
    #[schemars(range(min = 1, max = 64))]
    pub search_threads: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            enabled: true,
            path: None,
            extensions: vec!["md".to_owned()],
            exclude_dirs: [".obsidian", ".trash", ".git"].map(str::to_owned).into(),
            max_note_mb: 10,
            max_total_mb: 1_024,
            max_results: 1_000,
            search_timeout_secs: 30,
            search_threads: None,
        }
    }
}

impl Options {
    /// Folder of notes of a daemon with this state directory.
    pub fn folder(&self, state_dir: &Path) -> PathBuf {
        self.path.clone().unwrap_or_else(|| state_dir.join("vault"))
    }

    pub(crate) fn max_note_bytes(&self) -> u64 {
        self.max_note_mb * 1024 * 1024
    }

    pub(crate) fn threads(&self) -> usize {
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        self.search_threads.unwrap_or(all.min(8))
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if self.path.as_ref().is_some_and(|path| !path.is_absolute()) {
            wrong.push(("path", "must be an absolute path".to_owned()));
        }
        let odd = |text: &&String| text.is_empty() || text.contains(['/', '.', '\0']);
        if self.extensions.is_empty() {
            wrong.push(("extensions", "must name at least one".to_owned()));
        }
        if let Some(odd) = self.extensions.iter().find(odd) {
            wrong.push(("extensions", format!("`{odd}`: letters and digits, without the dot")));
        }
        let odd = |name: &&String| matches!(name.as_str(), "" | "." | "..") || name.contains('/');
        if let Some(odd) = self.exclude_dirs.iter().find(odd) {
            wrong.push(("exclude_dirs", format!("`{odd}` is not a valid folder name")));
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_named_by_its_key() {
        assert_eq!(Options::default().problems(), []);
        let wrong = Options {
            path: Some("notes".into()),
            extensions: vec![".md".to_owned()],
            exclude_dirs: vec!["a/b".to_owned()],
            ..Options::default()
        };
        let keys: Vec<_> = wrong.problems().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["path", "extensions", "exclude_dirs"]);
        assert!(toml_like(r#"{"extention": ["md"]}"#).is_err());
    }

    fn toml_like(text: &str) -> Result<Options, serde_json::Error> {
        serde_json::from_str(text)
    }
}
