//! What the disk holds of the tasks.
//!
//! | path | holds |
//! |---|---|
//! | `owner` | the machine id of whose tasks these are; there before all else |
//! | `log` | every [`Task`](super::queue::Task), and what it asks for, by what became of it one after the other |
//! | `runs/rNUMBER/` | the [`JobDir`] of a command, made before it is known whose |
//!
//! A machine that began as a copy of another finds that one's tasks: they are put aside as a
//! whole, to `tasks-of-OWNER`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use hivekeep_protocol::{TaskOutput, limits};

use super::log::{Log, staged};
use crate::files::temp::sync_parent;
use crate::jobs::dir::JobDir;

/// The tasks' folder, which may not be there yet.
#[derive(Debug, Clone)]
pub struct Folder {
    root: PathBuf,
}

impl Folder {
    /// Does not touch the disk.
    pub fn new(state_dir: &Path) -> Self {
        Self { root: state_dir.join("tasks") }
    }

    /// Whose tasks are there; `None` when there are none.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn owner(&self) -> io::Result<Option<String>> {
        match std::fs::read_to_string(self.root.join("owner")) {
            Ok(owner) => Ok(Some(owner.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Puts another machine's tasks aside. What an earlier machine of that name left goes.
    ///
    /// # Errors
    /// As rename(2).
    pub fn put_aside(&self, owner: &str) -> io::Result<()> {
        let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
        let whose: String = owner.chars().filter(plain).take(64).collect();
        let aside = self.root.with_file_name(format!("tasks-of-{whose}"));
        if aside.exists() {
            std::fs::remove_dir_all(&aside)?;
        }
        std::fs::rename(&self.root, aside)?;
        sync_parent(&self.root)
    }

    /// Makes the folder, which is not there. Answers its log.
    ///
    /// # Errors
    /// When it cannot be made; then it is not there.
    pub fn make(&self, owner: &str) -> io::Result<Log> {
        let staged = self.root.with_file_name(".tasks.new");
        if staged.exists() {
            std::fs::remove_dir_all(&staged)?;
        }
        std::fs::create_dir_all(staged.join("runs"))?;
        let (log, _none) = Log::create(&staged.join("log"), std::iter::empty())?;
        let mut file = File::create(staged.join("owner"))?;
        file.write_all(owner.as_bytes())?;
        file.sync_all()?;
        sync_parent(&staged.join("owner"))?;
        std::fs::rename(&staged, &self.root)?;
        sync_parent(&self.root)?;
        Ok(log)
    }

    /// Reads the log back.
    ///
    /// # Errors
    /// When it cannot be read. What it has is whole or not there, so that the disk is to blame.
    pub fn load(&self, each: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<Log> {
        let _none = std::fs::remove_file(staged(&self.log()));
        Log::open(&self.log(), each)
    }

    /// Where the log is.
    pub fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    /// The runs that there are. Those that no task has and nobody waits in are removed.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn sweep(&self, is_a_tasks: impl Fn(u64) -> bool) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(self.root.join("runs"))? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix('r'));
            let Some(number) = number.and_then(|hex| u64::from_str_radix(hex, 16).ok()) else {
                continue;
            };
            numbers.push(number);
            // A shim that an earlier daemon had ready is about to go by itself.
            if !is_a_tasks(number) && !self.run(number).is_locked() {
                self.remove(number);
            }
        }
        Ok(numbers)
    }

    /// Removes a run; what stays is found again by the next daemon.
    pub fn remove(&self, number: u64) {
        let _ = std::fs::remove_dir_all(self.run(number).path());
    }

    /// Where a command runs, or would.
    pub fn run(&self, number: u64) -> JobDir {
        JobDir::new(self.root.join("runs").join(format!("r{number:016x}")))
    }

    /// One stream of a run that ended, from its beginning.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn output(&self, run: u64, stream: &str, total_bytes: u64) -> io::Result<TaskOutput> {
        let path = self.run(run).path().join(stream);
        let mut head = Vec::new();
        let kept_bytes = match File::open(&path) {
            Ok(file) => {
                let kept_bytes = file.metadata()?.len();
                file.take(limits::TASK_SHOWN_BYTES as u64).read_to_end(&mut head)?;
                kept_bytes
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        let path = (kept_bytes > head.len() as u64).then(|| path.to_string_lossy().into_owned());
        Ok(TaskOutput { head, total_bytes, path })
    }

    /// Bytes that a run's outputs take beyond what is always shown of them.
    pub fn surplus_bytes(&self, run: u64) -> u64 {
        self.streams(run)
            .map(|(_, bytes)| bytes.saturating_sub(limits::TASK_SHOWN_BYTES as u64))
            .sum()
    }

    /// Keeps only what is shown of a run's outputs.
    pub fn cut_outputs(&self, run: u64) {
        for (path, bytes) in self.streams(run) {
            if bytes > limits::TASK_SHOWN_BYTES as u64
                && let Ok(file) = File::options().write(true).open(path)
            {
                let _ = file.set_len(limits::TASK_SHOWN_BYTES as u64);
            }
        }
    }

    fn streams(&self, run: u64) -> impl Iterator<Item = (PathBuf, u64)> {
        let run = self.run(run);
        ["stdout", "stderr"].into_iter().filter_map(move |name| {
            let path = run.path().join(name);
            let bytes = std::fs::metadata(&path).ok()?.len();
            Some((path, bytes))
        })
    }
}
