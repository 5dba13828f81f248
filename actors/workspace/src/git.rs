//! The guest's git, run for the tools: always an argument vector, never a shell's line.
//!
//! What is found out by exit codes and by what git prints for programs decides; its words
//! to people are passed on without credentials and never read.

mod authorities;
mod clone;
mod commit;
mod credentials;
mod diff;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod names;
mod push;
mod redact;
mod repo;
mod report;
pub(crate) mod run;
mod status;
#[cfg(test)]
mod tests;
mod url;

pub use credentials::{GitOptions, HostCredential};
pub(crate) use credentials::{Given, Login};
pub(crate) use names::path;
pub(crate) use redact::Hider;
pub(crate) use repo::Git;
pub(crate) use run::Asked;
pub(crate) use url::GitUrl;

pub(crate) use self::{
    clone::{CloneWish, clone, clone_anew},
    commit::{CommitWish, commit},
    diff::{DiffWish, diff},
    push::{PushWish, push},
    status::status,
};
