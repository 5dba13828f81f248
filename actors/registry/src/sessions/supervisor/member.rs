//! An entry of the supervisor for one session.

use std::sync::Arc;

use hivekeep_kernel::{SessionId, ToolError};
use hivekeep_runtime::collection::CollectionMember;
use tokio::sync::oneshot;

use crate::sessions::{Attachment, SessionShared, User, session::Session};

/// Reply to a client that wants a session.
pub(super) type Opener = oneshot::Sender<Result<Attachment, ToolError>>;

/// A session as its supervisor has it, until it is over.
pub(crate) enum SessionMember {
    /// Being written; these wait for it.
    Opening { user: User, name: Option<String>, openers: Vec<Opener> },
    /// Written. `leaving` when it was told to make room.
    Live { shared: Arc<SessionShared>, name: Option<String>, leaving: bool },
}

impl CollectionMember for SessionMember {
    type Id = SessionId;
    type Actor = Session;
    const KIND: &'static str = "session";

    fn name(&self) -> Option<&str> {
        match self {
            Self::Opening { name, .. } | Self::Live { name, .. } => name.as_deref(),
        }
    }

    fn takes_place(&self) -> bool {
        !matches!(self, Self::Live { leaving: true, .. })
    }
}

impl SessionMember {
    pub(super) fn user(&self) -> User {
        match self {
            Self::Opening { user, .. } => *user,
            Self::Live { shared, .. } => shared.account.user,
        }
    }

    pub(super) fn shared(&self) -> Option<&Arc<SessionShared>> {
        match self {
            Self::Opening { .. } => None,
            Self::Live { shared, .. } => Some(shared),
        }
    }
}
