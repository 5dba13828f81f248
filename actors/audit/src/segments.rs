//! Segments: the files of the log in the state folder, named by their first entries.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::Error;

const PREFIX: &str = "audit-";
const SUFFIX: &str = ".log";

/// Segment: a file of the log in the state folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) first: u64,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// The files of a log.
pub(crate) struct Segments;

impl Segments {
    /// Path of the file that begins with an entry. Names sort as the entries do.
    pub(crate) fn path(state: &Path, first: u64) -> PathBuf {
        state.join(format!("{PREFIX}{first:020}{SUFFIX}"))
    }

    /// Path of the file that says how far the log reaches.
    pub(crate) fn head(state: &Path) -> PathBuf {
        state.join("head")
    }

    /// Lists the files, oldest first; none where there is no folder.
    pub(crate) fn list(state: &Path) -> Result<Vec<Segment>, Error> {
        let listed = match fs::read_dir(state) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed.map_err(Error::io(state))?,
        };
        let mut found = Vec::new();
        for item in listed {
            let item = item.map_err(Error::io(state))?;
            let name = item.file_name();
            let first = name.to_str().and_then(|name| {
                name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse::<u64>().ok()
            });
            if let Some(first) = first {
                let bytes = item.metadata().map_err(Error::io(item.path()))?.len();
                found.push(Segment { first, path: item.path(), bytes });
            }
        }
        found.sort_by_key(|segment| segment.first);
        Ok(found)
    }
}
