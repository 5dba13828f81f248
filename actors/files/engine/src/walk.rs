//! Parallel walk over a tree by handles: no link is followed, and memory is bounded by a number of names
//! and of open folders. Of `.gitignore` files those on the way from its top to a folder hold.

use std::{
    ffi::OsString,
    io::Read,
    num::NonZero,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt};
use cap_std::fs::{Dir, FileType, MetadataExt, OpenOptions, OpenOptionsExt};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{FsWord, OFlags, fstatfs};

use crate::{
    FileError, PlacePath, Stop, Unread,
    error::failed,
    workers::{UnreadPaths, WorkQueue},
};

/// Folders below one another that are entered.
const MAX_DEPTH: usize = 256;
/// Names that are held at a time, of all folders on the way.
const MAX_NAMES: usize = 1_000_000;
/// Size of everything that an answer of a walk shows.
pub(crate) const MAX_SHOWN_BYTES: usize = 1024 * 1024;
/// Workers of one walk; fewer where there are fewer processors.
const MAX_WORKERS: usize = 4;
/// Files of one folder that a worker takes at a time.
const FILES_AT_A_TIME: usize = 32;

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

/// Visitor of one worker of a walk: handles each entry that is no folder, and keeps the findings.
pub(crate) trait Visit: Send {
    /// Handles an entry that is no folder.
    fn visit(&mut self, step: &Step<'_>, unread: &mut UnreadPaths);
    /// Takes over the findings of another worker.
    fn join(&mut self, other: Self);
}

/// Entry that a walk reached.
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

/// Folder that was entered. It is closed when nothing of it is left to be done.
struct Entered {
    dir: Dir,
    /// File system that it is on.
    device: u64,
    path: PathBuf,
    depth: usize,
    rules: Option<Arc<IgnoreRules>>,
}

enum Work {
    Folder(Arc<Entered>, OsString),
    Files(Arc<Entered>, Vec<(OsString, FileType)>),
}

struct Walk<'w> {
    top: PathBuf,
    gitignore: bool,
    stop: Stop<'w>,
    queue: WorkQueue<Work>,
    /// Names that are held.
    held: AtomicUsize,
}

/// Has workers visit everything but folders below `top`, in no order. With `gitignore`, what the
/// `.gitignore` files below `top` exclude is left out, and `.git`. Ends when `stop` fires.
///
/// # Errors
/// As [`failed`], for `top` itself. What else cannot be read is in the result.
pub(crate) fn walk<V: Visit>(
    root: &Dir,
    top: &PlacePath,
    gitignore: bool,
    stop: Stop<'_>,
    new: impl Fn() -> V,
) -> Result<(V, Unread), FileError> {
    let dir = root.open_dir(top.as_str()).map_err(|error| failed(&error, top))?;
    let (queue, top) = (WorkQueue::of(Vec::new()), top.shown());
    let walk = Walk { top: top.clone(), gitignore, stop, queue, held: AtomicUsize::new(0) };
    let (mut found, mut unread) = (new(), UnreadPaths::default());
    let device = device(&dir);
    walk.enter(Entered { dir, device, path: top, depth: 1, rules: None }, &mut unread);
    let work = |mut found: V| {
        let mut unread = UnreadPaths::default();
        walk.work(&mut found, &mut unread);
        (found, unread)
    };
    thread::scope(|scope| {
        let work = &work;
        let start = |_| {
            let found = new();
            thread::Builder::new().spawn_scoped(scope, move || work(found))
        };
        // Fewer workers run where no thread can be started.
        let others: Vec<_> = (1..workers()).map_while(|nth| start(nth).ok()).collect();
        walk.work(&mut found, &mut unread);
        for other in others {
            match other.join() {
                Ok((others_found, others_unread)) => {
                    found.join(others_found);
                    unread.join(others_unread);
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    Ok((found, unread.told()))
}

fn workers() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(MAX_WORKERS)
}

impl Walk<'_> {
    fn work<V: Visit>(&self, found: &mut V, unread: &mut UnreadPaths) {
        self.queue.work(self.stop, |work| match work {
            Work::Folder(parent, name) => {
                self.held.fetch_sub(1, Relaxed);
                self.open(&parent, &name, unread);
            }
            Work::Files(parent, files) => {
                self.held.fetch_sub(files.len(), Relaxed);
                for (name, kind) in files.iter().take_while(|_| !(self.stop)()) {
                    let path = parent.path.join(name);
                    let below = path.strip_prefix(&self.top).unwrap_or(&path);
                    let step = Step { folder: &parent.dir, name, path: &path, below, kind: *kind };
                    found.visit(&step, unread);
                }
            }
        });
    }

    fn open(&self, parent: &Entered, name: &OsString, unread: &mut UnreadPaths) {
        let (path, depth) = (parent.path.join(name), parent.depth + 1);
        if depth > MAX_DEPTH {
            unread.add(&path, format!("is below {MAX_DEPTH} folders"));
            return;
        }
        match parent.dir.open_dir_nofollow(name) {
            Ok(dir) => {
                let device = device(&dir);
                if device != parent.device && is_kernels_own(&dir) {
                    unread.add(&path, "is the kernel's");
                    return;
                }
                let rules = parent.rules.clone();
                self.enter(Entered { dir, device, path, depth, rules }, unread);
            }
            Err(error) => unread.add(&path, error),
        }
    }

    /// Reads the names of a folder and leaves the rest to whoever has time.
    fn enter(&self, mut folder: Entered, unread: &mut UnreadPaths) {
        if self.gitignore {
            let above = folder.rules.take();
            folder.rules = IgnoreRules::read(&folder.dir, &folder.path, above);
        }
        let mut names = self.names(&folder, unread);
        names.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let (folders, files): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|(_, kind)| kind.is_dir());
        let entered = Arc::new(folder);
        let folders = folders.into_iter().rev();
        let folders = folders.map(|(name, _)| Work::Folder(entered.clone(), name));
        let files = files.chunks(FILES_AT_A_TIME).rev();
        let files = files.map(|files| Work::Files(entered.clone(), files.to_vec()));
        self.queue.push(folders.chain(files));
    }

    /// Names of a folder that are walked on, as many of them as may be held.
    fn names(&self, folder: &Entered, unread: &mut UnreadPaths) -> Vec<(OsString, FileType)> {
        let mut names = Vec::new();
        let entries = match folder.dir.entries() {
            Ok(entries) => entries,
            Err(error) => {
                unread.add(&folder.path, error);
                return names;
            }
        };
        for entry in entries.take_while(|_| !(self.stop)()) {
            match entry.and_then(|entry| Ok((entry.file_name(), entry.file_type()?))) {
                Ok((name, kind)) if self.is_ignored(folder, &name, kind) => {}
                Ok(_) if self.held.load(Relaxed) >= MAX_NAMES => {
                    unread.add(&folder.path, "has more names than are held");
                    break;
                }
                Ok(entry) => {
                    self.held.fetch_add(1, Relaxed);
                    names.push(entry);
                }
                Err(error) => {
                    unread.add(&folder.path, error);
                    break;
                }
            }
        }
        names
    }

    fn is_ignored(&self, folder: &Entered, name: &OsString, kind: FileType) -> bool {
        let by_rules = |rules: &IgnoreRules| rules.exclude(&folder.path.join(name), kind.is_dir());
        self.gitignore && (name == ".git" || folder.rules.as_deref().is_some_and(by_rules))
    }
}

fn device(folder: &Dir) -> u64 {
    folder.dir_metadata().map_or(0, |metadata| metadata.dev())
}

fn is_kernels_own(folder: &Dir) -> bool {
    fstatfs(folder).is_ok_and(|found| KERNELS_OWN.contains(&found.f_type))
}

/// Size in bytes of a `.gitignore` that is read.
const MAX_IGNORE_BYTES: u64 = 1024 * 1024;

/// Rules of a folder, and of those that it is in.
struct IgnoreRules {
    own: Gitignore,
    above: Option<Arc<Self>>,
}

impl IgnoreRules {
    /// Rules that hold in a folder: those above where it has none of its own.
    fn read(dir: &Dir, path: &Path, above: Option<Arc<Self>>) -> Option<Arc<Self>> {
        match rules_of(dir, path) {
            Some(own) => Some(Arc::new(Self { own, above })),
            None => above,
        }
    }

    /// Judges a path in the folder, by the nearest rules that say something of it.
    fn exclude(&self, path: &Path, is_dir: bool) -> bool {
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
fn rules_of(folder: &Dir, path: &Path) -> Option<Gitignore> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags).follow(FollowSymlinks::No);
    let file = folder.open_with(".gitignore", &options).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(MAX_IGNORE_BYTES).read_to_end(&mut text).ok()?;
    let mut builder = GitignoreBuilder::new(path);
    for line in String::from_utf8_lossy(&text).lines() {
        let _unreadable_line = builder.add_line(None, line);
    }
    builder.build().ok()
}

#[cfg(test)]
mod tests {
    use cap_std::ambient_authority;

    use super::*;

    #[test]
    fn file_systems_of_the_kernel_are_known_and_mounted() {
        let open = |path| Dir::open_ambient_dir(path, ambient_authority()).expect("a folder");
        let (root, proc) = (open("/"), open("/proc"));
        assert!(is_kernels_own(&proc) && device(&proc) != device(&root));
        assert!(!is_kernels_own(&root) && !is_kernels_own(&open("/tmp")));
    }
}
