//! Sessions: who is attached, what they hold, how fast they may go.
//!
//! A session begins with an attachment of a client and outlives it: it can be
//! resumed within a grace time, also after a restart of the daemon. When it
//! ends, what it owned is orphaned, never killed.
//!
//! What a session *is* (its `SessionShared`: quota usage, token buckets, calls in
//! flight) is shared memory beside the actors, so that every call reads it
//! without asking, and so that a restarted actor loses none of it. What becomes
//! of a session is decided by its actor (`session.rs`), one at a time, and
//! written to the stream `session/<id>` before it is true. One whose actor is given up could neither
//! be resumed nor end, so its supervisor ends it.
//!
//! Sessions of one user share an `Account`, so that a new session is no new
//! allowance, and all of them the room of the host. What is cheap to cause, as a
//! session that comes and goes, leaves little: the stream of one that did nothing
//! goes when it makes room, of others so many are kept, and their events are summed up when
//! they are many (`summary.rs`).

mod account;
mod attachment;
mod end;
mod handle;
mod limiter;
mod profile;
mod quota_usage;
mod records;
mod restore;
mod room;
mod row;
mod session;
mod shared;
mod state;
mod summary;
mod supervisor;
mod toolsets;

pub use attachment::{Attachment, OpenSession};
pub use handle::{SessionsHandle, SessionsSeed};
pub use hivekeep_kernel::User;
pub(crate) use limiter::{Limiter, Slow, Whose};
pub use room::host_room;
pub use row::{SessionRow, SessionState};
pub(crate) use shared::{InFlight, SessionShared};
pub use state::EndReason;
pub use supervisor::{Msg, Sessions};

#[cfg(test)]
mod tests;
