//! Children of a workspace that watch its machine and keep its link.

use std::sync::Arc;

use hivekeep_kernel::{Fault, RestartPolicy, supervise::RestartVerdict};
use hivekeep_link::{LinkChange, LinkSupervisor, LinkSupervisorArgs, LinkToken};
use hivekeep_machine::{MachineExit, MachineHandle, ProcessId, host_disk_full};
use serde_json::json;

use super::{LinkState, Msg, Workspace};
use crate::{
    machine::{self, Machine},
    phase::Phase,
    records::Record,
};

const MACHINE: &str = "machine";
const LINK: &str = "link";

impl Workspace {
    /// Starts the children that watch a running machine and keep a link into it.
    pub(super) fn attach(
        &mut self,
        handle: MachineHandle,
        token: Option<LinkToken>,
    ) -> Result<(), Fault> {
        let driver = self
            .handle
            .shared
            .driver(self.ledger.plan.spec.isolation)
            .map_err(|error| Fault::new(error.to_string()))?;
        let endpoint = driver.endpoint(&handle);
        self.link_state
            .send_replace(LinkState::Connecting("the machine has just been started".to_owned()));

        let seed = machine::Seed {
            driver,
            handle: handle.clone(),
            workspace: self.me.address.clone(),
            link_state: self.link_state.subscribe(),
            room: self.handle.shared.daemon.room.clone(),
            disks: self.handle.shared.folders.disks.clone(),
        };
        let address = self.children.address(MACHINE, "machine", RestartPolicy::ENTITY);
        self.children.start::<Machine>(MACHINE, RestartPolicy::ENTITY, &address, seed)?;

        self.token.send_replace(token.unwrap_or_else(|| self.ledger.plan.token.clone()));
        let (token, workspace) = (self.token.subscribe(), self.me.address.clone());
        let options = self.handle.shared.options.link.clone();
        let args = move || LinkSupervisorArgs {
            carrier: endpoint.carrier(),
            token: token.clone(),
            options: options.clone(),
            on_change: {
                let workspace = workspace.clone();
                Arc::new(move |news| drop(workspace.send(Msg::Link(news))))
            },
        };
        let probe = self.children.probe(LINK, "link", RestartPolicy::ENTITY);
        self.children.start_actor(LINK, RestartPolicy::ENTITY, probe, move |supervisor| {
            ractor::ActorRuntime::spawn_linked_instant(None, LinkSupervisor, args(), supervisor)
                .map(|(link, _)| link.get_cell())
                .map_err(|error| Fault::new(error.to_string()))
        })?;
        self.machine = Some(handle);
        self.sync();
        Ok(())
    }

    /// Stops watching the machine; its end is not a crash then.
    pub(super) fn detach(&mut self, why: &str) {
        self.machine = None;
        self.children.stop(MACHINE, why);
        self.children.stop(LINK, why);
        self.link_state.send_replace(LinkState::Absent);
        self.sync();
    }

    /// Handles the end of a watched machine's process: a crash, unless the phase explains it.
    pub(super) fn machine_exited(&mut self, exit: MachineExit) {
        let Some(process) = self.machine.as_ref().map(|machine| machine.process) else { return };
        let reason = reason(&exit);
        self.ended = Some(process);
        self.detach("the machine ended");
        self.link_state.send_replace(LinkState::Gone(reason.clone()));
        if self.phase == Phase::Crashed {
            return self.left_ended(process, &exit);
        }
        // During a start or a stop the worker under way sees the link's state and decides; the end
        // of a parked machine is expected.
        if self.ledger.parked.is_some()
            || !matches!(self.phase, Phase::Running | Phase::Paused | Phase::HostDiskFull)
        {
            return;
        }
        tracing::warn!(workspace = %self.handle.id, %reason, "machine crashed");
        self.reason = Some(reason.clone());
        self.set_phase(Phase::Crashed);
        let verdict = self.crashes.judge(self.me.address.probe().age(), true);
        let workspace = self.handle.clone();
        let restarts = matches!(verdict, RestartVerdict::RestartAfter(_));
        let _detached = self.me.workers.spawn(async move {
            let at = chrono::Utc::now();
            let data = json!({ "reason": reason, "restarting": restarts });
            let record = Record::Crashed { at, reason };
            if let Err(error) =
                workspace.commit(vec![record], Some(("workspace.crashed", data))).await
            {
                tracing::error!(workspace = %workspace.id, %error, "a crash could not be recorded");
            }
            if let RestartVerdict::RestartAfter(wait) = verdict {
                tokio::time::sleep(wait).await;
                let _gone = workspace.actor.send(Msg::RestartDue);
            }
        });
    }

    /// Marks a running machine as halted for want of room on the host's disk, unless its guest answers.
    pub(super) fn disk_full(&mut self, process: ProcessId) {
        let kept = self.machine.as_ref().is_some_and(|machine| machine.process == process);
        // Other phases have their own reports, and a guest that answers is not halted any more.
        if !kept
            || self.phase != Phase::Running
            || matches!(*self.link_state.borrow(), LinkState::Up(_))
        {
            return;
        }
        let error = host_disk_full();
        tracing::warn!(workspace = %self.handle.id, "{}", error.message);
        self.reason = Some(error.to_text());
        self.set_phase(Phase::HostDiskFull);
        self.handle.publish("workspace.host_disk_full", json!({ "reason": error.message }));
    }

    /// Settles a machine whose guest answers again: the host's disk has room.
    fn goes_on(&mut self) -> Result<(), Fault> {
        self.settle(Phase::Running, None)?;
        self.handle.publish("workspace.goes_on", json!({}));
        let link_state = self.link_state.borrow().clone();
        if let LinkState::Up(link) = link_state {
            // The guest's clock stood still as well.
            self.relinked(link);
        }
        Ok(())
    }

    pub(super) fn link_news(&mut self, news: LinkChange) -> Result<(), Fault> {
        let probe = self.children.probe(LINK, "link", RestartPolicy::ENTITY);
        if self.machine.is_none() {
            return Ok(());
        }
        if matches!(news, LinkChange::Up { .. } | LinkChange::Down { .. }) {
            self.forget_results();
        }
        let link_state = match news {
            LinkChange::Up { link, welcome } => {
                probe.set_state(format!("up, guest {}", bounded(&welcome.guest_version)));
                self.listen(&link);
                if self.phase == Phase::Running {
                    self.relinked(link.clone());
                }
                LinkState::Up(link)
            }
            LinkChange::Down { reason } => {
                probe.set_error(reason.to_string());
                LinkState::Connecting(reason.to_string())
            }
            LinkChange::Unreachable { error } => LinkState::Connecting(error.to_string()),
            LinkChange::Refused { error } => {
                probe.set_error(error.to_string());
                LinkState::Refused(error.to_string())
            }
            LinkChange::Unresponsive => match &*self.link_state.borrow() {
                LinkState::Up(link) => LinkState::Unresponsive(link.clone()),
                other => other.clone(),
            },
            LinkChange::Responsive => match &*self.link_state.borrow() {
                LinkState::Unresponsive(link) => LinkState::Up(link.clone()),
                other => other.clone(),
            },
        };
        if !matches!(link_state, LinkState::Up(_)) {
            probe.set_state(link_state.word());
        }
        let (is_up, word) = (matches!(link_state, LinkState::Up(_)), link_state.word());
        let before = self.link_state.send_replace(link_state);
        // Starts and stops publish their own events.
        if self.phase == Phase::Running
            && std::mem::discriminant(&before) != std::mem::discriminant(&self.link_state.borrow())
        {
            self.handle.shared.publish(
                "workspace.link",
                self.handle.id,
                json!({ "link": bounded(&word) }),
            );
        }
        if is_up {
            // Hints may have been lost with the previous link.
            self.tasks_changed();
        }
        match (is_up, self.phase) {
            (true, Phase::HostDiskFull) => self.goes_on(),
            _ => Ok(()),
        }
    }

    /// Configures a running guest again after a new link was made, which sets its clock.
    fn relinked(&self, link: hivekeep_link::Link) {
        let (workspace, mut plan) = (self.handle.clone(), self.ledger.plan.clone());
        let _detached = self.me.workers.spawn(async move {
            loop {
                if let Err(error) = super::identity::configure(&link, &plan, false).await {
                    tracing::warn!(workspace = %workspace.id, %error, "the guest was not configured anew");
                }
                // A pool machine that was claimed meanwhile has another name.
                match workspace.shared.directory.any(workspace.id) {
                    Some(card) if card.name != plan.name => plan.name = card.name,
                    _ => return,
                }
            }
        });
    }
}

fn reason(exit: &MachineExit) -> String {
    let last = exit.stderr_tail.lines().next_back().unwrap_or_default();
    let last = if last.is_empty() { String::new() } else { format!(": {}", bounded(last)) };
    format!("the machine's process ended with {}{last}", exit.how)
}

fn bounded(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}
