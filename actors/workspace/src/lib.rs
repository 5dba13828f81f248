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
//! common, `handle` what work on one of them needs. Types of tools' inputs and results are in [`api`],
//! the rows that list them in [`tools`]. Crates of their own start and end machines
//! (`hivekeep_machine`), talk into them (`hivekeep_link`), run their git (`hivekeep_git`) and make
//! what they boot from (`hivekeep_image`).

mod activity;
pub mod api;
pub mod backup;
mod claims;
pub mod codes;
pub mod commands;
mod directory;
mod documents;
mod family;
mod folders;
mod fork_source;
mod handle;
mod image_upkeep;
mod job;
pub mod ledger;
pub mod lifetime;
mod link_state;
mod logs;
mod long_poll;
mod machine;
mod messages;
pub mod name;
mod network;
mod open;
mod options;
pub mod phase;
mod pool;
mod programs;
pub mod records;
mod shared;
pub mod snapshots;
mod tail;
pub mod tasks;
pub mod tools;
mod traffic;
mod transfer_quota;
mod volumes;
mod workspace;
mod workspace_files;
mod workspace_ports;
mod workspaces;

pub use directory::WorkspaceDirectory;
pub use family::WorkspaceFamily;
pub use hivekeep_git::{GitOptions, HostCredential};
pub use open::{DISKS, LAYERS, guest_binary, image_dir, transfer_dir};
pub use options::{ClassOptions, Options, PoolOptions};
pub use shared::Shared;
pub use tasks::TasksHandle;
pub use tools::catalogue;
pub use workspace_files::WorkspaceFilesHandle;
pub use workspace_ports::WorkspacePortsHandle;
pub use workspaces::{Msg, Workspaces};
