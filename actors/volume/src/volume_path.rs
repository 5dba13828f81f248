//! Paths in a volume: what a caller writes, as a path of the file engine.

use hivekeep_file_engine::PlacePath;

use crate::{held::VolumeResult, refuse::refused};

/// Parses a path: absolute ones begin at the volume's root. A folder that is left again is not passed, for it
/// may be a link to another; links on the way are the kernel's to judge.
///
/// # Errors
/// `invalid_path`.
pub(crate) fn parse(text: &str) -> VolumeResult<PlacePath> {
    let path = PlacePath::parse(text).map_err(refused)?;
    let mut names = Vec::new();
    for name in path.as_str().split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    let path = if names.is_empty() { ".".to_owned() } else { names.join("/") };
    PlacePath::parse(&path).map_err(refused)
}
