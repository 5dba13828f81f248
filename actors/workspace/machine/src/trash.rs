//! Trash folder: disks of destroyed workspaces, moved aside to be removed in the background.
//!
//! A sandbox's disk is a tree of as many files as its guest made, and removing it takes
//! as long as the host's disk wants: tens of seconds for 20,000 files that had been
//! synced. Moving it aside is one rename. So a destroyed disk is moved into a folder
//! beside the others, where nothing looks for a workspace, and one thread for each such
//! folder removes what is there. What a crash leaves in it goes at the next start; a
//! rename that a crash takes back leaves a folder without a record, which goes then too.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hivekeep_fs::remove_tree;
use hivekeep_kernel::lock;
use uuid::Uuid;

use super::sandbox::Subordinates;
use super::{Error, folders};

/// Name of the folder; no workspace has a name that begins like it.
pub(super) const TRASH: &str = ".hivekeep-trash";

/// Handle to the removing threads. Cheap to clone; clones share the threads.
#[derive(Debug, Clone, Default)]
pub(super) struct Trash {
    /// Folders that a thread is emptying.
    emptying: Arc<Mutex<HashSet<PathBuf>>>,
    /// Users whose files the daemon may remove only in their namespace.
    subordinates: Option<Subordinates>,
}

impl Trash {
    /// Handle for disks that may be these users'.
    pub(super) fn of(subordinates: Option<Subordinates>) -> Self {
        Self { emptying: Arc::default(), subordinates }
    }

    /// Moves a marked folder out of its root, and has it removed; nothing if it is not
    /// there. Blocks for one rename.
    pub(super) fn take(&self, dir: &Path) -> Result<(), Error> {
        if !dir.exists() {
            return Ok(());
        }
        let (Some(root), Some(name)) = (dir.parent(), dir.file_name()) else {
            return Err(Error::BadPlan(format!("{} has no parent folder", dir.display())));
        };
        if folders::owner(dir).is_none() {
            return Err(Error::BadPlan(format!("{} is not a machine's folder", dir.display())));
        }
        let trash = root.join(TRASH);
        match fs::DirBuilder::new().mode(0o700).create(&trash) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(Error::io("make the folder", &trash)(error));
            }
            _ => {}
        }
        let place = trash.join(format!("{}-{}", name.display(), Uuid::new_v4().simple()));
        match fs::rename(dir, &place) {
            Ok(()) => {}
            // Somebody mounted a file system of its own here.
            Err(error) if error.kind() == ErrorKind::CrossesDevices => return folders::remove(dir),
            Err(error) => return Err(Error::io("move aside", dir)(error)),
        }
        self.empty(root);
        Ok(())
    }

    /// Starts the removal of everything that was moved aside in this root. Does not wait.
    pub(super) fn empty(&self, root: &Path) {
        let trash = root.join(TRASH);
        // A thread that empties the folder looks once more before it ends.
        if !trash.is_dir() || !lock(&self.emptying).insert(trash.clone()) {
            return;
        }
        let (this, place) = (self.clone(), trash.clone());
        let work = move || this.work(&place);
        if let Err(error) = std::thread::Builder::new().name("trash".into()).spawn(work) {
            tracing::error!(%error, path = %trash.display(), "destroyed disks stay until the next start");
            lock(&self.emptying).remove(&trash);
        }
    }

    fn work(&self, trash: &Path) {
        let mut stuck = BTreeSet::new();
        loop {
            let mut emptying = lock(&self.emptying);
            let Some(next) = first(trash, &stuck) else {
                emptying.remove(trash);
                return;
            };
            drop(emptying);
            if let Err(error) = self.remove(&next) {
                let (path, stuck_disks) = (next.display(), stuck.len() + 1);
                tracing::error!(%error, %path, stuck_disks, "a destroyed disk stays until the next start");
                stuck.insert(next);
            }
        }
    }

    fn remove(&self, tree: &Path) -> std::io::Result<()> {
        match (remove_tree(tree), &self.subordinates) {
            (Err(error), Some(users)) if error.kind() == ErrorKind::PermissionDenied => {
                users.remove(tree)
            }
            (removed, _) => removed,
        }
    }
}

fn first(trash: &Path, stuck: &BTreeSet<PathBuf>) -> Option<PathBuf> {
    let entries = fs::read_dir(trash).ok()?.flatten();
    entries.map(|entry| entry.path()).find(|path| !stuck.contains(path))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{fake, host_env};
    use std::time::{Duration, Instant};

    /// Waits until nothing is left in a root's trash.
    pub(crate) fn wait_empty(root: &Path) {
        let begun = Instant::now();
        while first(&root.join(TRASH), &BTreeSet::new()).is_some() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} is not emptied", root.display());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_disk_is_gone_at_once_and_removed_in_time() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (fake::plan("ws_1", dir.path()), fake::plan("ws_2", dir.path()));
        for plan in [&one, &other] {
            host_env::make_folders(plan).unwrap();
            let inner = plan.folders.disk_dir.join("overlay/work");
            fs::create_dir_all(&inner).unwrap();
            fs::write(inner.join("file"), "x").unwrap();
            // Permissions that overlayfs leaves.
            fs::set_permissions(&inner, fs::Permissions::from_mode(0o000)).unwrap();
        }
        let trash = Trash::default();
        for plan in [&one, &other, &other] {
            trash.take(&plan.folders.disk_dir).unwrap();
            assert!(!plan.folders.disk_dir.exists());
        }
        wait_empty(&dir.path().join("disk"));
        // A workspace may have the name again, and be destroyed again.
        host_env::make_folders(&one).unwrap();
        trash.take(&one.folders.disk_dir).unwrap();
        wait_empty(&dir.path().join("disk"));
    }

    #[test]
    fn what_a_crash_left_is_removed_and_what_is_not_ours_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("disk");
        // Half removed: the mark went already.
        fs::create_dir_all(root.join(TRASH).join("ws_1-0/overlay")).unwrap();
        fs::create_dir(root.join("somebody-elses")).unwrap();
        let trash = Trash::default();
        assert!(matches!(trash.take(&root.join("somebody-elses")), Err(Error::BadPlan(_))));
        trash.empty(&root);
        wait_empty(&root);
        assert!(root.join("somebody-elses").exists());
    }

    #[test]
    fn what_cannot_be_removed_stays_and_holds_nothing_up() {
        let dir = tempfile::tempdir().unwrap();
        let trash = dir.path().join("disk").join(TRASH);
        let point = trash.join("ws_1-0/overlay/mounted");
        for folder in [&point, &trash.join("ws_2-0/overlay"), &dir.path().join("elsewhere")] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(dir.path().join("elsewhere/kept"), "").unwrap();
        if let Err(errno) = rustix::mount::mount_bind(dir.path().join("elsewhere"), &point) {
            return hivekeep_skip::skip(format_args!("this user may not mount: {errno}"));
        }
        let ours = Trash::default();
        ours.empty(&dir.path().join("disk"));
        let begun = Instant::now();
        while !lock(&ours.emptying).is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it is tried for ever");
            std::thread::sleep(Duration::from_millis(5));
        }
        let left: Vec<_> = fs::read_dir(&trash).unwrap().map(|e| e.unwrap().file_name()).collect();
        rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH).unwrap();
        assert_eq!(left, ["ws_1-0"]);
        assert!(dir.path().join("elsewhere/kept").exists());
        ours.empty(&dir.path().join("disk"));
        wait_empty(&dir.path().join("disk"));
    }
}
