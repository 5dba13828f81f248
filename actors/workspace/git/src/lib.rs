//! Client of the guest's git: each tool runs it with an argument vector, never a shell line.
//!
//! Decisions depend on exit codes and on git's machine-readable output only; its messages for
//! people are passed on without credentials and never parsed.

pub mod api;
mod clone;
pub mod codes;
mod commit;
mod credentials;
mod fetch;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod merge;
mod names;
mod push;
mod redact;
mod repo;
mod run;
mod status;
#[cfg(test)]
mod tests;
mod url;

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, ToolError};
use hivekeep_ports::GitCredentials;
use hivekeep_runtime::{Daemon, Family, Mounted};

pub use clone::{CloneRequest, clone, clone_anew};
pub use commit::{CommitRequest, commit};
pub use credentials::{CallCredential, GitOptions, HostCredential, Login};
pub use fetch::{FetchRef, FetchRequest, fetch};
pub use names::path;
pub use push::{PushRequest, push};
pub use redact::SecretRedactor;
pub use repo::Git;
pub use run::AuthenticationRecord;
pub use status::{DiffRequest, diff, status};
pub use url::GitUrl;

/// Family without an actor that offers [`GitOptions`], and [`GitCredentials`], to the crate that serves the tools.
pub struct GitFamily;

impl Family for GitFamily {
    type Options = GitOptions;

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: GitOptions) -> Result<Mounted, ToolError> {
        let options = Arc::new(options);
        daemon.ports.offer::<dyn GitCredentials>(options.clone());
        daemon.ports.offer(options);
        Ok(Mounted::default())
    }
}
