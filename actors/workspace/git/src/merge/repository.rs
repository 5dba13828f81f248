//! Repository port: the operations that a merge needs, wherever the repository is.

use async_trait::async_trait;
use hivekeep_kernel::ToolError;

use crate::run::GitDone;

/// Place where git runs and files can be stored and fetched.
#[async_trait]
pub trait Repository: Send + Sync {
    /// Runs git in `dir`. Any exit code is a result.
    ///
    /// # Errors
    /// Fails when git could not be run to its end.
    async fn git(
        &self,
        dir: &str,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Result<GitDone, ToolError>;

    /// Copies a file from the repository's machine, and returns its size.
    ///
    /// # Errors
    /// `bundle_too_large` beyond `most_bytes`; errors of the transport.
    async fn fetch(
        &self,
        path: &str,
        into: std::fs::File,
        most_bytes: u64,
    ) -> Result<u64, ToolError>;

    /// Copies a file to the repository's machine.
    ///
    /// # Errors
    /// Errors of the transport.
    async fn send(&self, path: &str, from: std::fs::File, size_bytes: u64)
    -> Result<(), ToolError>;

    /// Names in a directory, at most some thousands.
    ///
    /// # Errors
    /// Errors of the transport.
    async fn names(&self, dir: &str) -> Result<Vec<String>, ToolError>;

    /// Removes a file or a folder with its contents; success if it does not exist.
    ///
    /// # Errors
    /// Errors of the transport.
    async fn remove(&self, path: &str) -> Result<(), ToolError>;

    /// Makes later calls ignore the caller's deadline and cancellation, so that nothing is left
    /// half done.
    fn see_it_through(&self);
}
