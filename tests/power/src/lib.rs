//! A crash simulator for file systems: a FUSE file system in memory that forgets, at a power cut,
//! what was not synced.
//!
//! ```text
//! program ── write, rename, fsync ──▶ Mount ── cut ──▶ Image ──▶ a folder, or the next Mount
//! ```
//!
//! What a cut leaves of a file is in `contents.rs`, of names in `names.rs`. Three things are
//! stricter than most file systems are, because POSIX promises no more:
//!
//! - `fsync` of a file makes no name durable, not its own either: that takes one of its directory.
//! - `sync_file_range` makes nothing durable; the kernel does not even pass it on.
//! - A file can be as long as it was made and hold zeros where its pages were lost.
//!
//! Modes, owners and times are taken as durable at once.

mod contents;
mod door;
mod image;
mod mount;
mod names;
mod state;

pub use image::{Image, Node};
pub use mount::{Cut, Mount};
pub use names::Order;
