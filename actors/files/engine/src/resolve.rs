//! Resolving the links of a path: where a write to it would land.

use std::{
    ffi::OsString,
    io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use cap_std::fs::Dir;
use serde::{Deserialize, Serialize};

use crate::{FileError, FileErrorKind, FileRoot, PlacePath, error::failed, write::target};

/// Resolves the links of a path, as far as it exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvePath {
    /// Path.
    pub path: String,
}

/// Path without links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedPath {
    /// From the root.
    pub path: String,
}

/// # Errors
/// `Outside`, and as [`failed`].
pub(crate) fn resolve(root: &FileRoot, asked: &ResolvePath) -> Result<ResolvedPath, FileError> {
    let path = root.path(&asked.path)?;
    let file = target(root, &path)?;
    let (Some((parent, name)), false) = (file.split(), root.is_system()) else {
        return Ok(ResolvedPath { path: file.to_string() });
    };
    let real = beneath(root.dir(), parent, name).map_err(|error| failed(&error, &path))?;
    let text = real.to_str().ok_or_else(|| {
        let message = format!("`{path}` passes a link to a name that is not UTF-8");
        FileError::new(FileErrorKind::InvalidPath, message)
    })?;
    Ok(ResolvedPath { path: PlacePath::parse(text)?.to_string() })
}

/// Real path of a name in a folder of the root, whose missing end is kept as it is.
fn beneath(root: &Dir, parent: &str, name: &str) -> io::Result<PathBuf> {
    let mut rest = vec![OsString::from(name)];
    let mut known = Path::new(parent);
    let folder = loop {
        match root.open_dir(if known == Path::new("") { Path::new(".") } else { known }) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (Some(above), Some(name)) = (known.parent(), known.file_name()) else {
                    return Err(error);
                };
                rest.push(name.to_owned());
                known = above;
            }
            opened => break opened?,
        }
    };
    // The kernel tells where a handle is.
    let at = |folder: &Dir| std::fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    let (top, at) = (at(root)?, at(&folder)?);
    let mut real = at.strip_prefix(top).map_err(io::Error::other)?.to_owned();
    real.extend(rest.iter().rev());
    Ok(real)
}
