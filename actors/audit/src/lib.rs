//! Audit log: an append-only, hash-chained file of what was asked of the daemon, by whom, and what
//! became of it.
//!
//! ```text
//! append ─► run folder: tail.a | tail.b ─► (every sync_ms) state folder: audit-<first seq>.log, fdatasync
//!           one write(2), then answered                      └─► head: how far the log reaches
//! ```
//! A line is `<SHA-256> <JSON>`; its hash is that of the hash of the line before and the JSON, so a
//! line that is changed, taken out or put in breaks the chain from there on ([`verify()`]). A chain
//! has no secret: whoever can write the files can make a new one. The number and hash of the last
//! line, kept elsewhere, tell such a log apart.
//!
//! An entry is with the kernel when [`AuditLog::append`] returns, so that killing the daemon loses
//! none; a loss of power loses at most what the last `sync_ms` had. The tails lie in the run folder,
//! in memory on most hosts, so that a slow disk holds no caller up. What cannot be written makes
//! the log unavailable, and then nothing may be done that would have to be in it.

mod chain;
mod entry;
mod error;
mod log;
mod options;
mod page;
mod segments;
mod tail;
mod verify;
mod worker;

#[cfg(test)]
mod tests;

pub use chain::{ChainHash, Head};
pub use entry::{Entry, Filter, entries};
pub use error::Error;
pub use log::AuditLog;
pub use options::Options;
pub use page::{AuditPage, newest};
pub use verify::{AuditFault, Verification, verify};
