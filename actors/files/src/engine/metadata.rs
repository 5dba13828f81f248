//! Looking whether a path exists.

use std::io;

use cap_std::fs::Dir;
use hivekeep_kernel::ToolError;

use super::failed;
use crate::place_path::PlacePath;

/// Whether a path is a folder; `None` where there is nothing.
///
/// # Errors
/// As [`failed`], for a path that cannot be looked at.
pub(crate) fn is_dir(root: &Dir, path: &PlacePath) -> Result<Option<bool>, ToolError> {
    match root.metadata(path.as_str()) {
        Ok(metadata) => Ok(Some(metadata.is_dir())),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(error) => Err(failed(&error, path)),
    }
}
