//! What a merge asks of a repository, wherever it is.

use async_trait::async_trait;
use hivekeep_kernel::ToolError;

use crate::run::GitDone;

/// A place where git runs and files can be put and fetched.
#[async_trait]
pub trait Repository: Send + Sync {
    /// Runs git in `dir`. Any exit code is an outcome.
    ///
    /// # Errors
    /// When it could not be run to its end.
    async fn git(
        &self,
        dir: &str,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Result<GitDone, ToolError>;

    /// Copies a file from there, and answers with its size.
    ///
    /// # Errors
    /// `bundle_too_large` beyond `most_bytes`; what stands in the way.
    async fn fetch(
        &self,
        path: &str,
        into: std::fs::File,
        most_bytes: u64,
    ) -> Result<u64, ToolError>;

    /// Puts a file there.
    ///
    /// # Errors
    /// What stands in the way.
    async fn send(&self, path: &str, from: std::fs::File, size_bytes: u64)
    -> Result<(), ToolError>;

    /// Names in a directory, at most some thousands.
    ///
    /// # Errors
    /// What stands in the way.
    async fn names(&self, dir: &str) -> Result<Vec<String>, ToolError>;

    /// Removes a file or a folder with all in it. What is not there is removed.
    ///
    /// # Errors
    /// What stands in the way.
    async fn remove(&self, path: &str) -> Result<(), ToolError>;

    /// From now on the caller's deadline and cancellation do not count: what is asked
    /// has to be done so that nothing is left half done.
    fn see_it_through(&self);
}
