//! Client of the guest's git: each tool runs it with an argument vector, never a shell line.
//!
//! Decisions depend on exit codes and on git's machine-readable output only; its messages for
//! people are passed on without credentials and never parsed.

pub mod api;
mod authorities;
mod clone;
pub mod codes;
mod commit;
mod credentials;
mod diff;
mod family;
mod fetch;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod merge;
mod names;
mod push;
mod redact;
mod repo;
mod report;
mod run;
mod status;
#[cfg(test)]
mod tests;
mod url;

pub use credentials::{CallCredential, Login};
pub use credentials::{GitOptions, HostCredential};
pub use family::GitFamily;
pub use names::path;
pub use redact::SecretRedactor;
pub use repo::Git;
pub use run::AuthenticationRecord;
pub use url::GitUrl;

pub use self::{
    clone::{CloneWish, clone, clone_anew},
    commit::{CommitWish, commit},
    diff::{DiffWish, diff},
    fetch::{FetchRef, FetchWish, fetch},
    push::{PushWish, push},
    status::status,
};
