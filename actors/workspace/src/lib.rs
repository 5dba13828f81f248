//! Workspaces: isolated machines with a guest daemon inside, kept by actors.
//!
//! ```text
//! workspaces ─┬─ workspace ─┬─ machine   the hypervisor's or sandbox's process
//!             │             ├─ link      the connection into the guest
//!             │             └─ job*      background jobs, followed to their end
//!             ├─ workspace …
//!             └─ pool       keeps some workspaces ready for whoever asks next
//! ```
//! [`records`] is what is durable, [`ledger`] what it adds up to, [`phase`] what
//! may be asked when; all three are pure. [`driver`] starts and ends machines,
//! [`link`] talks into them, [`image`] makes what they boot from.

pub mod backup;
mod directory;
pub mod driver;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gate;
mod git;
pub mod image;
mod job;
pub mod ledger;
pub mod link;
mod machine;
mod merge;
pub mod name;
mod network;
mod open;
mod options;
pub mod phase;
mod pool;
pub mod records;
mod refuse;
mod removal;
mod shared;
pub mod snapshots;
pub mod tasks;
pub mod tools;
mod workspace;
mod workspaces;

pub use directory::Directory;
pub use git::{GitOptions, HostCredential};
pub use open::{DISKS, LAYERS, Parts, guest_binary, image_dir, transfer_dir};
pub use options::Options;
pub use pool::{ClassOptions, MadeOf, PoolOptions, Pooled, Role};
pub use shared::{Folders, Hide, Shared};
pub use tasks::TasksHandle;
pub use tools::catalogue;
pub use workspaces::{Msg, Workspaces};
