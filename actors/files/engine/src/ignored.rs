//! Rules of the `.gitignore` files on the way from a walk's top to a folder.

use std::{io::Read, path::Path, sync::Arc};

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt};
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::OFlags;

/// Size in bytes of a `.gitignore` that is read.
const MAX_BYTES: u64 = 1024 * 1024;

/// Rules of a folder, and of those that it is in.
pub(crate) struct IgnoreRules {
    own: Gitignore,
    above: Option<Arc<Self>>,
}

impl IgnoreRules {
    /// Rules that hold in a folder: those above where it has none of its own.
    pub(crate) fn read(dir: &Dir, path: &Path, above: Option<Arc<Self>>) -> Option<Arc<Self>> {
        match own(dir, path) {
            Some(own) => Some(Arc::new(Self { own, above })),
            None => above,
        }
    }

    /// Judges a path in the folder, by the nearest rules that say something of it.
    pub(crate) fn exclude(&self, path: &Path, is_dir: bool) -> bool {
        let mut next = Some(self);
        while let Some(rules) = next {
            let judged = rules.own.matched(path, is_dir);
            if !judged.is_none() {
                return judged.is_ignore();
            }
            next = rules.above.as_deref();
        }
        false
    }
}

/// Reads the rules of one folder; `None` where there are none. Lines that make no sense are left out, as
/// git does.
fn own(folder: &Dir, path: &Path) -> Option<Gitignore> {
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
