//! Depth-first walk over a tree by handles: no link is followed, and memory is bounded by the largest
//! folder and a number of open folders.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    vec::IntoIter,
};

use cap_fs_ext::DirExt;
use cap_std::fs::{Dir, FileType, MetadataExt};
use ignore::gitignore::Gitignore;
use rustix::fs::{FsWord, fstatfs};
use serde::{Deserialize, Serialize};

use crate::{FileError, PlacePath, Stop, error::failed, ignored};

/// Folders below one another that are entered.
const MAX_DEPTH: usize = 256;
/// Names that are held at a time, of all folders on the way.
const MAX_NAMES: usize = 1_000_000;
/// Unreadable paths that are named; the others are counted.
pub(crate) const MAX_NAMED: usize = 20;
/// Size of everything that an answer of a walk shows.
pub(crate) const MAX_SHOWN_BYTES: usize = 1024 * 1024;

/// File systems in which the kernel shows itself: to search them finds nobody's files, has no end, and can
/// act on the machine.
const KERNELS_OWN: [FsWord; 10] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x1cd1,      // devpts
    0x7363_6673, // securityfs
    0xcafe_4a11, // bpf
    0x6265_6570, // configfs
];

/// Paths that could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {
    /// The first ones, each with the reason.
    pub named: Vec<String>,
    /// Number of all.
    pub total: u64,
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
    /// Path as it is shown.
    pub(crate) path: &'w Path,
    /// Path from the walk's top.
    pub(crate) below: &'w Path,
    pub(crate) kind: FileType,
}

struct Level {
    folder: Dir,
    /// File system that it is on.
    device: u64,
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
    stop: Stop<'_>,
    mut visit: impl FnMut(&Step<'_>, &mut Unread),
) -> Result<Unread, FileError> {
    let mut unread = Unread::default();
    let folder = root.open_dir(top.as_str()).map_err(|error| failed(&error, top))?;
    let path = top.shown();
    let top = path.clone();
    let device = folder.dir_metadata().map_or(0, |metadata| metadata.dev());
    let mut levels = vec![level(folder, device, path, gitignore, MAX_NAMES, &mut unread)];
    while let Some(here) = levels.last_mut() {
        if stop() {
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
                let device = folder.dir_metadata().map_or(0, |metadata| metadata.dev());
                if device != here.device && is_kernels_own(&folder) {
                    unread.add(&path, "is the kernel's");
                    continue;
                }
                let held: usize = levels.iter().map(|level| level.names.len()).sum();
                let room = MAX_NAMES - held;
                levels.push(level(folder, device, path, gitignore, room, &mut unread));
            }
            Err(error) => unread.add(&path, error),
        }
    }
    Ok(unread)
}

fn is_kernels_own(folder: &Dir) -> bool {
    fstatfs(folder).is_ok_and(|found| KERNELS_OWN.contains(&found.f_type))
}

/// Reads the names of a folder, at most `room` of them.
fn level(
    folder: Dir,
    device: u64,
    path: PathBuf,
    gitignore: bool,
    room: usize,
    unread: &mut Unread,
) -> Level {
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
    Level { folder, device, path, names: names.into_iter(), ignored }
}

#[cfg(test)]
mod tests {
    use cap_std::ambient_authority;

    use super::*;

    #[test]
    fn file_systems_of_the_kernel_are_known_and_mounted() {
        let open = |path| Dir::open_ambient_dir(path, ambient_authority()).expect("a folder");
        let device = |folder: &Dir| folder.dir_metadata().expect("looked at").dev();
        let (root, proc) = (open("/"), open("/proc"));
        assert!(is_kernels_own(&proc) && device(&proc) != device(&root));
        assert!(!is_kernels_own(&root) && !is_kernels_own(&open("/tmp")));
    }
}
