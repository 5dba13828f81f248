//! Folder of the host's jobs.

use std::io;
use std::path::{Path, PathBuf};

use hivekeep_protocol::{GuestCode, GuestError};

use super::dir::JobDir;
use crate::files::io_error;
use crate::settings::AgentSettings;

/// The folder of the host's jobs.
#[derive(Debug, Clone)]
pub struct JobsFolder {
    root: PathBuf,
}

impl JobsFolder {
    /// Opens the folder.
    ///
    /// # Errors
    /// When it cannot be made or read.
    pub fn open(settings: &AgentSettings) -> io::Result<Self> {
        let root = settings.state_dir.join("jobs");
        open_folder(&root)?;
        Ok(Self { root })
    }

    pub(super) fn find(&self, id: &str) -> Result<JobDir, GuestError> {
        let job = self.at(id)?;
        if job.exists() {
            return Ok(job);
        }
        Err(GuestError::new(GuestCode::UnknownJob, format!("there is no job {id:?}")))
    }

    pub(super) fn at(&self, id: &str) -> Result<JobDir, GuestError> {
        let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'-';
        if !(1..=64).contains(&id.len()) || !id.bytes().all(plain) {
            return Err(GuestError::new(
                GuestCode::Invalid,
                format!("{id:?} is not a valid job id"),
            ));
        }
        Ok(JobDir::new(self.root.join(id)))
    }

    /// Every job there is, in no order.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn all(&self) -> io::Result<Vec<JobDir>> {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(&self.root)? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().starts_with('.') {
                all.push(JobDir::new(entry.path()));
            }
        }
        Ok(all)
    }
}

/// Makes a folder of jobs, if it is not there, and removes what a killed daemon left half made or
/// half removed.
///
/// # Errors
/// When it cannot be made or read.
pub(crate) fn open_folder(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with('.') {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

pub(super) fn disk(error: &io::Error) -> GuestError {
    io_error(error, "the job's folder")
}
