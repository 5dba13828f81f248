//! Tasks of the guest, as far as the workspace has a part in them: environment, link and hints.

use std::{collections::BTreeMap, time::Instant};

use hivekeep_kernel::{ToolError, ports::TaskHints};
use hivekeep_protocol::{TaskNews, TaskPage, TaskProgress};
use tokio::sync::{oneshot, watch};

use super::{LinkState, Workspace};
use crate::phase::Want;

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
        reply: oneshot::Sender<Option<TaskPage>>,
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

impl Workspace {
    pub(super) fn task_ask(&mut self, ask: TaskMsg) {
        match ask {
            TaskMsg::Access { env, reply } => {
                let _asker_gone = reply.send(self.guest_access(env));
            }
            TaskMsg::Cached { after, limit, reply } => {
                // What cannot be asked has no answers: whoever asks is told why.
                let may_ask = self.on(Want::Guest).is_ok();
                let page = may_ask.then(|| self.results.answer(after, limit)).flatten();
                let _asker_gone = reply.send(page);
            }
            TaskMsg::Acknowledged { task_ids, reply } => {
                self.results.acknowledged(&task_ids);
                let _asker_gone = reply.send(self.guest_access(BTreeMap::new()));
            }
            TaskMsg::Hints(reply) => {
                let _asker_gone = reply.send(TaskHints::new(self.task_hints.subscribe()));
            }
        }
    }

    fn guest_access(&self, env: BTreeMap<String, String>) -> Result<GuestAccess, ToolError> {
        self.on(Want::Guest)?;
        Ok(GuestAccess { link_state: self.link_state.subscribe(), env: self.environment(env)? })
    }

    /// A result came with the hint, over the link that is up, or over one of before.
    pub(super) fn task_ended(&mut self, links: u64, news: TaskNews) {
        if links == self.links {
            self.results.keep(news);
        }
        self.tasks_changed();
    }

    /// Another link, or none: what a guest told holds no longer than the link it was told over.
    pub(super) fn forget_results(&mut self) {
        self.links += 1;
        self.results.clear();
    }

    /// A running task has written something.
    pub(super) fn task_progress(&mut self, told: &TaskProgress) {
        let hide = self.handle.shared.daemon.redact.clone();
        if let Some(data) = self.pace.event(Instant::now(), told, |text| hide(text)) {
            self.handle.publish("task.progress", data);
        }
    }

    /// The guest says that its tasks changed, or may have while nobody heard it.
    pub(super) fn tasks_changed(&self) {
        self.task_hints.send_modify(|count| *count = count.wrapping_add(1));
    }
}
