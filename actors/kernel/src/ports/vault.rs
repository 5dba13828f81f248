//! The vault as other actors have it.

use async_trait::async_trait;

use crate::ToolError;

/// Files that the daemon itself keeps in the vault, where people and agents can read them. Paths
/// are relative to the vault's root, names joined by `/`. A file is a note or, below `teams/`, one
/// whose name ends in `.json`; other paths are refused as they are for everybody.
#[async_trait]
pub trait Vault: Send + Sync {
    /// Writes a file whole, in turn with every other writer of it. Folders on the way are made.
    /// Answered, it is on the disk; not answered, the file is the old one or the new one.
    ///
    /// # Errors
    /// `vault_disabled`, `vault_unavailable`, or why it cannot be written.
    async fn write(&self, path: &str, content: Vec<u8>) -> Result<(), ToolError>;

    /// Removes a file. False if there was none. Folders stay.
    ///
    /// # Errors
    /// As [`Vault::write`].
    async fn remove(&self, path: &str) -> Result<bool, ToolError>;

    /// A file, if there is one.
    ///
    /// # Errors
    /// `vault_disabled`, `vault_unavailable`, or why it cannot be read.
    async fn read(&self, path: &str) -> Result<Option<Vec<u8>>, ToolError>;

    /// The files below a folder, at any depth, by path. None of a folder that is not there.
    ///
    /// # Errors
    /// As [`Vault::read`].
    async fn list(&self, folder: &str) -> Result<Vec<String>, ToolError>;
}
