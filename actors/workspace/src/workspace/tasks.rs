//! The workspace's part in tasks: its environment, its link, and hints.

use std::collections::BTreeMap;

use hivekeep_kernel::{ToolError, ports::TaskHints};
use tokio::sync::{oneshot, watch};

use super::{Line, Workspace};

/// What may be asked for tasks.
pub enum Ask {
    /// The way into the guest, for as long as it runs.
    Way {
        /// Variables of a task.
        env: BTreeMap<String, String>,
        /// The way, or why there is none.
        reply: oneshot::Sender<Result<Way, ToolError>>,
    },
    /// When to look for results.
    Hints(oneshot::Sender<TaskHints>),
}

/// What it takes to talk about tasks with a guest.
pub struct Way {
    /// The link, now or soon.
    pub(crate) line: watch::Receiver<Line>,
    /// The workspace's environment under the task's own.
    pub(crate) env: Vec<(String, String)>,
}

impl Workspace {
    pub(super) fn task_ask(&self, ask: Ask) {
        match ask {
            Ask::Way { env, reply } => {
                let way = self.guest_wanted().and_then(|()| {
                    let (line, env) = (self.line.subscribe(), self.environment(env)?);
                    Ok(Way { line, env })
                });
                let _asker_gone = reply.send(way);
            }
            Ask::Hints(reply) => {
                let _asker_gone = reply.send(TaskHints::new(self.task_hints.subscribe()));
            }
        }
    }

    /// The guest says that its tasks changed, or may have while nobody heard it.
    pub(super) fn tasks_changed(&self) {
        self.task_hints.send_modify(|count| *count = count.wrapping_add(1));
    }
}
