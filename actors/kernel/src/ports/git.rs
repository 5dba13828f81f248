//! Git credential port: what the git tools answer to a server, as seen by whoever records remotes.

/// Credentials that the operator configured for git.
pub trait GitCredentials: Send + Sync {
    /// Name of the credential that is used for a remote where a call brings none: `host` of its entry
    /// in `git.credentials`.
    fn used_for(&self, url: &str) -> Option<String>;
}
