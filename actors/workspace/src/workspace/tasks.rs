//! The workspace's part in tasks: its environment, its link, and hints.

use std::{collections::BTreeMap, time::Instant};

use hivekeep_kernel::{ToolError, ports::TaskHints};
use hivekeep_protocol::{TaskNews, TaskPage, TaskProgress};
use tokio::sync::{oneshot, watch};

use super::{Line, Workspace};
use crate::phase::Want;

/// What may be asked for tasks.
pub enum Ask {
    /// The way into the guest, for as long as it runs.
    Way {
        /// Variables of a task.
        env: BTreeMap<String, String>,
        /// The way, or why there is none.
        reply: oneshot::Sender<Result<Way, ToolError>>,
    },
    /// Results beyond a number, if the guest has told them and they need not be asked for.
    Told {
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
    pub(super) fn task_ask(&mut self, ask: Ask) {
        match ask {
            Ask::Way { env, reply } => {
                let _asker_gone = reply.send(self.task_way(env));
            }
            Ask::Told { after, limit, reply } => {
                // What cannot be asked has no answers: whoever asks is told why.
                let may_ask = self.on(Want::Guest).is_ok();
                let page = may_ask.then(|| self.told.answer(after, limit)).flatten();
                let _asker_gone = reply.send(page);
            }
            Ask::Acknowledged { task_ids, reply } => {
                self.told.acknowledged(&task_ids);
                let _asker_gone = reply.send(self.task_way(BTreeMap::new()));
            }
            Ask::Hints(reply) => {
                let _asker_gone = reply.send(TaskHints::new(self.task_hints.subscribe()));
            }
        }
    }

    fn task_way(&self, env: BTreeMap<String, String>) -> Result<Way, ToolError> {
        self.on(Want::Guest)?;
        Ok(Way { line: self.line.subscribe(), env: self.environment(env)? })
    }

    /// A result came with the hint, over the link that is up, or over one of before.
    pub(super) fn task_ended(&mut self, links: u64, news: TaskNews) {
        if links == self.links {
            self.told.hear(news);
        }
        self.tasks_changed();
    }

    /// Another link, or none: what a guest told holds no longer than the link it was told over.
    pub(super) fn tasks_untold(&mut self) {
        self.links += 1;
        self.told.clear();
    }

    /// A running task has written something.
    pub(super) fn task_progress(&mut self, told: &TaskProgress) {
        let hide = self.handle.shared.hide.clone();
        if let Some(data) = self.pace.event(Instant::now(), told, |text| hide(text)) {
            self.handle.tell("task.progress", data);
        }
    }

    /// The guest says that its tasks changed, or may have while nobody heard it.
    pub(super) fn tasks_changed(&self) {
        self.task_hints.send_modify(|count| *count = count.wrapping_add(1));
    }
}
