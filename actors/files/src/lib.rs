//! File tools over capability handles: every path is resolved beneath the handle of a place, a folder
//! that the operator opened to sessions.
//!
//! ```text
//!  fs.read … fs.glob ─► Files (a service) ─► place by name ─► engine, on a thread of its own
//!                                                               │
//!                       reading, atomic writing, edits, ────────┘
//!                       walks and searches: beneath the handle
//! ```
//! No path and no link leads out of a place, also when links are exchanged while a call runs: the kernel
//! resolves each path beneath the handle, and walks enter folders by handles without following links.
//! A write is there whole or not at all, and on the disk when it is answered.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod engine;
mod family;
mod file_dir_lang;
mod files;
mod languages;
mod options;
mod place_path;
mod places;
mod tools;
mod without_workspace;

pub use family::FilesFamily;
pub use options::{Options, PlaceOptions};

#[cfg(test)]
mod tests;
