//! The guest's git, run for the tools: always an argument vector, never a shell's line.
//!
//! What is found out by exit codes and by what git prints for programs decides; its words
//! to people are passed on without credentials and never read.

pub mod api;
mod authorities;
mod clone;
pub mod codes;
mod commit;
mod credentials;
mod diff;
mod family;
#[cfg(feature = "fuzzing")]
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

pub use credentials::{GitOptions, HostCredential};
pub use credentials::{Given, Login};
pub use family::GitFamily;
pub use names::path;
pub use redact::Hider;
pub use repo::Git;
pub use run::Asked;
pub use url::GitUrl;

pub use self::{
    clone::{CloneWish, clone, clone_anew},
    commit::{CommitWish, commit},
    diff::{DiffWish, diff},
    push::{PushWish, push},
    status::status,
};
