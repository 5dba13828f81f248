//! Finding paths by a glob pattern.

use std::path::PathBuf;

use globset::{GlobBuilder, GlobMatcher};
use serde::{Deserialize, Serialize};

use crate::{
    FileError, FileErrorKind, FileRoot, Stop, Unread,
    walk::{self, MAX_SHOWN_BYTES, Step, Visit},
    workers::{FirstShown, UnreadPaths},
};

/// Finds everything but folders below a folder whose path from there fits a pattern: `*` and `?` stay
/// within a name, `**` crosses folders; a pattern without `/` is for names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlobFiles {
    /// Path of the folder that is searched, as [`crate::PlacePath`] parses it.
    pub path: String,
    /// Glob pattern for names, or for paths from that folder.
    pub pattern: String,
    /// Leave out what the `.gitignore` files below the folder exclude, and `.git`.
    pub gitignore: bool,
    /// Maximum number of paths that are returned; all paths have at most 1 MiB together.
    pub limit: usize,
}

/// Paths that fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundPaths {
    /// In order of the paths, name by name; bytes that are not UTF-8 are replaced.
    pub paths: Vec<String>,
    /// Number of all that fit.
    pub total: u64,
    /// Paths that could not be read.
    pub unread: Unread,
}

/// Compiles a pattern.
///
/// # Errors
/// `InvalidPattern`.
pub(crate) fn matcher(pattern: &str) -> Result<GlobMatcher, FileError> {
    let whole = if pattern.contains('/') {
        pattern.trim_start_matches('/').to_owned()
    } else {
        format!("**/{pattern}")
    };
    let glob = GlobBuilder::new(&within_names(&whole)).literal_separator(true).build();
    let glob = glob.map_err(|error| {
        let message = format!("`{pattern}` is not a valid glob pattern: {}", error.kind());
        FileError::new(FileErrorKind::InvalidPattern, message)
    })?;
    Ok(glob.compile_matcher())
}

/// A pattern whose negated classes (`[!a]`) do not match `/` either: `globset` lets them leave a name.
fn within_names(pattern: &str) -> String {
    let (mut kept, mut rest) = (String::new(), pattern.chars().peekable());
    while let Some(letter) = rest.next() {
        kept.push(letter);
        match letter {
            '\\' => kept.extend(rest.next()),
            '[' => {
                let negated = rest.next_if(|next| matches!(next, '!' | '^'));
                kept.extend(negated);
                // A `]` that is the first of its class does not end the class.
                kept.extend(rest.next_if_eq(&']'));
                if negated.is_some() {
                    kept.push('/');
                }
                for letter in rest.by_ref() {
                    kept.push(letter);
                    if letter == ']' {
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    kept
}

/// # Errors
/// `InvalidPattern`, and as for a walk.
pub(crate) fn glob(
    root: &FileRoot,
    asked: &GlobFiles,
    stop: Stop<'_>,
) -> Result<FoundPaths, FileError> {
    let matcher = &matcher(&asked.pattern)?;
    let top = root.followed(&root.path(&asked.path)?)?;
    let (found, unread) = walk::walk(root.dir(), &top, asked.gitignore, stop, || Finder {
        matcher,
        first: FirstShown::new(asked.limit, MAX_SHOWN_BYTES, String::len),
        total: 0,
    })?;
    Ok(FoundPaths { paths: found.first.shown(), total: found.total, unread })
}

struct Finder<'f> {
    matcher: &'f GlobMatcher,
    first: FirstShown<PathBuf, String>,
    total: u64,
}

impl Visit for Finder<'_> {
    fn visit(&mut self, step: &Step<'_>, _: &mut UnreadPaths) {
        if !self.matcher.is_match(step.below) {
            return;
        }
        self.total += 1;
        if self.first.wants(step.path) {
            self.first.add(step.path, vec![step.path.to_string_lossy().into_owned()]);
        }
    }

    fn join(&mut self, other: Self) {
        self.total += other.total;
        self.first.join(other.first);
    }
}
