//! hivekeep's front doors and wiring: the command line, the configuration, the
//! daemon that boots the supervision tree, and the doors through which clients
//! reach its tools. Translation only: what a tool does is in its actor's crate.

// The demo's daemon uses only a part of what all doors share.
#![cfg_attr(not(feature = "full"), allow(dead_code, unused_imports))]

pub mod backup;
mod check;
pub mod cli;
pub mod codes;
pub mod config;
pub mod credentials;
pub mod daemon;
pub mod doors;
mod families;
pub mod integrate;
