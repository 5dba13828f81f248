//! The file system that forgets, and the journal on it.

#![allow(clippy::unwrap_used)]

mod acknowledged;
mod journal;
mod load;
mod mount;
