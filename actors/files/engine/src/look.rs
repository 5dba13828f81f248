//! Looking whether a path exists, and what it really is.

use serde::{Deserialize, Serialize};

use crate::{FileError, FileErrorKind, FileRoot, error::failed};

/// Looks at a path. Links are followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookAt {
    /// Path.
    pub path: String,
}

/// Kind of the entry at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LookedAt {
    /// Nothing.
    Nothing,
    /// A file, or something else that is no folder.
    File,
    /// A folder.
    Folder,
}

/// # Errors
/// As [`failed`], for a path that cannot be looked at.
pub(crate) fn look(root: &FileRoot, asked: &LookAt) -> Result<LookedAt, FileError> {
    let path = root.path(&asked.path)?;
    let found = root
        .followed(&path)
        .and_then(|real| root.dir().metadata(real.as_str()).map_err(|error| failed(&error, &path)));
    match found {
        Ok(metadata) if metadata.is_dir() => Ok(LookedAt::Folder),
        Ok(_) => Ok(LookedAt::File),
        Err(error)
            if matches!(error.kind, FileErrorKind::NotFound | FileErrorKind::NotADirectory) =>
        {
            Ok(LookedAt::Nothing)
        }
        Err(error) => Err(error),
    }
}
