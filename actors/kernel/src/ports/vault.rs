//! Vault port: the vault's files as other actors use them.

use async_trait::async_trait;

use crate::ToolError;

/// Files that the daemon itself writes into the vault, where people and agents can read them. Paths
/// are relative to the vault's root, names joined by `/`. A file is a note or, below `teams/`, one
/// whose name ends in `.json`; other paths are refused, as they are for everybody.
#[async_trait]
pub trait Vault: Send + Sync {
    /// Writes a file whole, in turn with every other writer of it, and makes missing folders. On
    /// success the file is on the disk; on an error it is the old or the new one.
    ///
    /// # Errors
    /// `vault_disabled`, `vault_unavailable`, or the reason why it cannot be written.
    async fn write(&self, path: &str, content: Vec<u8>) -> Result<(), ToolError>;

    /// Removes a file; false if there was none. Folders stay.
    ///
    /// # Errors
    /// See [`Vault::write`].
    async fn remove(&self, path: &str) -> Result<bool, ToolError>;

    /// Reads a file; `None` if there is none.
    ///
    /// # Errors
    /// `vault_disabled`, `vault_unavailable`, or the reason why it cannot be read.
    async fn read(&self, path: &str) -> Result<Option<Vec<u8>>, ToolError>;

    /// Lists the files below a folder, at any depth, by path; empty for a missing folder.
    ///
    /// # Errors
    /// See [`Vault::read`].
    async fn list(&self, folder: &str) -> Result<Vec<String>, ToolError>;
}
