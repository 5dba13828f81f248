//! File engine beneath the handle of a place. Blocks; runs on threads of its own.

pub(crate) mod edit;
mod error;
pub(crate) mod folders;
pub(crate) mod glob;
pub(crate) mod grep;
mod ignored;
pub(crate) mod list;
pub(crate) mod metadata;
pub(crate) mod read;
pub(crate) mod remove;
pub(crate) mod rename;
mod walk;
pub(crate) mod write;

pub(crate) use error::failed;
pub(crate) use walk::Unread;
