//! A client's hold on a session.

use std::{collections::BTreeSet, sync::Arc};

use hivekeep_kernel::{Door, SessionId};
use hivekeep_policy::SessionProfile;
use tokio::sync::watch;

use super::{SessionShared, User};

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
    pub(super) shared: Arc<SessionShared>,
}

impl Attachment {
    pub(super) fn new(shared: Arc<SessionShared>, resumed: bool) -> Self {
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
