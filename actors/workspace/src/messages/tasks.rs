//! Messages of the guest's tasks to its workspace.

use std::collections::BTreeMap;

use hivekeep_kernel::{ToolError, ports::TaskHints};
use hivekeep_protocol::TaskResultsReply;
use tokio::sync::{oneshot, watch};

use crate::link_state::LinkState;

/// Requests about the guest's tasks.
pub enum TaskMsg {
    /// Ask for access to the guest of a running workspace.
    Access {
        /// Variables of a task.
        env: BTreeMap<String, String>,
        /// The access, or why there is none.
        reply: oneshot::Sender<Result<GuestAccess, ToolError>>,
    },
    /// Ask for cached results beyond a number, which the guest sent without being asked.
    Cached {
        /// The number.
        after: u64,
        /// Most results in the answer.
        limit: u32,
        /// The results; `None` if the guest has to be asked.
        reply: oneshot::Sender<Option<TaskResultsReply>>,
    },
    /// Results are durable elsewhere: the guest need not send them again.
    Acknowledged {
        /// The tasks.
        task_ids: Vec<String>,
        /// Answered when the cache has dropped the results: access to tell the guest, or why there is none.
        reply: oneshot::Sender<Result<GuestAccess, ToolError>>,
    },
    /// Ask for the hints that tell when to look for results.
    Hints(oneshot::Sender<TaskHints>),
}

/// Access to a guest, for requests about tasks.
pub struct GuestAccess {
    /// The link, now or soon.
    pub(crate) link_state: watch::Receiver<LinkState>,
    /// The workspace's environment, overridden by the task's own.
    pub(crate) env: Vec<(String, String)>,
}
