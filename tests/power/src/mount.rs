//! A mount of the file system, and cuts of its power.
//!
//! A cut does not end the load: it takes what would be found if power went at that moment, and
//! the programs go on. So one load gives many cuts.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use fuser::{BackgroundSession, Config, MountOption};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

use crate::door::Door;
use crate::image::Image;
use crate::names::Order;
use crate::state::State;

/// How long a cut waits for the changes that it is to come after.
const PATIENCE: Duration = Duration::from_secs(90);

/// The first word of its line in the table of mounts.
const NAME: &str = "forgetful";

/// When and how power goes.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// After so many changes and syncs, from now on.
    pub after: u64,
    /// How names reach the disk.
    pub order: Order,
    /// Of everything that is left to chance.
    pub seed: u64,
}

/// A mounted file system. Dropped, it is unmounted, whoever still uses it.
pub struct Mount {
    dir: TempDir,
    shared: Arc<Mutex<Shared>>,
    _session: BackgroundSession,
}

/// The file system, and the cut that is due.
pub(crate) struct Shared {
    pub(crate) state: State,
    /// Syncs are answered and not done.
    pub(crate) lies: bool,
    due: Option<Due>,
}

struct Due {
    cut: Cut,
    first: Box<dyn FnOnce() + Send>,
    done: Sender<Image>,
}

impl Shared {
    /// Takes a step: a change or a sync is about to happen.
    pub(crate) fn step(&mut self) {
        let Some(due) = &mut self.due else { return };
        match due.cut.after.checked_sub(1) {
            Some(left) => due.cut.after = left,
            None => self.fall(),
        }
    }

    fn fall(&mut self) {
        let Some(Due { cut, first, done }) = self.due.take() else { return };
        first();
        let image = self.state.survivor(cut.order, &mut Rng::with_seed(cut.seed));
        // Whoever asked may be gone.
        let _ = done.send(image);
    }
}

pub(crate) fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mount {
    /// Mounts a disk with what is on it.
    ///
    /// # Errors
    /// Where there is no FUSE, or no right to mount.
    pub fn new(image: &Image) -> io::Result<Self> {
        sweep();
        let dir = tempfile::Builder::new().prefix("power").tempdir()?;
        let shared =
            Arc::new(Mutex::new(Shared { state: State::load(image), lies: false, due: None }));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName(NAME.into()), MountOption::NoAtime];
        let door = Door::new(shared.clone());
        let session = fuser::spawn_mount(door, dir.path(), &config)?;
        Ok(Self { dir, shared, _session: session })
    }

    /// Why this machine or user can have none, if that is so.
    pub fn refused() -> Option<String> {
        let refused = Self::new(&Image::default()).err()?;
        Some(format!("no file system can be mounted over /dev/fuse: {refused}"))
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Has it answer syncs without doing them, from now on: what every test must notice.
    pub fn lie(&self) {
        lock(&self.shared).lies = true;
    }

    /// Cuts the power; the load goes on. At that moment, before anything is lost, `first` is
    /// called: what it finds acknowledged has to be in the image.
    ///
    /// # Panics
    /// If no program changes anything for long.
    pub fn cut<T: Send + 'static>(
        &self,
        cut: Cut,
        first: impl FnOnce() -> T + Send + 'static,
    ) -> (T, Image) {
        let ((told, tell), (done, image)) = (channel(), channel());
        let first = Box::new(move || {
            // Whoever asked may be gone.
            let _ = told.send(first());
        });
        lock(&self.shared).due = Some(Due { cut, first, done });
        let image = image.recv_timeout(PATIENCE).expect("something is changed");
        (tell.recv().expect("it was called"), image)
    }
}

/// Unmounts what processes left that were killed: nobody serves it any more.
fn sweep() {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let ours = mounts.lines().filter_map(|line| line.strip_prefix(NAME)?.split(' ').nth(1));
    for path in ours {
        let served = std::fs::metadata(path);
        if served.is_err_and(|error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error())) {
            // Another test may be doing the same.
            let _ = unmount(path, UnmountFlags::DETACH);
            let _ = std::fs::remove_dir(path);
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let path: PathBuf = self.dir.path().into();
        if let Err(error) = unmount(&path, UnmountFlags::DETACH | UnmountFlags::FORCE) {
            eprintln!("{} stays mounted: {error}", path.display());
        }
    }
}
