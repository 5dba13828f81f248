//! Finding paths by a glob pattern.

use globset::{GlobBuilder, GlobMatcher};
use serde::{Deserialize, Serialize};

use crate::{
    FileError, FileErrorKind, FileRoot, Stop, Unread,
    walk::{self, MAX_SHOWN_BYTES},
};

/// Finds everything but folders below a folder whose path from there fits a pattern: `*` and `?` stay
/// within a name, `**` crosses folders; a pattern without `/` is for names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlobFiles {
    /// Folder.
    pub path: String,
    /// Pattern.
    pub pattern: String,
    /// Leave out what the `.gitignore` files below the folder exclude, and `.git`.
    pub gitignore: bool,
    /// Number of paths that are told, at most; they have a mebibyte together.
    pub limit: usize,
}

/// Paths that fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundPaths {
    /// In the order of the walk; bytes that are not UTF-8 are replaced.
    pub paths: Vec<String>,
    /// Number of all that fit.
    pub total: u64,
    /// What could not be read.
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
    let glob = GlobBuilder::new(&whole).literal_separator(true).build();
    let glob = glob.map_err(|error| {
        let message = format!("`{pattern}` is not a valid glob pattern: {}", error.kind());
        FileError::new(FileErrorKind::InvalidPattern, message)
    })?;
    Ok(glob.compile_matcher())
}

/// # Errors
/// `InvalidPattern`, and as for a walk.
pub(crate) fn glob(
    root: &FileRoot,
    asked: &GlobFiles,
    stop: Stop<'_>,
) -> Result<FoundPaths, FileError> {
    let matcher = matcher(&asked.pattern)?;
    let top = root.followed(&root.path(&asked.path)?)?;
    let (mut paths, mut shown_bytes, mut total) = (Vec::new(), 0, 0);
    let unread = walk::walk(root.dir(), &top, asked.gitignore, stop, |step, _| {
        if step.kind.is_dir() || !matcher.is_match(step.below) {
            return;
        }
        total += 1;
        if paths.len() < asked.limit && shown_bytes < MAX_SHOWN_BYTES {
            let path = step.path.to_string_lossy().into_owned();
            shown_bytes += path.len();
            paths.push(path);
        }
    })?;
    Ok(FoundPaths { paths, total, unread })
}
