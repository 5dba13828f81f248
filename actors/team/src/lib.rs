//! Teams: named members, each with a workspace and an inbox, kept by actors.
//!
//! ```text
//! teams ─┬─ team ─┬─ mailbox   a member's inbox
//!        │        ├─ desk      a member's tasks
//!        │        ├─ mailbox
//!        ├─ team …
//! swarms ── swarm*
//! ```
//! [`directory`] says what may be added, [`mailbox::book`] what is in an inbox,
//! [`desk::ledger`] what is known of tasks; all are pure.
//! Workspaces are made, looked at and removed through the daemon's own tools, in the session that
//! the team belongs to: this crate knows no other actor's.
//!
//! A team is planned in the journal before anything is made. A plan that did not come to its end
//! is undone, a removal that did not is gone on with, whatever died in between.
//!
//! A swarm ([`swarms`]) is tasks, each in a fork of one snapshot, with a merge and the removal of
//! the forks at its end. Planned in the journal too, it is gone on with until it is over.

mod cards;
pub mod codes;
pub mod desk;
pub mod directory;
mod errands;
mod family;
mod group;
mod lending;
pub mod mailbox;
pub mod name;
mod options;
mod pen;
mod records;
mod refuse;
mod rejections;
mod shared;
mod swarm;
mod swarms;
mod team;
mod teams;
pub mod tools;
mod waiters;
mod watch;

pub use family::{SwarmFamily, TeamFamily};
pub use options::Options;
pub use shared::TeamShared;
pub use swarms::{Msg as SwarmMsg, SwarmOptions, Swarms};
pub use teams::{Msg, Teams};
pub use tools::catalogue;
pub use watch::{Picture, Seen, TeamsHandle};
