//! Starts and restarts of a machine, and what is left of those that fail.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Reply, ToolError, fault_point, ports::AttachedVolume};
use hivekeep_machine::LogsOnDiscard;
use serde_json::json;
use tokio::sync::oneshot;

use super::{
    Msg, Workspace,
    boot::{Start, StartMemory, bring_up},
    network,
};
use crate::{
    activity::Activity,
    api::lifecycle::{WorkspaceStart, WorkspaceStarted},
    handle::WorkspaceHandle,
    ledger::DiskChange,
    phase::{Phase, Want},
    records::{Planned, Record, Role},
    snapshots::{Artifact, DiskLayers, files},
};

/// Pause before a refused restart is tried again.
const RESTART_AGAIN_IN: Duration = Duration::from_millis(500);

impl Workspace {
    /// Makes the machine for the first time; the answer is the boot time in ms.
    pub(super) fn create(&mut self, cx: CallCx, reply: oneshot::Sender<Result<u64, ToolError>>) {
        let (workspace, plan) = (self.handle.clone(), self.ledger.plan.clone());
        let fork = plan.fork.as_ref();
        let memory =
            fork.and_then(|fork| Some(StartMemory::Copy(fork.snapshot, fork.memory.clone()?)));
        let start = Start { memory, planned: true, ..self.start_point() };
        let span = cx.span.clone();
        let work = async move {
            let made = cx.guard(bring_up(&workspace, &plan, start, &cx)).await;
            let outcome = match made {
                Ok(up) => {
                    fault_point!("create.before_created");
                    let boot_time_ms = up.boot_time_ms;
                    let kind = match plan.pool.as_ref().map(|pooled| pooled.role) {
                        None => "workspace.created",
                        Some(Role::Member) => "pool.made",
                        Some(Role::Template) => "pool.template_booted",
                    };
                    let event = (kind, json!({ "name": plan.name, "boot_time_ms": boot_time_ms }));
                    let records = vec![up.record(), Record::Created { boot_time_ms }];
                    match workspace.commit(records, Some(event)).await {
                        Ok(()) => {
                            settle(&workspace, Phase::Running, None).await;
                            Ok(boot_time_ms)
                        }
                        Err(error) => Err(error),
                    }
                }
                Err(error) => Err(error),
            };
            fault_point!("create.after_created");
            if let Err(error) = &outcome {
                fail_creation(&workspace, &plan, error).await;
            }
            let _caller_gone = reply.send(outcome);
        };
        let _detached = self.ops.spawn(tracing::Instrument::instrument(work, span));
    }

    /// # Errors
    /// `daemon_stopping`.
    pub(crate) fn may_start(&self) -> Result<(), ToolError> {
        self.handle.shared.may_start()
    }

    /// `workspace_start`.
    ///
    /// # Errors
    /// When the workspace runs or other work must end first; `daemon_stopping`.
    pub(crate) fn start_again(
        &mut self,
        cx: &CallCx,
        input: WorkspaceStart,
    ) -> Result<Reply<WorkspaceStarted>, ToolError> {
        if self.phase == Phase::Crashed && self.ledger.parked.is_some() {
            // The next wake ends what a failed wake left.
            self.set_phase(Phase::Parked);
        }
        let sleeps = self.phase == Phase::Parked || self.activity == Activity::Waking;
        if sleeps && !input.from_disk {
            return self.start_parked(&input);
        }
        self.start_from_disk(cx, input)
    }

    fn start_from_disk(
        &mut self,
        cx: &CallCx,
        input: WorkspaceStart,
    ) -> Result<Reply<WorkspaceStarted>, ToolError> {
        let next = self.on(Want::Start)?;
        self.may_start()?;
        let given_up = self.ledger.parked.is_some().then(|| self.give_memory_up(cx));
        let (workspace, mut plan) = (self.handle.clone(), self.ledger.plan.clone());
        let before = std::mem::take(&mut plan.volumes);
        plan.volumes = workspace.shared.attach_again(cx.session, &plan, &before, input.volumes)?;
        self.set_phase(next);
        let (start, change, cx) = (self.start_point(), self.ledger.change.clone(), cx.clone());
        Ok(Reply::later(async move {
            if let Some(given_up) = given_up
                && let Err(error) = given_up.await
            {
                settle(&workspace, Phase::Parked, None).await;
                return Err(error);
            }
            let started = async {
                set_volumes(&workspace, &plan, &before).await?;
                bring_up_again(&workspace, &plan, start, change, &cx).await
            };
            match cx.guard(started).await {
                Ok(boot_time_ms) => {
                    workspace.publish(
                        "workspace.started",
                        json!({ "name": plan.name, "boot_time_ms": boot_time_ms }),
                    );
                    settle(&workspace, Phase::Running, None).await;
                    Ok(WorkspaceStarted {
                        workspace_id: plan.id,
                        name: plan.name.to_string(),
                        state: Phase::Running,
                        ip: workspace.shared.ip(plan.id),
                        boot_time_ms,
                    })
                }
                Err(error) => {
                    fail_start(&workspace, &plan, &error).await;
                    Err(error)
                }
            }
        }))
    }

    /// Restarts a crashed machine, as the policy says.
    pub(super) fn restart_due(&mut self) {
        // A stopping daemon leaves the workspace crashed.
        if self.phase.on(Want::Restart).is_err() || self.may_start().is_err() {
            return;
        }
        let Ok(next) = self.on(Want::Restart) else {
            // A snapshot that the crash cut short is still being settled.
            let workspace = self.handle.clone();
            let _detached = self.me.workers.spawn(async move {
                tokio::time::sleep(RESTART_AGAIN_IN).await;
                let _gone = workspace.actor.send(Msg::RestartDue);
            });
            return;
        };
        self.set_phase(next);
        let (workspace, plan) = (self.handle.clone(), self.ledger.plan.clone());
        let (start, change) = (self.start_point(), self.ledger.change.clone());
        let cx = internal_cx(&workspace);
        let _detached = self.ops.spawn(async move {
            match bring_up_again(&workspace, &plan, start, change, &cx).await {
                Ok(boot_time_ms) => {
                    workspace.publish(
                        "workspace.restarted",
                        json!({ "name": plan.name, "boot_time_ms": boot_time_ms }),
                    );
                    settle(&workspace, Phase::Running, None).await;
                }
                Err(error) => fail_start(&workspace, &plan, &error).await,
            }
        });
    }
}

impl Workspace {
    /// Start from the workspace's own disk, without memory.
    pub(super) fn start_point(&self) -> Start {
        let (base, disk) = (self.ledger.base.clone(), self.ledger.disk.clone());
        Start { base, disk, memory: None, planned: false }
    }
}

/// Records the workspace's volumes, where they changed.
async fn set_volumes(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    before: &[AttachedVolume],
) -> Result<(), ToolError> {
    if plan.volumes == before {
        workspace.shared.volumes.set(plan.id, before);
        return Ok(());
    }
    // Until the record is durable, the old and the new volumes both count as in use.
    workspace.note(Record::VolumesSet { volumes: plan.volumes.clone() }).await?;
    workspace.shared.volumes.set(plan.id, &plan.volumes);
    fault_point!("start.after_volumes");
    Ok(())
}

/// A context for work that no client asked for.
pub(super) fn internal_cx(workspace: &WorkspaceHandle) -> CallCx {
    let patience = Duration::from_secs(workspace.shared.options.boot_timeout_secs * 2);
    let span = tracing::info_span!("recover", workspace = %workspace.id);
    CallCx::internal(hivekeep_kernel::SessionId::new(), patience, Default::default(), span)
}

pub(super) async fn settle(workspace: &WorkspaceHandle, phase: Phase, reason: Option<String>) {
    // An actor that is gone derives the phase from its records when it returns.
    let _gone = workspace.actor.send(Msg::Settled(phase, reason));
}

/// Checks that a disk's files exist: a lost disk must not be begun anew unnoticed, as after a
/// restore of the journal alone. The top may be missing: a start begins it.
async fn disk_is_there(workspace: &WorkspaceHandle, disk: &DiskLayers) -> Result<(), ToolError> {
    let frozen =
        disk.layers.iter().map(|layer| Artifact::Layer(*layer).path(&workspace.shared.folders));
    let own = std::iter::once(super::take_down::folders(workspace).disk_dir);
    files::there(own.chain(frozen).collect()).await
}

/// Starts the machine again, after its first start; the answer is the boot time in ms.
pub(super) async fn bring_up_again(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    mut start: Start,
    change: Option<DiskChange>,
    cx: &CallCx,
) -> Result<u64, ToolError> {
    disk_is_there(workspace, &start.disk).await?;
    // A recovery or a stop that failed may have left the recorded machine alive;
    // two machines must never write one disk.
    super::take_down::kill_machine(workspace, plan).await?;
    if let Some(change) = change {
        super::rewind::settle_change(workspace, plan, &change, &start.disk, None).await?;
        change.apply_to(&mut start.disk);
    }
    let up = bring_up(workspace, plan, start, cx).await?;
    workspace.note(up.record()).await?;
    Ok(up.boot_time_ms)
}

/// Undoes a creation that failed, and keeps its logs.
pub(super) async fn fail_creation(workspace: &WorkspaceHandle, plan: &Planned, error: &ToolError) {
    if let Err(left) = super::take_down::remove_machine(workspace, plan, LogsOnDiscard::Keep).await
    {
        // Not recorded as failed: the next start of the daemon undoes the creation again.
        tracing::error!(workspace = %workspace.id, %left, "a failed creation could not be undone");
        return settle(workspace, Phase::Crashed, Some(left.to_text())).await;
    }
    network::leave(workspace).await;
    workspace.shared.volumes.set(workspace.id, &[]);
    let record =
        Record::CreateFailed { code: error.code.to_string(), message: error.message.clone() };
    let kind = if plan.pool.is_none() { "workspace.create_failed" } else { "pool.failed" };
    let event = (kind, json!({ "name": plan.name, "error": error.code }));
    if let Err(error) = workspace.commit(vec![record], Some(event)).await {
        tracing::error!(workspace = %workspace.id, %error, "a failed creation could not be recorded");
    }
    if let Some(owner) = plan.holder() {
        workspace.shared.daemon.sessions.release(owner, plan.spec.resources());
    }
    workspace.shared.directory.release(plan);
    settle(workspace, Phase::Failed, Some(error.to_text())).await;
}

pub(super) async fn fail_start(workspace: &WorkspaceHandle, plan: &Planned, error: &ToolError) {
    let reason = error.to_text();
    if let Err(left) = super::take_down::kill_machine(workspace, plan).await {
        tracing::error!(workspace = %workspace.id, %left, "a failed start could not be undone");
        // Not recorded as crashed: a later start finds the machine by its record.
        workspace
            .publish("workspace.start_failed", json!({ "name": plan.name, "error": error.code }));
        let reason = format!("{reason}; and it could not be undone: {left}");
        return settle(workspace, Phase::Crashed, Some(reason)).await;
    }
    let record = Record::Crashed { at: chrono::Utc::now(), reason: reason.clone() };
    let event = ("workspace.start_failed", json!({ "name": plan.name, "error": error.code }));
    if let Err(error) = workspace.commit(vec![record], Some(event)).await {
        tracing::error!(workspace = %workspace.id, %error, "a failed start could not be recorded");
    }
    settle(workspace, Phase::Crashed, Some(reason)).await;
}
