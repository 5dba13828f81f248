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
//! they are many (`account.rs`).

mod account;
mod handle;
mod limiter;
mod profile;
mod records;
mod room;
mod session;
mod shared;
mod state;
mod supervisor;

use std::{collections::BTreeSet, sync::Arc};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{Door, Resources, SessionId};
use hivekeep_policy::SessionProfile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

pub use handle::{SessionsArgs, SessionsHandle};
pub use hivekeep_kernel::User;
pub(crate) use limiter::{Slow, Whose};
pub use room::host_room;
pub(crate) use shared::{InFlight, SessionShared};
pub use state::EndReason;
pub use supervisor::{Msg, Sessions};

/// Request for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSession {
    /// The door it came through.
    pub door: Door,
    /// The client's name for itself; for people only.
    pub client: String,
    /// The user, as the door knows it. A resumed session stays its user's.
    pub user: User,
    /// The session to resume, if it still can be.
    pub resume: Option<SessionId>,
    /// Profile of a new session.
    pub profile: SessionProfile,
}

/// A client's hold on a session; dropping it detaches. A session can be held
/// several times at once.
#[derive(Debug)]
pub struct Attachment {
    /// The session.
    pub session: SessionId,
    /// True when the session was there before.
    pub resumed: bool,
    /// The reason why the session that was asked for could not be resumed.
    pub notice: Option<String>,
    shared: Arc<SessionShared>,
}

impl Attachment {
    fn new(shared: Arc<SessionShared>, resumed: bool) -> Self {
        shared.attach();
        Self { session: shared.id, resumed, notice: None, shared }
    }

    /// Families that the session has loaded, now and as they change.
    pub fn toolsets(&self) -> watch::Receiver<BTreeSet<String>> {
        self.shared.toolsets.subscribe()
    }

    /// Waits until the session is over, by whatever reason.
    pub async fn over(&self) {
        self.shared.over.cancelled().await;
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.shared.detach();
    }
}

/// Lifecycle state of a session. It can be resumed until it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// A client is attached.
    Attached,
    /// No client is attached; it can be resumed.
    Detached,
    /// The session is over; what it owned can be adopted.
    Ended,
}

/// Row of a listing of sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionRow {
    /// The session.
    pub session: SessionId,
    /// Lifecycle state.
    pub state: SessionState,
    /// The door it was opened through.
    pub door: Door,
    /// Name that the client gives itself; for people only.
    pub client: String,
    /// Whom it is for; all sessions of one user share an allowance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// Its name, if it is one that does not end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Clients attached now.
    pub attachments: u32,
    /// Calls running now, also those whose callers have gone.
    pub calls_in_flight: u32,
    /// Calls since the daemon started.
    pub calls_total: u64,
    /// Seconds since a client was attached or a call running.
    pub idle_secs: u64,
    /// Resources that the session holds.
    pub used: Resources,
    /// Resources that the session may hold.
    pub allowed: Resources,
    /// When it was opened.
    pub opened_at: DateTime<Utc>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<DateTime<Utc>>,
    /// Agent, context, parent, tools and conversation that the session is bound to.
    #[serde(default, skip_serializing_if = "SessionProfile::is_empty")]
    pub profile: SessionProfile,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<EndReason>,
}

#[cfg(test)]
mod tests;
