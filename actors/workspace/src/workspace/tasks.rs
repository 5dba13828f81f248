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
                // A guest that may not be asked has no cached answers: the caller's own request
                // gets the error.
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

    /// Keeps a result that came with the hint, unless it came over an earlier link.
    pub(super) fn task_ended(&mut self, links: u64, news: TaskResultsPush) {
        if links == self.links {
            self.results.keep(news);
        }
        self.tasks_changed();
    }

    /// Clears the cached results: they hold no longer than the link they came over.
    pub(super) fn forget_results(&mut self) {
        self.links += 1;
        self.results.clear();
    }

    /// Publishes the progress of a running task.
    pub(super) fn task_progress(&mut self, told: &TaskProgress) {
        let hide = self.handle.shared.daemon.redact.clone();
        if let Some(data) = self.pace.event(Instant::now(), told, |text| hide(text)) {
            self.handle.publish("task.progress", data);
        }
    }

    /// Hints that the guest's tasks changed, or may have while no link was up.
    pub(super) fn tasks_changed(&self) {
        self.task_hints.send_modify(|count| *count = count.wrapping_add(1));
    }
}
