//! The tools `fs.grep` and `fs.glob`: searches of a session's place, by content and by name.

use std::sync::Arc;

use hivekeep_file_engine::{GlobFiles, GrepFiles, Unread};
use hivekeep_kernel::{CallCx, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Files, fs::default_entries};

/// Search the files below a folder of a place for lines that match a regular expression.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsGrep {
    /// Regular expression, in the syntax of Rust's regex crate.
    #[schemars(length(min = 1, max = 4096))]
    pattern: String,
    /// Path of a folder or file from the place's root.
    path: String,
    /// Only files whose path from there fits this glob pattern, such as `*.rs`.
    #[schemars(length(max = 1024))]
    glob: Option<String>,
    /// Take upper and lower case as the same.
    #[serde(default)]
    ignore_case: bool,
    /// Leave out `.git` and what the `.gitignore` files below `path` exclude.
    #[serde(default)]
    gitignore: bool,
    /// Most lines, 1 to 5000. All that match are counted.
    #[schemars(range(min = 1, max = 5000))]
    #[serde(default = "default_lines")]
    limit: usize,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    place: Option<String>,
}

fn default_lines() -> usize {
    100
}

/// Lines that match.
#[derive(Debug, Serialize, JsonSchema)]
struct FsGrepped {
    /// Place.
    place: String,
    /// `path:line:content`, in order of the paths; a line over 500 bytes is cut.
    matches: Vec<String>,
    /// Number of lines that match.
    count: u64,
    /// Number of lines that match and are not in `matches`.
    left: u64,
    /// Number of files with a line that matches.
    files: u64,
    /// Number of binary files, which were searched up to their first NUL only.
    #[serde(skip_serializing_if = "is_zero")]
    binary_files: u64,
    #[serde(flatten)]
    unread: FsUnread,
}

/// Find files below a folder of a place by a glob pattern.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsGlob {
    /// Pattern for the path from `path` on, such as `src/**/*.rs`; without `/` it is for names.
    #[schemars(length(min = 1, max = 1024))]
    pattern: String,
    /// Path of a folder from the place's root.
    path: String,
    /// Leave out `.git` and what the `.gitignore` files below `path` exclude.
    #[serde(default)]
    gitignore: bool,
    /// Most paths, 1 to 10000. All that fit are counted.
    #[schemars(range(min = 1, max = 10_000))]
    #[serde(default = "default_entries")]
    limit: usize,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    place: Option<String>,
}

/// Files that fit.
#[derive(Debug, Serialize, JsonSchema)]
struct FsGlobbed {
    /// Place.
    place: String,
    /// Paths from the place's root, in their order.
    paths: Vec<String>,
    /// Number of files that fit.
    count: u64,
    /// Number of files that fit and are not in `paths`.
    left: u64,
    #[serde(flatten)]
    unread: FsUnread,
}

/// Files and folders that a search could not read.
#[derive(Debug, Serialize, JsonSchema)]
struct FsUnread {
    /// Number of files and folders that could not be read, or not whole.
    #[serde(skip_serializing_if = "is_zero")]
    unreadable_count: u64,
    /// The first of them, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

tools! { pub(crate) FAMILY: "fs" for service Files, singleton files;
    fs_grep: FsGrep => FsGrepped = Files::grep {
        name: "fs.grep", title: "Search files of a place", effect: Read, timeout_secs: 300,
        rate: RateClass::File,
    };
    fs_glob: FsGlob => FsGlobbed = Files::glob {
        name: "fs.glob", title: "Find files of a place", effect: Read, timeout_secs: 300,
        rate: RateClass::File,
    };
}

impl Files {
    async fn grep(self: Arc<Self>, cx: CallCx, input: FsGrep) -> Answer<FsGrepped> {
        let FsGrep { pattern, path, glob, ignore_case, gitignore, limit, place } = input;
        let asked = GrepFiles { path, pattern, ignore_case, glob, gitignore, limit };
        let (lines, at) = self.run(&cx, place.as_deref(), asked).await?;
        Ok(FsGrepped {
            place: at.place,
            count: lines.total,
            left: lines.total - lines.shown.len() as u64,
            matches: lines.shown,
            files: lines.files,
            binary_files: lines.binary,
            unread: lines.unread.into(),
        })
    }

    async fn glob(self: Arc<Self>, cx: CallCx, input: FsGlob) -> Answer<FsGlobbed> {
        let FsGlob { pattern, path, gitignore, limit, place } = input;
        let asked = GlobFiles { path, pattern, gitignore, limit };
        let (found, at) = self.run(&cx, place.as_deref(), asked).await?;
        Ok(FsGlobbed {
            place: at.place,
            count: found.total,
            left: found.total - found.paths.len() as u64,
            paths: found.paths,
            unread: found.unread.into(),
        })
    }
}

impl From<Unread> for FsUnread {
    fn from(unread: Unread) -> Self {
        Self { unreadable_count: unread.total, unreadable: unread.named }
    }
}
