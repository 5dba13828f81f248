//! File tools over capability handles: every path is resolved beneath the handle of a place, a folder
//! that the operator opened to sessions.
//!
//! ```text
//!  fs.read … patch ─► Files (a service) ─► PlaceTable ─► FilePlace ─┬─ HostFolder: engine on a thread
//!                                          by name                 ├─ WorkspacePlace: engine in the guest
//!                                                                  └─ VolumePlace: engine on its mount
//! ```
//! What is done to files is the file engine's (`hivekeep_file_engine`): no path and no link leads out of a
//! place, and a write is there whole or not at all, and on the disk when it is answered. A place is a folder
//! that the operator opened, a workspace of the session's, the one of its own that is made when a call
//! needs it, or a volume of its user's.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod agent;
pub mod codes;
mod entries;
mod family;
mod file_dir_lang;
mod file_place;
mod file_text;
mod files;
mod host_folder;
mod languages;
mod options;
mod place_notation;
mod place_table;
mod refuse;
mod session_workspace;
mod tools;
mod volume_place;
mod watch;
mod workspace_place;

pub use family::FilesFamily;
pub use options::{Options, PlaceOptions, SessionIsolation, SessionWorkspaceOptions};

#[cfg(test)]
mod tests;
