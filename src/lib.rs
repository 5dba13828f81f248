//! hivekeep's command line, the daemon that boots the supervision tree, and the control door of its
//! socket. The other doors are crates in `doors/`; the configuration and the list of families are in
//! `config/`. Translation only: what a tool does is in its actor's crate.

// The demo's daemon uses only a part of what the command line and the control door share.
#![cfg_attr(not(feature = "full"), allow(dead_code, unused_imports))]

pub mod backup;
mod check;
pub mod cli;
pub mod control;
pub mod daemon;
pub mod integrate;
