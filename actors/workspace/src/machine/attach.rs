//! The machine's process: children that watch it and keep its link, and what is done when it ends.

use std::sync::Arc;

use hivekeep_kernel::{Fault, RestartPolicy, supervise::RestartVerdict};
use hivekeep_link::{LinkSupervisor, LinkSupervisorArgs, LinkToken};
use hivekeep_machine::{MachineExit, MachineHandle, ProcessId, host_disk_full};
use serde_json::json;

use crate::{
    link_state::LinkState,
    machine::{
        self, Machine,
        link::{LINK, bounded},
    },
    messages::{LifecycleMsg, LinkMsg, MachineMsg},
    phase::Phase,
    records::Record,
    state::Workspace,
};

const MACHINE: &str = "machine";

pub(crate) fn handle(state: &mut Workspace, news: MachineMsg) -> Result<(), Fault> {
    match news {
        MachineMsg::Launched(handle) => state.machine.unrecorded = Some(handle),
        MachineMsg::Attach(handle, token, reply) => {
            attach(state, *handle, token)?;
            let _asker_gone = reply.send(state.link.subscribe());
        }
        MachineMsg::Detach(reply) => {
            detach(state, "told to let go of the machine");
            let recorded = || state.ledger.handle().cloned().map(Box::new);
            let handle = state.machine.unrecorded.take().or_else(recorded);
            let _asker_gone = reply.send(handle);
        }
        MachineMsg::Exited(exit) => machine_exited(state, exit),
        MachineMsg::LeftEnded(process, exit) => left_ended(state, process, &exit),
        MachineMsg::DiskFull(process) => disk_full(state, process),
    }
    Ok(())
}

/// Starts the children that watch a running machine and keep a link into it.
fn attach(
    state: &mut Workspace,
    handle: MachineHandle,
    token: Option<LinkToken>,
) -> Result<(), Fault> {
    let driver = state
        .handle
        .shared
        .driver(state.ledger.plan.spec.isolation)
        .map_err(|error| Fault::new(error.to_string()))?;
    let endpoint = driver.endpoint(&handle);
    state.link.set(LinkState::Connecting("the machine has just been started".to_owned()));

    let args = machine::Args {
        driver,
        handle: handle.clone(),
        workspace: state.me.address.clone(),
        link_state: state.link.subscribe(),
        room: state.handle.shared.daemon.room.clone(),
        disks: state.handle.shared.folders.disks.clone(),
    };
    let address = state.children.address(MACHINE, "machine", RestartPolicy::ENTITY);
    state.children.start::<Machine>(MACHINE, RestartPolicy::ENTITY, &address, args)?;

    state.link.set_token(token.unwrap_or_else(|| state.ledger.plan.token.clone()));
    let (token, workspace) = (state.link.token(), state.me.address.clone());
    let options = state.handle.shared.options.link.clone();
    let args = move || LinkSupervisorArgs {
        carrier: endpoint.carrier(),
        token: token.clone(),
        options: options.clone(),
        on_change: {
            let workspace = workspace.clone();
            Arc::new(move |news| drop(workspace.send(LinkMsg::Changed(news).into())))
        },
    };
    let probe = state.children.probe(LINK, "link", RestartPolicy::ENTITY);
    state.children.start_actor(LINK, RestartPolicy::ENTITY, probe, move |supervisor| {
        ractor::ActorRuntime::spawn_linked_instant(None, LinkSupervisor, args(), supervisor)
            .map(|(link, _)| link.get_cell())
            .map_err(|error| Fault::new(error.to_string()))
    })?;
    state.machine.watched = Some(handle);
    state.sync();
    Ok(())
}

/// Stops watching the machine; its end is not a crash then.
fn detach(state: &mut Workspace, why: &str) {
    state.machine.watched = None;
    state.children.stop(MACHINE, why);
    state.children.stop(LINK, why);
    state.link.set(LinkState::Absent);
    state.sync();
}

/// Handles the end of a watched machine's process: a crash, unless the phase explains it.
fn machine_exited(state: &mut Workspace, exit: MachineExit) {
    let Some(process) = state.machine.watched.as_ref().map(|machine| machine.process) else {
        return;
    };
    let reason = reason(&exit);
    state.machine.ended = Some(process);
    detach(state, "the machine ended");
    state.link.set(LinkState::Gone(reason.clone()));
    if state.status.phase == Phase::Crashed {
        return left_ended(state, process, &exit);
    }
    // During a start or a stop the worker under way sees the link's state and decides; the end
    // of a parked machine is expected.
    if state.ledger.parked.is_some()
        || !matches!(state.status.phase, Phase::Running | Phase::Paused | Phase::HostDiskFull)
    {
        return;
    }
    tracing::warn!(workspace = %state.handle.id, %reason, "machine crashed");
    state.status.reason = Some(reason.clone());
    state.set_phase(Phase::Crashed);
    let verdict = state.machine.crashes.judge(state.me.address.probe().age(), true);
    let workspace = state.handle.clone();
    let restarts = matches!(verdict, RestartVerdict::RestartAfter(_));
    let _detached = state.me.workers.spawn(async move {
        let at = chrono::Utc::now();
        let data = json!({ "reason": reason, "restarting": restarts });
        let record = Record::Crashed { at, reason };
        if let Err(error) = workspace.commit(vec![record], Some(("workspace.crashed", data))).await
        {
            tracing::error!(workspace = %workspace.id, %error, "a crash could not be recorded");
        }
        if let RestartVerdict::RestartAfter(wait) = verdict {
            tokio::time::sleep(wait).await;
            let _gone = workspace.actor.send(LifecycleMsg::RestartDue.into());
        }
    });
}

/// Marks a running machine as halted for want of room on the host's disk, unless its guest answers.
fn disk_full(state: &mut Workspace, process: ProcessId) {
    let kept = state.machine.watched.as_ref().is_some_and(|machine| machine.process == process);
    // Other phases have their own reports, and a guest that answers is not halted any more.
    if !kept || state.status.phase != Phase::Running || state.link.up().is_some() {
        return;
    }
    let error = host_disk_full();
    tracing::warn!(workspace = %state.handle.id, "{}", error.message);
    state.status.reason = Some(error.to_text());
    state.set_phase(Phase::HostDiskFull);
    state.handle.publish("workspace.host_disk_full", json!({ "reason": error.message }));
}

fn reason(exit: &MachineExit) -> String {
    let last = exit.stderr_tail.lines().next_back().unwrap_or_default();
    let last = if last.is_empty() { String::new() } else { format!(": {}", bounded(last)) };
    format!("the machine's process ended with {}{last}", exit.how)
}

/// Watches a recorded machine that no child watches any more, so that its end is noticed.
pub(crate) fn watch_what_is_left(state: &Workspace) {
    let (None, Some(handle)) = (&state.machine.watched, state.ledger.handle().cloned()) else {
        return;
    };
    let (workspace, isolation) = (state.handle.clone(), state.ledger.plan.spec.isolation);
    let _detached = state.me.workers.spawn(async move {
        let Ok(driver) = workspace.shared.driver(isolation) else { return };
        let exit = driver.watch(&handle).await;
        let _gone = workspace.actor.send(MachineMsg::LeftEnded(handle.process, exit).into());
    });
}

/// Records the end of a machine's process that was left running.
fn left_ended(state: &mut Workspace, process: ProcessId, exit: &MachineExit) {
    let recorded = state.ledger.handle().map(|handle| handle.process);
    if state.status.phase != Phase::Crashed || recorded != Some(process) {
        return;
    }
    state.machine.ended = Some(process);
    let before = state.status.reason.take().map(|reason| format!("{reason}; "));
    let reason = format!("{}its process has ended since", before.unwrap_or_default());
    tracing::info!(workspace = %state.handle.id, how = %exit.how, "a machine that was left has ended");
    state.status.reason = Some(reason.clone());
    if state.ledger.parked.is_some() {
        // The parked memory was not touched.
        state.set_phase(Phase::Parked);
    }
    state.sync();
    let (workspace, how, at) = (state.handle.clone(), exit.how.to_string(), exit.at);
    let _detached = state.me.workers.spawn(async move {
        let data = json!({ "reason": reason, "how": how });
        let record = Record::Crashed { at, reason };
        if let Err(error) = workspace.commit(vec![record], Some(("workspace.crashed", data))).await {
            tracing::error!(workspace = %workspace.id, %error, "a machine's end could not be recorded");
        }
    });
}
