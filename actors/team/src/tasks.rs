//! Tasks of a member: their ledger, their state in the guest, their results. Pure.
//!
//! ```text
//!  assigned ─► put into the guest ─► … ─► its result read ─► recorded
//!              (again, until taken)                             │
//!    gone, and remembered ◄── received ◄── delivered ◄── acknowledged to the guest
//! ```
//! A task is answered when it is durable here. Everything after that goes on by itself
//! (`team/task_sync.rs`), over the port [`hivekeep_kernel::ports::Tasks`]. A result is kept here
//! before its guest may drop it, and by the guest before that.

pub mod assignment;
pub mod in_guest;
pub mod ledger;
mod records;
pub(crate) mod report;

pub use records::{Record, stream};

/// The tasks of a member, counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Without a result.
    pub(crate) pending: usize,
    /// Running ones among them, as the guest said last.
    pub(crate) running: usize,
    /// Results that wait to be received.
    pub(crate) results: usize,
    /// The reason why tasks do not get to the guest, if they do not.
    pub(crate) trouble: Option<String>,
}
