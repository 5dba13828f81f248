//! The status of a workspace: its phase, and whether a process of its machine is left.
//!
//! A start, stop or re-attachment that fails can leave a process. The workspace is `crashed` then,
//! and is never said to have no process.

use std::sync::Arc;

use hivekeep_kernel::Fault;
use hivekeep_machine::{MachineExit, ProcessId};
use serde_json::json;

use super::{Msg, Workspace};
use crate::{
    activity::Activity,
    phase::{MachineProcess, Phase},
    records::Record,
};

impl Workspace {
    pub(super) fn process(&self) -> MachineProcess {
        if self.machine.is_some() {
            return MachineProcess::Running;
        }
        let recorded = self.ledger.handle().map(|handle| handle.process);
        let ended = recorded.is_some() && recorded == self.ended;
        match self.ledger.process_may_be_left() && !ended {
            true => MachineProcess::Unknown,
            false => MachineProcess::None,
        }
    }

    pub(super) fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
        if let (Some(merger), true) = (&self.merger, phase != Phase::Stopped) {
            merger.cancel();
        }
        self.sync();
        if self.ledger.plan.pool.is_some() {
            self.manager.phase(self.handle.id, phase);
        }
    }

    /// Brings the card and the word in `hivekeep ps` up to date.
    pub(super) fn sync(&self) {
        let (phase, owner, process) = (self.phase, self.ledger.owner, self.process());
        let user = self.ledger.user;
        let word = match (phase, process) {
            (Phase::Crashed, MachineProcess::Running) => "crashed, machine runs",
            (Phase::Crashed, MachineProcess::Unknown) => "crashed, machine may run",
            _ => phase.word(),
        };
        self.me.address.probe().set_state(word);
        let parks_when_idle = phase == Phase::Running && self.parks_after_secs().is_some();
        let (plan, lifetime) = (&self.ledger.plan, self.ledger.lifetime);
        self.handle.shared.directory.update(self.handle.id, |card| {
            card.phase = phase;
            card.owner = owner;
            card.user = user;
            card.process = process;
            card.lifetime = lifetime;
            card.parks_when_idle = parks_when_idle;
            if card.pool.is_some() && plan.pool.is_none() {
                card.name.clone_from(&plan.name);
                card.planned_by = plan.owner;
                card.pool = None;
                card.fork_of = None;
                card.created_at = plan.at;
                card.labels = Arc::new(plan.labels.clone());
            }
        });
    }

    /// Why the workspace crashed or failed, and what can be done about a process that is left.
    pub(super) fn reason(&self) -> Option<String> {
        let reason = self.reason.clone()?;
        let left = match (self.phase, self.process()) {
            (Phase::Crashed, MachineProcess::Running) => "runs",
            (Phase::Crashed, MachineProcess::Unknown) => "may still run",
            _ => return Some(reason),
        };
        Some(format!(
            "{reason}; the machine's process {left}: workspace_stop ends it, and workspace_start \
             ends it before it starts another"
        ))
    }

    /// Ends a change of phase.
    pub(super) fn settle(&mut self, phase: Phase, reason: Option<String>) -> Result<(), Fault> {
        // A machine may have ended between the last step of its start and now.
        self.finished(Activity::Reattaching);
        let stands = matches!(phase, Phase::Running | Phase::Paused | Phase::HostDiskFull);
        let gone = stands && self.machine.is_none();
        self.reason = reason;
        // A workspace whose memory is on the disk is parked, not stopped.
        let phase = if phase == Phase::Stopped { self.at_rest() } else { phase };
        if gone {
            self.reason = Some("the machine ended right after its start".to_owned());
            self.set_phase(Phase::Crashed);
        } else {
            self.set_phase(phase);
        }
        match self.phase {
            Phase::Running => self.follow_jobs()?,
            Phase::Crashed => self.watch_what_is_left(),
            // Most often there is nothing to merge.
            Phase::Stopped => drop(self.begin_merging()),
            _ => {}
        }
        Ok(())
    }

    /// Watches a recorded machine that no child watches any more, so that its end is noticed.
    fn watch_what_is_left(&self) {
        let (None, Some(handle)) = (&self.machine, self.ledger.handle().cloned()) else { return };
        let (workspace, isolation) = (self.handle.clone(), self.ledger.plan.spec.isolation);
        let _detached = self.me.workers.spawn(async move {
            let Ok(driver) = workspace.shared.driver(isolation) else { return };
            let exit = driver.watch(&handle).await;
            let _gone = workspace.actor.send(Msg::LeftEnded(handle.process, exit));
        });
    }

    /// Records the end of a machine's process that was left running.
    pub(super) fn left_ended(&mut self, process: ProcessId, exit: &MachineExit) {
        let recorded = self.ledger.handle().map(|handle| handle.process);
        if self.phase != Phase::Crashed || recorded != Some(process) {
            return;
        }
        self.ended = Some(process);
        let before = self.reason.take().map(|reason| format!("{reason}; "));
        let reason = format!("{}its process has ended since", before.unwrap_or_default());
        tracing::info!(workspace = %self.handle.id, how = %exit.how, "a machine that was left has ended");
        self.reason = Some(reason.clone());
        if self.ledger.parked.is_some() {
            // The parked memory was not touched.
            self.set_phase(Phase::Parked);
        }
        self.sync();
        let (workspace, how, at) = (self.handle.clone(), exit.how.to_string(), exit.at);
        let _detached = self.me.workers.spawn(async move {
            let data = json!({ "reason": reason, "how": how });
            let record = Record::Crashed { at, reason };
            if let Err(error) = workspace.commit(vec![record], Some(("workspace.crashed", data))).await {
                tracing::error!(workspace = %workspace.id, %error, "a machine's end could not be recorded");
            }
        });
    }
}
