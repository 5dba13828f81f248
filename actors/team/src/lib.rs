//! Teams: named members, each with a workspace and an inbox, kept by actors.
//!
//! ```text
//! teams ─── team*      its members' inboxes and tasks are values of it
//! ```
//! `directory` says what may be added, [`inbox`] what waits for a member, [`tasks::ledger`] what is
//! known of its tasks; all are pure.
//! Workspaces are made, looked at and removed through the daemon's own tools, in the session that
//! the team belongs to: this crate knows no other actor's.
//!
//! A team is planned in the journal before anything is made. A plan that did not come to its end
//! is undone, a removal that did not is continued, whatever died in between.

pub mod api;
mod cards;
pub mod codes;
mod directory;
mod family;
mod group;
pub mod inbox;
pub mod name;
mod names;
mod options;
mod records;
mod refuse;
mod rejections;
mod shared;
mod snapshot;
mod status;
pub mod tasks;
mod team;
mod teams;
pub mod tools;
mod waiting;
mod watch;

pub use family::TeamFamily;
pub use options::Options;
pub use shared::TeamShared;
pub use teams::{Msg, Teams};
pub use tools::catalogue;
pub use watch::{Picture, Seen, TeamsHandle};
