//! Messages of the guest's tasks to its workspace.

use std::collections::BTreeMap;

use hivekeep_kernel::{ToolError, ports::TaskHints};
use hivekeep_protocol::TaskResultsReply;
use tokio::sync::{oneshot, watch};

use crate::workspace::LinkState;

/// What may be asked for tasks.
pub enum TaskMsg {
    /// The way into the guest, for as long as it runs.
    Access {
        /// Variables of a task.
        env: BTreeMap<String, String>,
        /// The way, or why there is none.
        reply: oneshot::Sender<Result<GuestAccess, ToolError>>,
    },
    /// Results beyond a number, if the guest has told them and they need not be asked for.
    Cached {
        /// The number.
        after: u64,
        /// At most so many.
        limit: u32,
        /// What it told.
        reply: oneshot::Sender<Option<TaskResultsReply>>,
    },
    /// These results are durable elsewhere: they are not to be told again.
    Acknowledged {
        /// The tasks.
        task_ids: Vec<String>,
        /// They are not from now on: the way to tell the guest, or why there is none.
        reply: oneshot::Sender<Result<GuestAccess, ToolError>>,
    },
    /// When to look for results.
    Hints(oneshot::Sender<TaskHints>),
}

/// What it takes to talk about tasks with a guest.
pub struct GuestAccess {
    /// The link, now or soon.
    pub(crate) link_state: watch::Receiver<LinkState>,
    /// The workspace's environment under the task's own.
    pub(crate) env: Vec<(String, String)>,
}
