//! Where a workspace goes on after its actor, or the daemon, was gone.
//!
//! What was acknowledged is made true again; what was not is undone. A machine
//! that runs is attached, never killed first.

use std::time::Duration;

use hivekeep_kernel::ToolError;
use serde_json::json;

use super::{
    Line, Msg, Workspace, bring_up::settle, identity::configure, network, rewind::settle_change,
    take_down,
};
use crate::{
    driver::MachineHandle,
    ledger::{Change, MachineFact},
    phase::Phase,
    records::{Planned, Record, StopHow},
    shared::Desk,
    snapshots::Disk,
};

impl Workspace {
    /// Called once, at the start of each incarnation.
    pub(super) fn recover(&mut self) {
        if self.ledger.destroying {
            return self.undo("workspace.destroyed");
        }
        if let Some((code, message)) = &self.ledger.failed {
            self.reason = Some(format!("{code}: {message}"));
            return self.set_phase(Phase::Failed);
        }
        if !self.ledger.created {
            // The very first incarnation of a new workspace waits for its `Create`.
            return match (&self.ledger.machine, self.desk.shared.take_young(self.desk.id)) {
                (MachineFact::Stopped, true) => self.set_phase(Phase::Creating),
                _ => self.undo("workspace.create_undone"),
            };
        }
        let change = self.ledger.change.clone();
        let disk = self.ledger.disk.clone();
        match self.ledger.machine.clone() {
            // A change that was cut short is settled by the next start.
            MachineFact::Stopped => self.set_phase(Phase::Stopped),
            MachineFact::Crashed { reason } => {
                self.reason = Some(reason);
                self.set_phase(Phase::Crashed);
            }
            MachineFact::Starting => {
                self.set_phase(Phase::Stopping);
                self.spawn_recovery(abandon_start);
            }
            MachineFact::Launched { handle, stopping: true, .. } => {
                self.set_phase(Phase::Stopping);
                self.spawn_recovery(|desk, plan| async move {
                    take_down::stop(&desk, &plan, Some(&handle), &Line::Absent).await.map(drop)
                });
            }
            MachineFact::Launched { handle, .. } => {
                self.reattaching = true;
                self.set_phase(Phase::Starting);
                self.spawn_recovery(|desk, plan| async move {
                    let change = change.map(|change| (change, disk));
                    reattach(desk, plan, handle, change).await
                });
            }
        }
    }

    pub(super) fn undo(&mut self, event: &'static str) {
        self.set_phase(Phase::Destroying);
        let work = self.destruction(event);
        let _detached = self.ops.spawn(work);
    }

    fn spawn_recovery<F>(&self, work: impl FnOnce(Desk, Planned) -> F)
    where
        F: Future<Output = Result<(), ToolError>> + Send + 'static,
    {
        let work = work(self.desk.clone(), self.ledger.plan.clone());
        let desk = self.desk.clone();
        let _detached = self.ops.spawn(async move {
            if let Err(error) = work.await {
                tracing::error!(workspace = %desk.id, %error, "recovery failed");
                settle(&desk, Phase::Crashed, Some(error.to_text())).await;
            }
        });
    }
}

/// A start that was never acknowledged: whatever ran of it is ended.
async fn abandon_start(desk: Desk, plan: Planned) -> Result<(), ToolError> {
    take_down::kill_machine(&desk, &plan).await?;
    let record = Record::Stopped { at: chrono::Utc::now(), how: StopHow::Killed };
    let event = ("workspace.start_undone", json!({ "name": plan.name }));
    desk.commit(vec![record], Some(event)).await?;
    settle(&desk, Phase::Stopped, None).await;
    Ok(())
}

/// Takes up a machine that outlived the daemon.
async fn reattach(
    desk: Desk,
    plan: Planned,
    handle: Box<MachineHandle>,
    change: Option<(Change, Disk)>,
) -> Result<(), ToolError> {
    let driver = desk.shared.driver(plan.spec.isolation)?;
    if let Err(gone) = driver.reattach(&handle).await {
        let reason = format!("the machine ended while the daemon was away: {gone}");
        take_down::kill_machine(&desk, &plan).await?;
        let record = Record::Crashed { at: chrono::Utc::now(), reason: reason.clone() };
        let event = ("workspace.crashed", json!({ "name": plan.name, "reason": reason }));
        desk.commit(vec![record], Some(event)).await?;
        settle(&desk, Phase::Crashed, Some(reason)).await;
        return Ok(());
    }
    if let Some((change, disk)) = change {
        settle_change(&desk, &plan, &change, &disk, Some(&handle)).await?;
    }
    let paused = match driver.snapshots() {
        Some(snapshots) => snapshots.is_paused(&handle).await?,
        None => false,
    };
    let (patience, machine) = (Duration::from_secs(10), handle.clone());
    let mut line = desk.actor.ask(patience, |reply| Msg::Attach(handle, None, reply)).await?;
    if paused {
        // It stands still because it was told to; its guest answers when it goes on.
        desk.tell("workspace.reattached", json!({ "name": plan.name }));
        settle(&desk, Phase::Paused, None).await;
        return Ok(());
    }
    let boot = Duration::from_secs(desk.shared.options.boot_timeout_secs);
    let link = super::line::usable(&mut line, boot).await?;
    let networked = network::verify(&desk, &plan, &link, driver.as_ref(), &machine);
    tokio::try_join!(configure(&link, &plan, false), networked)?;
    desk.note(Record::Up { boot_time_ms: 0, at: chrono::Utc::now() }).await?;
    desk.tell("workspace.reattached", json!({ "name": plan.name }));
    settle(&desk, Phase::Running, None).await;
    Ok(())
}
