//! Finding paths by a glob pattern.

use cap_std::fs::Dir;
use globset::{GlobBuilder, GlobMatcher};
use hivekeep_kernel::{Layer, ToolError};
use tokio_util::sync::CancellationToken;

use super::{Unread, walk::walk};
use crate::{codes, place_path::PlacePath};

/// Paths that fit a pattern.
pub(crate) struct Found {
    /// From the place's root, in the order of the walk; bytes that are not UTF-8 are replaced.
    pub(crate) paths: Vec<String>,
    /// Number of all that fit.
    pub(crate) total: u64,
    pub(crate) unread: Unread,
}

/// Compiles a pattern: `*` and `?` stay within a name, `**` crosses folders; one without `/` is for names.
///
/// # Errors
/// `invalid_pattern`.
pub(crate) fn matcher(pattern: &str) -> Result<GlobMatcher, ToolError> {
    let whole = if pattern.contains('/') {
        pattern.trim_start_matches('/').to_owned()
    } else {
        format!("**/{pattern}")
    };
    let glob = GlobBuilder::new(&whole).literal_separator(true).build();
    let glob = glob.map_err(|error| {
        let message = format!("`{pattern}` is not a valid glob pattern: {}", error.kind());
        ToolError::new(Layer::Actor, codes::INVALID_PATTERN, message)
    })?;
    Ok(glob.compile_matcher())
}

/// Finds everything but folders below `top` whose path from there fits.
///
/// # Errors
/// `invalid_pattern`, and as for a walk.
pub(crate) fn glob(
    root: &Dir,
    top: &PlacePath,
    pattern: &str,
    gitignore: bool,
    limit: usize,
    stop: &CancellationToken,
) -> Result<Found, ToolError> {
    let matcher = matcher(pattern)?;
    let (mut paths, mut total) = (Vec::new(), 0);
    let unread = walk(root, top, gitignore, stop, |step, _| {
        if step.kind.is_dir() || !matcher.is_match(step.below) {
            return;
        }
        total += 1;
        if paths.len() < limit {
            paths.push(step.path.to_string_lossy().into_owned());
        }
    })?;
    Ok(Found { paths, total, unread })
}
