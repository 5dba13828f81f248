//! Composition root interface: what a family of tools receives from the daemon and returns to it.
//!
//! ```text
//! config/src/families.rs ── one line for each ──▶ Family
//!                                                   │ options, tools, check, instructions: no daemon needed
//!              Daemon ──────── mount ──────────────▶│
//!         (journal, sessions, ports …)              ▼
//!                                                Mounted: actors below the root, targets of calls,
//!                                                         what an ordered stop has to take down
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
#[cfg(feature = "expression")]
pub mod expression;
mod family;
pub mod guest_task;
pub mod host_process;
#[cfg(feature = "http")]
pub mod http;
pub mod introspection;
#[cfg(feature = "schema")]
pub mod json_schema;
pub mod json_text;
pub mod log;
pub mod runs;
pub mod saga;
pub mod schedule;
pub mod schema_kinds;
#[cfg(feature = "template")]
pub mod template;
mod tool_client;
mod waiters;
#[cfg(feature = "search")]
pub mod word_index;

pub use daemon::{Daemon, Folders, Ports, Redact};
pub use family::{Child, Family, FamilyOptions, ListenerOptions, Mounted, NoOptions, TearDown};
#[cfg(feature = "http")]
pub use http::read_secret;
pub use introspection::{Finding, Host, bytes};
pub use tool_client::{
    InspectedMachine, InspectedSnapshot, InspectedWorkspace, ListedWorkspace, OnBehalfOf, Origin,
    ToolClient,
};
pub use waiters::{WaiterLimit, Waiters, Waiting};

/// Names of things.
pub mod names {
    pub use crate::documents::{KnownNames, MOST_NAMES, Names};
}
/// Tools of the catalogue.
pub mod tool_catalogue {
    pub use crate::introspection::{CataloguedTool, ToolCatalogue};
}
