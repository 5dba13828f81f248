//! Composition root interface: what a family of tools receives from the daemon and returns to it.
//!
//! ```text
//! src/families.rs ── one line for each ──▶ Family
//!                                            │ options, tools, check, instructions: no daemon needed
//!       Daemon ──────── mount ──────────────▶│
//!  (journal, sessions, ports …)              ▼
//!                                         Mounted: actors below the root, targets of calls,
//!                                                  what an ordered stop has to take down
//! ```
//! Families are mounted in the order of the list. A family that needs another asks [`Ports`] for a
//! trait that the other offers, and comes after it in the list.
#![warn(missing_docs)]
#![deny(unsafe_code)]

pub mod charset;
pub mod collection;
mod daemon;
pub mod documents;
pub mod egress;
mod family;
mod finding;
pub mod host_process;
#[cfg(feature = "http")]
pub mod http;
pub mod introspection;
pub mod json_text;
mod listener_options;
pub mod log;
mod mounted;
pub mod names;
mod periodic;
mod ports;
pub mod saga;
pub mod schema_kinds;
mod secret_file;
#[cfg(feature = "test-util")]
mod testing;
pub mod tool_catalogue;
mod tool_client;
mod waiters;

pub use daemon::{Daemon, Folders, Redact};
pub use family::{Family, FamilyOptions, NoOptions};
pub use finding::{Finding, Host, bytes};
pub use listener_options::ListenerOptions;
pub use mounted::{Child, Mounted, TearDown};
pub use ports::Ports;
pub use secret_file::read_secret;
pub use tool_client::{
    InspectedMachine, InspectedSnapshot, InspectedWorkspace, ListedWorkspace, OnBehalfOf, Origin,
    ToolClient,
};
pub use waiters::{WaiterLimit, Waiters, Waiting};
