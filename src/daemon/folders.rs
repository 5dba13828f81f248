//! Folders of the daemon, made if missing, and the lock file that admits one daemon per run directory.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use hivekeep_config::DaemonFolders;
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    process::{Pid, test_kill_process},
};

/// The reason why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Somebody else made it.
    #[error("{} belongs to user {owner}: remove it, or choose another folder", path.display())]
    NotOurs {
        /// The folder.
        path: PathBuf,
        /// The uid of its owner.
        owner: u32,
    },
    /// Something else is at its place.
    #[error("{} is not a folder", path.display())]
    NoFolder {
        /// The place.
        path: PathBuf,
    },
    /// The folder cannot be made or looked at.
    #[error("{}: {source}", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Makes the folders that have to be there before anything else.
pub(super) fn make(folders: &DaemonFolders) -> Result<(), FolderError> {
    // Machines of other users have to pass on the way to their own folders. What is in it is closed by modes
    // of its own, the socket too.
    let root = rustix::process::geteuid().is_root();
    ours(&folders.run, if root { 0o711 } else { 0o700 })?;
    private(&folders.state)?;
    private(&folders.logs)?;
    match folders.socket.parent() {
        // A socket elsewhere: its folder is somebody's choice and stays as it is.
        Some(parent) if parent != folders.run && !parent.exists() => private(parent),
        _ => Ok(()),
    }
}

/// A folder of our own that nobody else can enter.
fn private(path: &Path) -> Result<(), FolderError> {
    ours(path, 0o700)
}

/// A folder of our own of this mode. What is found more open is closed: the
/// folder is checked through a link to nothing else.
fn ours(path: &Path, mode: u32) -> Result<(), FolderError> {
    let io = |source| FolderError::Io { path: path.to_owned(), source };
    fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(io)?;
    let found = fs::symlink_metadata(path).map_err(io)?;
    if !found.is_dir() {
        return Err(FolderError::NoFolder { path: path.to_owned() });
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(FolderError::NotOurs { path: path.to_owned(), owner: found.uid() });
    }
    if found.mode() & 0o777 != mode {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(io)?;
    }
    Ok(())
}

/// How long a lock is waited for whose holder is gone. A process that it was
/// about to start shares the lock until it has become its program.
const LET_GO: Duration = Duration::from_secs(5);

/// The lock, held as long as this lives. The kernel lets go of it when the
/// process ends in any way, so a stale file means nothing.
#[derive(Debug)]
pub struct DaemonLock {
    _file: File,
}

/// The process that holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockHolder(pub Option<u32>);

impl LockHolder {
    fn named_in(file: &mut File) -> Self {
        let mut text = String::new();
        let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
        Self(read.ok().and_then(|_| text.trim().parse().ok()))
    }

    fn lives(self) -> bool {
        let pid = self.0.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
    }
}

impl std::fmt::Display for LockHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "pid {pid}"),
            None => f.write_str("unknown pid"),
        }
    }
}

/// The reason why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another daemon runs.
    #[error("another daemon ({holder}) holds {}", path.display())]
    Held {
        /// The lock file.
        path: PathBuf,
        /// The process that holds the lock, as far as the file tells.
        holder: LockHolder,
    },
    /// The file cannot be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

impl DaemonLock {
    /// Takes the lock and writes this process's id into it.
    ///
    /// # Errors
    /// [`LockError::Held`] at once when another process has it, and after
    /// five seconds when the process that the file names is gone.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        let io = |source| LockError::Io { path: path.to_owned(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(io)?;
        let begun = Instant::now();
        while let Err(errno) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if errno != Errno::WOULDBLOCK {
                return Err(io(errno.into()));
            }
            let holder = LockHolder::named_in(&mut file);
            if holder.lives() || begun.elapsed() >= LET_GO {
                return Err(LockError::Held { path: path.to_owned(), holder });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        file.set_len(0).map_err(io)?;
        file.rewind().map_err(io)?;
        writeln!(file, "{}", std::process::id()).map_err(io)?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_folder_is_made_for_us_alone_and_an_open_one_is_closed() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a/b");
        private(&path).expect("made");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("opened");
        private(&path).expect("closed");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o700);
    }

    #[test]
    fn a_link_in_its_place_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).expect("links");
        assert!(matches!(private(&link), Err(FolderError::NoFolder { .. })));
    }

    #[test]
    fn a_second_taker_is_told_who_holds_it_and_the_end_of_the_first_frees_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("daemon.lock");
        let first = DaemonLock::take(&path).expect("free");
        match DaemonLock::take(&path) {
            Err(LockError::Held { holder, .. }) => {
                assert_eq!(holder, LockHolder(Some(std::process::id())));
            }
            other => panic!("{other:?}"),
        }
        drop(first);
        DaemonLock::take(&path).expect("free again");
    }

    #[test]
    fn what_a_dead_holder_was_about_to_start_is_waited_for() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("daemon.lock");
        let mut dead = std::process::Command::new("true").spawn().expect("starts");
        dead.wait().expect("ended");
        let heir = DaemonLock::take(&path).expect("free");
        std::fs::write(&path, dead.id().to_string()).expect("writes");
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(heir);
        });
        DaemonLock::take(&path).expect("free in the end");
        late.join().expect("let go");
    }

    #[test]
    fn a_stale_file_is_no_obstacle() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("daemon.lock");
        std::fs::write(&path, "999999999999 a longer line than ours").expect("writes");
        let _held = DaemonLock::take(&path).expect("free");
        let text = std::fs::read_to_string(&path).expect("reads");
        assert_eq!(text, format!("{}\n", std::process::id()));
    }
}
