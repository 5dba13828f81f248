//! Depth-first walk over a tree by handles: no link is followed, and memory is bounded by the largest
//! folder and a number of open folders.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    vec::IntoIter,
};

use cap_fs_ext::DirExt;
use cap_std::fs::{Dir, FileType};
use hivekeep_kernel::ToolError;
use ignore::gitignore::Gitignore;
use tokio_util::sync::CancellationToken;

use super::{failed, ignored};
use crate::place_path::PlacePath;

/// Folders below one another that are entered.
const MAX_DEPTH: usize = 256;
/// Names that are held at a time, of all folders on the way.
const MAX_NAMES: usize = 1_000_000;
/// Unreadable paths that are named; the others are counted.
const MAX_NAMED: usize = 20;

/// Paths that could not be read.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    /// The first ones, each with the reason.
    pub(crate) named: Vec<String>,
    pub(crate) total: u64,
}

impl Unread {
    pub(crate) fn add(&mut self, path: &Path, why: impl std::fmt::Display) {
        self.total += 1;
        if self.named.len() < MAX_NAMED {
            self.named.push(format!("{}: {why}", path.display()));
        }
    }
}

/// File or folder that a walk came by.
pub(crate) struct Step<'w> {
    /// Folder that it is in.
    pub(crate) folder: &'w Dir,
    pub(crate) name: &'w OsString,
    /// Path from the place's root.
    pub(crate) path: &'w Path,
    /// Path from the walk's top.
    pub(crate) below: &'w Path,
    pub(crate) kind: FileType,
}

struct Level {
    folder: Dir,
    path: PathBuf,
    names: IntoIter<(OsString, FileType)>,
    ignored: Option<Gitignore>,
}

/// Calls `visit` with everything below `top` in order of the names, with folders before what is in them.
/// With `gitignore`, what the `.gitignore` files below `top` exclude is left out, and `.git`. Ends when
/// `stop` fires.
///
/// # Errors
/// As [`failed`], for `top` itself. What else cannot be read is in the result.
pub(crate) fn walk(
    root: &Dir,
    top: &PlacePath,
    gitignore: bool,
    stop: &CancellationToken,
    mut visit: impl FnMut(&Step<'_>, &mut Unread),
) -> Result<Unread, ToolError> {
    let mut unread = Unread::default();
    let folder = root.open_dir(top.as_str()).map_err(|error| failed(&error, top))?;
    let path: PathBuf =
        Path::new(top.as_str()).components().filter(|part| part.as_os_str() != ".").collect();
    let top = path.clone();
    let mut levels = vec![level(folder, path, gitignore, MAX_NAMES, &mut unread)];
    while let Some(here) = levels.last_mut() {
        if stop.is_cancelled() {
            break;
        }
        let Some((name, kind)) = here.names.next() else {
            levels.pop();
            continue;
        };
        let path = here.path.join(&name);
        let is_dir = kind.is_dir();
        if gitignore {
            let rules = levels.iter().filter_map(|level| level.ignored.as_ref());
            if name == ".git" || ignored::is_ignored(rules, &path, is_dir) {
                continue;
            }
        }
        let depth = levels.len();
        let Some(here) = levels.last() else { break };
        let below = path.strip_prefix(&top).unwrap_or(&path);
        visit(&Step { folder: &here.folder, name: &name, path: &path, below, kind }, &mut unread);
        if !is_dir {
            continue;
        }
        if depth >= MAX_DEPTH {
            unread.add(&path, format!("is below {MAX_DEPTH} folders"));
            continue;
        }
        match here.folder.open_dir_nofollow(&name) {
            Ok(folder) => {
                let held: usize = levels.iter().map(|level| level.names.len()).sum();
                let next = level(folder, path, gitignore, MAX_NAMES - held, &mut unread);
                levels.push(next);
            }
            Err(error) => unread.add(&path, error),
        }
    }
    Ok(unread)
}

/// Reads the names of a folder, at most `room` of them.
fn level(folder: Dir, path: PathBuf, gitignore: bool, room: usize, unread: &mut Unread) -> Level {
    let mut names = Vec::new();
    match folder.entries() {
        Ok(entries) => {
            for entry in entries {
                if names.len() >= room {
                    unread.add(&path, "has more names than are held");
                    break;
                }
                match entry.and_then(|entry| Ok((entry.file_name(), entry.file_type()?))) {
                    Ok(entry) => names.push(entry),
                    Err(error) => {
                        unread.add(&path, error);
                        break;
                    }
                }
            }
        }
        Err(error) => unread.add(&path, error),
    }
    names.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let ignored = if gitignore { ignored::rules(&folder, &path) } else { None };
    Level { folder, path, names: names.into_iter(), ignored }
}
