//! The daemon inside a workspace.
//!
//! One static binary with several roles, so that a guest needs no other file:
//!
//! | role | what it is |
//! |---|---|
//! | [`init`] | PID 1 of a VM: mounts, modules, keeps the agent alive, reaps, powers off |
//! | [`sandbox`] | PID 1 of a namespace sandbox: mounts, drops privileges, then the same |
//! | [`agent`] | the daemon that the host speaks to |
//! | [`reap`] | a shim around one command where there is no cgroup |
//! | [`jobs::shim`] | a shim around one background job or task |
//! | [`ask`] | what git starts to ask for a password |
//!
//! The agent has one thread and a few helpers for disks: a guest may have a single
//! emulated CPU. It trusts the host once the token is proved, and nothing else.

pub mod agent;
pub mod as_user;
pub mod ask;
pub mod carrier;
pub mod contain;
pub mod exec;
pub mod files;
pub mod freeze;
pub mod identity;
pub mod init;
pub mod jobs;
mod listeners;
pub mod mcp;
pub mod network;
pub mod reap;
pub mod sandbox;
pub mod selftest;
mod serve;
pub mod session;
pub mod settings;
pub mod streams;
pub mod sys;
pub mod system;
pub mod tasks;
pub mod volumes;
mod watches;

use std::fmt;
use std::io::Write;

/// Writes one line for people to stderr, which is the machine's console in a VM and the sandbox's log outside one.
/// A console that cannot take it is not an error.
pub fn say(line: fmt::Arguments<'_>) {
    let text = format!("hivekeep-guest: {line}\n");
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Like `eprintln`, but never panics and names its origin.
#[macro_export]
macro_rules! say {
    ($($part:tt)*) => { $crate::say(format_args!($($part)*)) };
}
