//! What the disk holds of the tasks.
//!
//! | path | holds |
//! |---|---|
//! | `owner` | the machine id of whose tasks these are; there before all else |
//! | `entries/SEQ.json` | a [`Task`], and what it asks for while it is open |
//! | `runs/tSEQ/` | its command's [`JobDir`], from just before its start |
//!
//! A machine that began as a copy of another finds that one's tasks: they are put aside as a
//! whole, to `tasks-of-OWNER`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use hivekeep_protocol::{TaskOutput, TaskPut, limits};
use serde::{Deserialize, Serialize};

use super::queue::Task;
use crate::files::temp::sync_parent;
use crate::jobs::dir::JobDir;

const HALF_MADE: &str = ".new";

/// One file below `entries`.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    task: Task,
    asked: Option<TaskPut>,
}

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

    /// Makes the folder, unless it is there.
    ///
    /// # Errors
    /// When it cannot be made; then it is not there.
    pub fn make(&self, owner: &str) -> io::Result<()> {
        if self.root.join("owner").exists() {
            return Ok(());
        }
        let staged = self.root.with_file_name(".tasks.new");
        if staged.exists() {
            std::fs::remove_dir_all(&staged)?;
        }
        for part in ["entries", "runs"] {
            std::fs::create_dir_all(staged.join(part))?;
        }
        let mut file = File::create(staged.join("owner"))?;
        file.write_all(owner.as_bytes())?;
        file.sync_all()?;
        sync_parent(&staged.join("owner"))?;
        std::fs::rename(&staged, &self.root)?;
        sync_parent(&self.root)
    }

    /// Reads every task back, and removes what a killed daemon left half made.
    ///
    /// # Errors
    /// When one cannot be read. Its file is whole or not there, so that the disk is to blame.
    pub fn load(&self) -> io::Result<Vec<Task>> {
        for run in std::fs::read_dir(self.root.join("runs"))? {
            let run = run?;
            if run.file_name().to_string_lossy().starts_with('.') {
                std::fs::remove_dir_all(run.path())?;
            }
        }
        let mut tasks = Vec::new();
        for entry in std::fs::read_dir(self.root.join("entries"))? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with(HALF_MADE) {
                std::fs::remove_file(path)?;
                continue;
            }
            tasks.push(read(&path)?.task);
        }
        Ok(tasks)
    }

    /// What an open task asks for.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn asked(&self, seq: u64) -> io::Result<TaskPut> {
        read(&self.entry(seq))?.asked.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn entry(&self, seq: u64) -> PathBuf {
        self.root.join("entries").join(format!("{seq:016x}.json"))
    }

    /// Writes a task down, durably. `asked` is kept with it as long as it is open.
    ///
    /// # Errors
    /// When it cannot be; then the disk says what it said before.
    pub fn store(&self, task: &Task, asked: Option<TaskPut>) -> io::Result<()> {
        let target = self.entry(task.seq);
        let temp = target.with_extension(format!("json{HALF_MADE}"));
        let bytes = serde_json::to_vec(&Entry { task: task.clone(), asked })?;
        let written = (|| {
            let mut file = File::create(&temp)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            std::fs::rename(&temp, &target)
        })();
        if written.is_err() {
            // On a full disk half a file is room that others need.
            let _ = std::fs::remove_file(&temp);
        }
        written?;
        sync_parent(&target)
    }

    /// Removes all of a task that is forgotten.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn remove(&self, seq: u64) -> io::Result<()> {
        let run = self.run(seq);
        if run.path().try_exists()? {
            run.remove()?;
        }
        match std::fs::remove_file(self.entry(seq)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Where a task's command runs, or would.
    pub fn run(&self, seq: u64) -> JobDir {
        JobDir::new(self.root.join("runs").join(format!("t{seq:016x}")))
    }

    /// One stream of a task that ended, from its beginning.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn output(&self, seq: u64, stream: &str, total_bytes: u64) -> io::Result<TaskOutput> {
        let path = self.run(seq).path().join(stream);
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

    /// Bytes that a task's outputs take beyond what is always shown of them.
    pub fn surplus_bytes(&self, seq: u64) -> u64 {
        self.streams(seq)
            .map(|(_, bytes)| bytes.saturating_sub(limits::TASK_SHOWN_BYTES as u64))
            .sum()
    }

    /// Keeps only what is shown of a task's outputs.
    pub fn cut_outputs(&self, seq: u64) {
        for (path, bytes) in self.streams(seq) {
            if bytes > limits::TASK_SHOWN_BYTES as u64
                && let Ok(file) = File::options().write(true).open(path)
            {
                let _ = file.set_len(limits::TASK_SHOWN_BYTES as u64);
            }
        }
    }

    fn streams(&self, seq: u64) -> impl Iterator<Item = (PathBuf, u64)> {
        let run = self.run(seq);
        ["stdout", "stderr"].into_iter().filter_map(move |name| {
            let path = run.path().join(name);
            let bytes = std::fs::metadata(&path).ok()?.len();
            Some((path, bytes))
        })
    }
}

fn read(path: &Path) -> io::Result<Entry> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let bytes = std::fs::read(path).map_err(named)?;
    serde_json::from_slice(&bytes).map_err(|error| named(error.into()))
}
