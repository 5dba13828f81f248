//! For whoever wants to hear when notes change.

use hivekeep_kernel::ToolError;
use tokio::sync::broadcast;

use super::VaultHandle;
use crate::Error;
use crate::folder::Stamp;
use crate::path::NotePath;

/// The daemon changed a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteChange {
    /// From the vault's root.
    pub path: String,
    /// It came or went, so that a list of the notes is another one.
    pub listed: bool,
}

/// Tells one state of a note from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoteStamp(Stamp);

impl VaultHandle {
    /// Whether there is a vault at all.
    pub fn enabled(&self) -> bool {
        self.0.options.enabled
    }

    /// Whether a path is one of a note, there or not.
    ///
    /// # Errors
    /// `invalid_path`, `not_a_note`.
    pub fn names_note(&self, path: &str) -> Result<(), ToolError> {
        Ok(self.0.rules.admit_note(&NotePath::parse(path)?)?)
    }

    /// What the daemon changes from now on. Other programs' changes are not among it.
    pub fn changes(&self) -> broadcast::Receiver<NoteChange> {
        self.0.changes.subscribe()
    }

    /// The present state of each of these notes, whoever made it; `None` of one that is not there,
    /// and `vault_io` of one that cannot be looked at.
    ///
    /// # Errors
    /// As [`VaultHandle::names_note`]; `vault_disabled`, `vault_unavailable`.
    pub async fn stamps(
        &self,
        paths: Vec<String>,
    ) -> Result<Vec<Result<Option<NoteStamp>, ToolError>>, ToolError> {
        paths.iter().try_for_each(|path| self.names_note(path))?;
        self.look(move |vault, _| {
            let stamp = |path: &String| {
                match vault.folder.look(&NotePath::parse(path)?) {
                    Ok(seen) => Ok(seen.map(|stat| NoteStamp(Stamp::of(&stat)))),
                    // A folder or a link of that name: no note.
                    Err(Error::WrongKind { .. }) => Ok(None),
                    Err(error) => Err(error.into()),
                }
            };
            Ok(paths.iter().map(stamp).collect())
        })
        .await
    }
}
