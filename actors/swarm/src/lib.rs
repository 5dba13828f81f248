//! Swarms: tasks, each in a fork of one snapshot, with a merge and the removal of the forks at the end.
//!
//! ```text
//! swarms ── swarm*      a saga for each
//! ```
//! A swarm is planned in the journal before anything is made, and continued until it is over,
//! whatever dies in between. Forks are made, looked at, merged and removed through the daemon's own
//! tools, in the session that the swarm belongs to: this crate knows no other actor's.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod family;
mod options;
mod refuse;
mod shared;
mod swarm;
mod swarms;
mod tools;

pub use family::SwarmFamily;
pub use options::Options;
pub use swarms::Swarms;
