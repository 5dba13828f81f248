//! Layout of the tasks on the disk and in the run folder.
//!
//! | path | holds |
//! |---|---|
//! | `log`, in the state folder | the machine's id, then each change of a [`TaskRecord`](super::queue::TaskRecord) |
//! | `outputs/rNUMBER/`, beside it | what a task has printed; there once it has |
//! | `runs/rNUMBER/`, in the run folder | the [`JobDir`] of a task; there until its end is in the log |
//!
//! The run folder is gone after a reboot, and with it what is worth something in one boot only. It
//! is no disk: a task that prints nothing writes to the log alone.
//!
//! A machine that began as a copy of another finds that one's tasks: they are put aside as a
//! whole, to `tasks-of-OWNER`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use hivekeep_protocol::{TaskStreamOutput, limits};

use super::log::{TaskLog, staged};
use crate::files::sync_parent;
use crate::jobs::dir::JobDir;

/// The tasks' folders.
#[derive(Debug, Clone)]
pub struct TaskFolders {
    root: PathBuf,
    runs: PathBuf,
}

impl TaskFolders {
    /// Names the folders. Does not touch the disk; the first folder may not exist yet.
    pub fn new(state_dir: &Path, run_dir: &Path) -> Self {
        Self { root: state_dir.join("tasks"), runs: run_dir.join("runs") }
    }

    /// True if there are or were tasks.
    ///
    /// # Errors
    /// When that cannot be found out.
    pub fn exists(&self) -> io::Result<bool> {
        self.root.try_exists()
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

    /// Makes the folder, which is not there, and its log with this record.
    ///
    /// # Errors
    /// When the folder cannot be made; then it does not exist.
    pub fn make(&self, first: Vec<u8>) -> io::Result<TaskLog> {
        let staged = self.root.with_file_name(".tasks.new");
        if staged.exists() {
            std::fs::remove_dir_all(&staged)?;
        }
        std::fs::create_dir_all(staged.join("outputs"))?;
        let (log, _places) = TaskLog::create(&staged.join("log"), std::iter::once(Ok(first)))?;
        std::fs::rename(&staged, &self.root)?;
        sync_parent(&self.root)?;
        Ok(log)
    }

    /// Reads the log back.
    ///
    /// # Errors
    /// When the log cannot be read. Its records are whole or missing, so that the disk is to blame.
    pub fn load(&self, each: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<TaskLog> {
        let _none = std::fs::remove_file(staged(&self.log()));
        TaskLog::open(&self.log(), each)
    }

    /// Path of the log.
    pub fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    /// The greatest number of a job that left anything. Outputs that no task has are removed, and
    /// jobs that no open task has.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn sweep(
        &self,
        is_a_tasks: impl Fn(u64) -> bool,
        is_open: impl Fn(u64) -> bool,
    ) -> io::Result<u64> {
        crate::jobs::folder::open_folder(&self.runs)?;
        let (outputs, runs) = (numbers(&self.root.join("outputs"))?, numbers(&self.runs)?);
        for number in outputs.iter().filter(|number| !is_a_tasks(**number)) {
            self.remove_outputs(*number);
        }
        for number in runs.iter().filter(|number| !is_open(**number)) {
            let _ = std::fs::remove_dir_all(self.run(*number).path());
        }
        Ok(outputs.into_iter().chain(runs).max().unwrap_or(0))
    }

    /// Removes what a task has printed; what stays is found again by the next daemon.
    pub fn remove_outputs(&self, number: u64) {
        let _ = std::fs::remove_dir_all(self.run(number).outputs());
    }

    /// The folder of the job of a task.
    pub fn run(&self, number: u64) -> JobDir {
        let name = format!("r{number:016x}");
        JobDir::with_outputs(self.runs.join(&name), self.root.join("outputs").join(name))
    }

    /// Output of one stream of a task that ended, from its beginning.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn output(
        &self,
        number: u64,
        stream: &str,
        total_bytes: u64,
    ) -> io::Result<TaskStreamOutput> {
        let path = self.run(number).outputs().join(stream);
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
        Ok(TaskStreamOutput { head, total_bytes: total_bytes.max(kept_bytes), path })
    }

    /// Bytes that a task's outputs take beyond what is always shown of them.
    pub fn surplus_bytes(&self, number: u64) -> u64 {
        self.streams(number)
            .map(|(_, bytes)| bytes.saturating_sub(limits::TASK_SHOWN_BYTES as u64))
            .sum()
    }

    /// Keeps only what is shown of a task's outputs.
    pub fn cut_outputs(&self, number: u64) {
        for (path, bytes) in self.streams(number) {
            if bytes > limits::TASK_SHOWN_BYTES as u64
                && let Ok(file) = File::options().write(true).open(path)
            {
                let _ = file.set_len(limits::TASK_SHOWN_BYTES as u64);
            }
        }
    }

    fn streams(&self, number: u64) -> impl Iterator<Item = (PathBuf, u64)> {
        let run = self.run(number);
        ["stdout", "stderr"].into_iter().filter_map(move |name| {
            let path = run.outputs().join(name);
            let bytes = std::fs::metadata(&path).ok()?.len();
            Some((path, bytes))
        })
    }
}

/// Numbers of the jobs in a folder, if that is there.
fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix('r'));
        numbers.extend(number.and_then(|hex| u64::from_str_radix(hex, 16).ok()));
    }
    Ok(numbers)
}
