//! Workspaces: isolated machines with a guest daemon inside, kept by actors.
//!
//! ```text
//! workspaces ─┬─ workspace ─┬─ machine   the hypervisor's or sandbox's process
//!             │             ├─ link      the connection into the guest
//!             │             └─ job*      background jobs, followed to their end
//!             ├─ workspace …
//!             └─ pool       keeps some workspaces ready for whoever asks next
//! ```
//! [`records`] is what is written, [`ledger`] what it adds up to, [`phase`] and `activity` what may be
//! asked when; all are pure. `logs` has the records of all workspaces, `shared` what they have in
//! common, `handle` what work on one of them needs, `messages` what a workspace's actor is told, `state`
//! what it knows. A feature is one room: the types of its tools, their rows and their handlers are
//! neighbours ([`lifecycle`], [`commands`], [`files`], [`snapshot`], [`parking`], [`prepare`], `pool`,
//! [`network`], [`ownership`], [`git`], [`tasks`], [`backup`]); `machine` is what they start and end
//! machines with. `workspace` and `workspaces` are the two actors, which know all features and which no
//! feature knows; [`tools`] lists the rows.
//!
//! Crates of their own start and end machines (`hivekeep_machine`), talk into them (`hivekeep_link`),
//! run their git (`hivekeep_git`) and make what they boot from (`hivekeep_image`).

mod activity;
pub mod backup;
mod claims;
pub mod codes;
pub mod commands;
mod directory;
mod documents;
mod family;
pub mod files;
mod folders;
pub mod git;
mod handle;
mod image_upkeep;
mod job;
pub mod ledger;
pub mod lifecycle;
pub mod lifetime;
mod link_state;
mod logs;
mod machine;
mod manager;
mod messages;
pub mod name;
pub mod network;
mod open;
mod options;
pub mod ownership;
pub mod parking;
pub mod phase;
mod pool;
pub mod prepare;
mod programs;
pub mod records;
mod shared;
pub mod snapshot;
pub mod snapshots;
mod state;
mod tail;
pub mod tasks;
pub mod tools;
mod traffic;
mod transfer_quota;
mod volumes;
mod workspace;
mod workspaces;

pub use directory::WorkspaceDirectory;
pub use family::WorkspaceFamily;
pub use files::port::WorkspaceFilesHandle;
pub use hivekeep_git::{GitOptions, HostCredential};
pub use manager::{Msg, Workspaces};
pub use network::ports::WorkspacePortsHandle;
pub use open::{DISKS, LAYERS, guest_binary, image_dir, transfer_dir};
pub use options::{ClassOptions, Options, PoolOptions};
pub use shared::Shared;
pub use tasks::TasksHandle;
pub use tools::catalogue;
