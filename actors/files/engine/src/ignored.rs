//! Rules of the `.gitignore` files on the way from a walk's root to a folder.

use std::{io::Read, path::Path};

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt};
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::OFlags;

/// Size in bytes of a `.gitignore` that is read.
const MAX_BYTES: u64 = 1024 * 1024;

/// Reads the rules of one folder; `None` where there are none. Lines that make no sense are left out, as
/// git does.
pub(crate) fn rules(folder: &Dir, path: &Path) -> Option<Gitignore> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags).follow(FollowSymlinks::No);
    let file = folder.open_with(".gitignore", &options).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    let mut builder = GitignoreBuilder::new(path);
    for line in String::from_utf8_lossy(&text).lines() {
        let _unreadable_line = builder.add_line(None, line);
    }
    builder.build().ok()
}

/// Judges a path by the rules of the folders that it is in, the nearest last.
pub(crate) fn is_ignored<'r>(
    rules: impl DoubleEndedIterator<Item = &'r Gitignore>,
    path: &Path,
    is_dir: bool,
) -> bool {
    for rules in rules.rev() {
        let judged = rules.matched(path, is_dir);
        if !judged.is_none() {
            return judged.is_ignore();
        }
    }
    false
}
