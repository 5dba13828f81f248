//! Tasks of the guest, as far as the workspace has a part in them: environment, link and hints.

use std::{collections::BTreeMap, time::Instant};

use hivekeep_kernel::{ToolError, ports::TaskHints};
use hivekeep_protocol::{TaskProgress, TaskResultsPush};

use super::{GuestAccess, TaskMsg, Workspace};
use crate::phase::Want;

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
        Ok(GuestAccess {
            link_state: self.link_state.subscribe(),
            env: self.environment(None, env)?,
        })
    }

    /// A result came with the hint, over the link that is up, or over one of before.
    pub(super) fn task_ended(&mut self, links: u64, news: TaskResultsPush) {
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
