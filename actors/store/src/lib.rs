//! Journal: a write-ahead log with group commit that stores everything the daemon has acknowledged.
//!
//! This crate is mechanism and knows no domain record. It stores named streams of records
//! ([`Journal`]) and one durable sequence of events ([`Events`]).
//!
//! ```text
//!  callers ──bounded queue──▶ writer thread ──▶ one sled batch ─▶ flush ─▶ fdatasync ─▶ HEAD
//!     ▲                                                                            │
//!     └───────────────── every waiting caller is answered ◀────────────────────────┘
//! ```
//!
//! Three promises hold, and the tests try to break each of them:
//!
//! - An answered append is on the disk. It survives `kill -9` and a power cut.
//! - A journal opens with everything it acknowledged, or it does not open
//!   ([`Error::Unreadable`]) and not a byte of it has changed. A shorter
//!   history is never served: each commit carries a sum over all live pairs,
//!   and `HEAD`, beside the database, holds the number and sum of the last one.
//! - After a failed commit the journal stops for good ([`Error::Poisoned`])
//!   until it is reopened, because only recovery can tell what reached the disk.
//!
//! Reading order: `journal.rs` (public interface), `writer.rs` (the one thread), `commit.rs`
//! (durability), `open.rs` (start-up).

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod actor;
mod commit;
mod compact;
mod copier;
mod database;
mod database_copy;
mod error;
mod event;
mod events;
mod fsx;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod ids;
mod index;
mod journal;
mod open;
mod options;
mod pending_commit;
mod queue;
mod request;
mod reserve;
mod shared;
mod state_files;
mod values;
mod writer;

pub use compact::Compacted;
pub use error::Error;
pub use event::{JournalEvent, MadeEvent, NewEvent};
pub use events::{EventPage, Events, Subscription, SubscriptionItem};
pub use ids::{Seq, StreamId};
pub use index::Replay;
pub use journal::Journal;
pub use open::Recovered;
pub use options::Options;
pub use request::{Append, AppendCallback};
pub use reserve::reserved_bytes;
pub use shared::{JournalStats, StopReason};
