//! Cache of image trees: one copy for each subordinate user that has started from the tree.
//!
//! A contained root has rights over files of its own user only, and an ordinary user may not map
//! the ids of a mount, as [`super::layout`] does for root. So the tree is copied once and given
//! away; the next sandbox of the same user finds it. An existing copy is complete: it is made
//! aside, flushed and renamed. Copies of trees that no longer exist are removed when the next copy
//! is made.
//!
//! `.hivekeep-trees/ID/KEY/` beside the machines' disks has the copy, `tree`, and a link to its
//! original, `source`. ID is the user's in the namespace, KEY is made of the source's path: a
//! tree's path is made of its content, and is never another's.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::subordinates::{Subordinates, Within};

const COPIES: &str = ".hivekeep-trees";
const TREE: &str = "tree";
const SOURCE: &str = "source";
/// Name of a copy in the making; not a possible key.
const FRESH: &str = ".new";

/// Returns this user's copy; makes it if it is missing. Blocks for as long as copying takes. Each
/// user has one sandbox, so that no two callers make the same copy.
pub(super) fn tree_of(
    users: &Subordinates,
    user: &Within,
    tree: &Path,
    disks: &Path,
) -> io::Result<PathBuf> {
    let own = disks.join(COPIES).join(user.id.to_string());
    let kept = own.join(&blake3::hash(tree.as_os_str().as_bytes()).to_hex()[..16]);
    if kept.exists() {
        return Ok(kept.join(TREE));
    }
    let fresh = own.join(FRESH);
    let folder = |path| DirBuilder::new().recursive(true).mode(0o700).create(path);
    folder(&own)?;
    remove_stale(users, &own)?;
    folder(&fresh)?;
    symlink(tree, fresh.join(SOURCE))?;
    let copy = fresh.join(TREE);
    users.run(Command::new("cp").args(["-a", "--reflink=auto", "--"]).arg(tree).arg(&copy))?;
    // Clears set-user-id of programs: only one user exists there, and it owns them.
    let owner = format!("{0}:{0}", user.id);
    users.run(Command::new("chown").args(["-hR", &owner, "--"]).arg(&copy))?;
    rustix::fs::syncfs(File::open(&own)?)?;
    hivekeep_fs::rename(&fresh, &kept)?;
    Ok(kept.join(TREE))
}

/// Removes incomplete copies that a crash left, and copies of trees that no longer exist.
fn remove_stale(users: &Subordinates, own: &Path) -> io::Result<()> {
    for entry in fs::read_dir(own)? {
        let entry = entry?;
        if entry.file_name() == FRESH || !entry.path().join(SOURCE).exists() {
            users.remove(&entry.path())?;
        }
    }
    Ok(())
}
