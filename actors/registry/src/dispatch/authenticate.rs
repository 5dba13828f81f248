//! The caller has a session, and it is live.

use hivekeep_kernel::{SessionId, ToolError};

use crate::{SessionsHandle, sessions::InFlight};

/// From here on the call counts as in flight, so its session stays live.
pub(super) fn pass(sessions: &SessionsHandle, session: SessionId) -> Result<InFlight, ToolError> {
    sessions.begin_call(session)
}
