//! Note store: a folder of Markdown notes that outlives workspaces, sessions and the daemon.
//!
//! ```text
//!  the tool `vault` ─► VaultActor ── queue: one writer per note ──► ops ──► VaultFolder
//!  ports::Vault ─────────┘                                           │         │
//!  (cards of teams)                       front, tags, search: pure ─┘         └─ handles, renames, fsync
//! ```
//! Three guarantees hold whatever is asked and whoever else works in the folder:
//!
//! - Nothing outside is reached. [`folder`] opens each name in the handle of the folder it is in
//!   and follows no symbolic link; [`NotePath`] has no `..`, and an excluded folder is closed.
//! - A change is there whole or not at all, and on the disk when it is answered. A note that
//!   another program changed meanwhile is read again, never written over.
//! - An edit of front matter changes the entry it is about ([`front`]); what cannot be edited
//!   without harm is refused with line and column.
//!
//! Every action works in a [`Scope`], a folder that is its caller's root.

mod actor;
pub mod answer;
pub mod codes;
mod error;
mod family;
mod folder;
mod front;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod ops;
mod options;
mod path;
mod scan_window;
mod search;
mod tags;
pub mod tools;

pub use actor::{Args, Msg, VaultActor, VaultHandle, open};
pub use error::Error;
pub use family::VaultFamily;
pub use front::MalformedFrontMatter;
pub use options::Options;
pub use path::{NotePath, Scope};
pub use tools::catalogue;
