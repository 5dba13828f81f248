//! Starting a machine: from a plan to a guest that answers, one recorded step after the other.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use hivekeep_image::{ImageName, ImageStore};
use hivekeep_kernel::{CallCx, Layer, Reply, SnapshotId, ToolError, fault_point};
use hivekeep_link::LinkToken;
use hivekeep_machine::{Images, Isolation, LogsOnDiscard, SnapshotFolder};
use serde_json::json;
use tokio::sync::oneshot;

use super::{Msg, Workspace, first_link::first_link, identity, network};
use crate::{
    api::lifecycle::{WorkspaceStart, WorkspaceStarted},
    codes,
    handle::WorkspaceHandle,
    ledger::DiskChange,
    phase::{Phase, Want},
    records::{Planned, Record, Role},
    snapshots::{Artifact, DiskLayers, files},
};

/// When a restart that came at a bad time is tried again.
const RESTART_AGAIN_IN: Duration = Duration::from_millis(500);

impl Workspace {
    /// Makes the machine for the first time; the answer is the boot time in ms.
    pub(super) fn create(&mut self, cx: CallCx, reply: oneshot::Sender<Result<u64, ToolError>>) {
        let (workspace, plan) = (self.handle.clone(), self.ledger.plan.clone());
        let fork = plan.fork.as_ref();
        let memory = fork.and_then(|fork| Some((fork.snapshot, fork.memory.clone()?)));
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
    /// When it runs, or something goes on that must end first; `daemon_stopping`.
    pub(crate) fn start_again(
        &mut self,
        cx: &CallCx,
        _: WorkspaceStart,
    ) -> Result<Reply<WorkspaceStarted>, ToolError> {
        let next = self.on(Want::Start)?;
        self.may_start()?;
        self.set_phase(next);
        let (workspace, plan, cx) = (self.handle.clone(), self.ledger.plan.clone(), cx.clone());
        let (start, change) = (self.start_point(), self.ledger.change.clone());
        Ok(Reply::later(async move {
            match cx.guard(bring_up_again(&workspace, &plan, start, change, &cx)).await {
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

    /// A crashed machine's restart is due by policy.
    pub(super) fn restart_due(&mut self) {
        // A daemon that stops leaves it crashed.
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
    /// Its own disk, from nothing.
    pub(super) fn start_point(&self) -> Start {
        let (base, disk) = (self.ledger.base.clone(), self.ledger.disk.clone());
        Start { base, disk, memory: None, planned: false }
    }
}

/// Where a start begins.
pub(super) struct Start {
    /// The base of the disk, once it is made.
    pub(super) base: Option<PathBuf>,
    /// The layers over it.
    pub(super) disk: DiskLayers,
    /// The snapshot whose memory it goes on from, and the link token in there.
    pub(super) memory: Option<(SnapshotId, LinkToken)>,
    /// The workspace's plan is the intent of this start.
    pub(super) planned: bool,
}

/// A context for work that no client asked for.
pub(super) fn internal_cx(workspace: &WorkspaceHandle) -> CallCx {
    let patience = Duration::from_secs(workspace.shared.options.boot_timeout_secs * 2);
    CallCx {
        id: hivekeep_kernel::CallId::new(),
        session: hivekeep_kernel::SessionId::new(),
        tool: "internal",
        door: hivekeep_kernel::Door::Internal,
        deadline: tokio::time::Instant::now() + patience,
        cancel: Default::default(),
        progress: Default::default(),
        receipt: Default::default(),
        slot: Default::default(),
        reserved: None,
        span: tracing::info_span!("recover", workspace = %workspace.id),
    }
}

pub(super) async fn settle(workspace: &WorkspaceHandle, phase: Phase, reason: Option<String>) {
    // An actor that is gone derives the phase from its records when it returns.
    let _gone = workspace.actor.send(Msg::Settled(phase, reason));
}

/// A machine that is up; the caller has yet to record it.
pub(super) struct Up {
    pub(super) boot_time_ms: u64,
}

impl Up {
    pub(super) fn record(&self) -> Record {
        Record::Up { boot_time_ms: self.boot_time_ms, at: chrono::Utc::now() }
    }
}

/// What a disk is made of is never begun anew behind its owner's back, as after a restore of the
/// journal alone. The top may be missing: a start begins it.
async fn disk_is_there(workspace: &WorkspaceHandle, disk: &DiskLayers) -> Result<(), ToolError> {
    let frozen =
        disk.layers.iter().map(|layer| Artifact::Layer(*layer).path(&workspace.shared.folders));
    let own = std::iter::once(super::take_down::folders(workspace).disk_dir);
    files::there(own.chain(frozen).collect()).await
}

/// A start after the first.
async fn bring_up_again(
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

/// Legal while no machine runs.
pub(super) async fn bring_up(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    start: Start,
    cx: &CallCx,
) -> Result<Up, ToolError> {
    let begun = Instant::now();
    let step = |n: u32, what: &str| cx.progress.report(n.into(), Some(4.0), what);
    let driver = workspace.shared.driver(plan.spec.isolation)?;

    step(0, "preparing the disk");
    let mut machine = super::take_down::machine_plan(workspace, plan)?;
    let (images, made) = images(workspace, plan, start.base).await?;
    machine.images = images;
    machine.disk = super::take_down::disk_files(workspace, &start.disk);
    fault_point!("start.before_prepare");
    let prepared = async { driver.prepare(&machine).await.map_err(ToolError::from) };
    let ((lease, nic), ()) = tokio::try_join!(network::interface(workspace, plan), prepared)?;
    machine.nic = nic;
    fault_point!("start.after_prepare");

    step(1, "starting the machine");
    // Of the first start the plan is the intent.
    if !start.planned {
        workspace.note(Record::StartWanted).await?;
    }
    fault_point!("start.after_intent");
    let (memory, token) = start.memory.unzip();
    let launched = match memory {
        None => driver.launch(&machine).await?,
        Some(snapshot) => {
            let snapshots = driver.snapshots().ok_or_else(super::snapshot::no_snapshots)?;
            snapshots.launch_from(&machine, &memory_folder(workspace, snapshot)).await?
        }
    };
    fault_point!("start.after_launch");
    let handle = Box::new(launched.handle);
    // At once: whoever gives the start up from here on has to end it, also before its record is
    // known to the actor.
    let _gone = workspace.actor.send(Msg::Launched(handle.clone()));
    let record = Record::Launched { handle: handle.clone(), limits: launched.limits };
    if let Err(error) = workspace.commit(made.into_iter().chain([record]).collect(), None).await {
        // No record names it, so nobody else would end it before the next start.
        driver.kill(&handle).await?;
        return Err(error);
    }
    fault_point!("start.after_launched");

    step(2, "waiting for the guest");
    let patience = Duration::from_secs(10);
    let copy = token.is_some();
    let mut link_state =
        workspace.actor.ask(patience, |reply| Msg::Attach(handle.clone(), token, reply)).await?;
    if copy {
        let snapshots = driver.snapshots().ok_or_else(super::snapshot::no_snapshots)?;
        snapshots.resume(&handle).await?;
    }
    let boot = Duration::from_secs(workspace.shared.options.boot_timeout_secs);
    let settled = network::settled(workspace, lease, &handle);
    let linked = first_link(workspace, driver.as_ref(), &mut link_state, boot);
    let (link, lease) = tokio::try_join!(linked, settled)?;

    step(3, "configuring the guest");
    let itself = async {
        if copy || (plan.fork.is_some() && start.planned) {
            identity::reidentify(&link, plan).await?;
            workspace.actor.send(Msg::OwnToken)?;
        }
        if !copy {
            let grow = plan.spec.isolation == Isolation::Vm;
            identity::configure(&link, plan, grow).await?;
        }
        Ok(())
    };
    let unplugged = copy.then_some((driver.as_ref(), handle.as_ref()));
    tokio::try_join!(itself, network::configure(lease, &link, unplugged))?;
    let boot_time_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    step(4, "running");
    Ok(Up { boot_time_ms })
}

/// Where the memory of a snapshot is.
pub(super) fn memory_folder(workspace: &WorkspaceHandle, id: SnapshotId) -> SnapshotFolder {
    SnapshotFolder::new(Artifact::Memory(id).path(&workspace.shared.folders))
}

/// What to boot from. The first start decides about the base of the disk, which is
/// to be recorded; later ones must find it again, whatever image is current by then.
pub(super) async fn images(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    base: Option<PathBuf>,
) -> Result<(Images, Option<Record>), ToolError> {
    let name: ImageName = plan.spec.image.parse().map_err(|_| unknown_image(&plan.spec.image))?;
    let store = &workspace.shared.images;
    let image = store.resolve(name).await?;
    let first = base.is_none();
    let base = match (base, plan.spec.isolation) {
        (Some(base), _) => find_base(store, base).await?,
        (None, Isolation::Vm) => image.rootfs().to_owned(),
        (None, Isolation::Sandbox) => store.resolve_tree(&image).await?,
    };
    if first && plan.spec.disk_gb < image.min_disk_gb() {
        let (image, least) = (&plan.spec.image, image.min_disk_gb());
        return Err(ToolError::invalid(format!("image {image} needs disk_gb of at least {least}"))
            .detail("least", least));
    }
    let vm = plan.spec.isolation == Isolation::Vm;
    let made = first.then(|| Record::DiskMade { base: base.clone() });
    let images = Images {
        kernel: Some(image.kernel().to_owned()),
        initrd: Some(image.initrd().to_owned()),
        rootfs_ext4: vm.then(|| base.clone()),
        rootfs_tree: (!vm).then_some(base),
    };
    Ok((images, made))
}

/// The base as it is recorded, or the same object in the folder of images that is used now.
async fn find_base(store: &ImageStore, base: PathBuf) -> Result<PathBuf, ToolError> {
    let there = async |path: &PathBuf| tokio::fs::try_exists(path).await.unwrap_or(false);
    if there(&base).await {
        return Ok(base);
    }
    if let Some(same) = store.same_object(&base)
        && there(&same).await
    {
        return Ok(same);
    }
    let message = format!("the base of the workspace's disk is gone: {}", base.display());
    Err(ToolError::new(Layer::Machine, codes::IMAGE_MISSING, message)
        .next("restore the image directory; the workspace's own data is intact"))
}

pub(crate) fn unknown_image(name: &str) -> ToolError {
    ToolError::not_found(Layer::Machine, codes::IMAGE_UNKNOWN, "image", name)
        .next("`hivekeep image list` shows the images; `hivekeep image build base` makes one")
}

/// Undoes a creation that failed, and keeps its logs.
pub(super) async fn fail_creation(workspace: &WorkspaceHandle, plan: &Planned, error: &ToolError) {
    if let Err(left) = super::take_down::remove_machine(workspace, plan, LogsOnDiscard::Keep).await
    {
        // Not recorded as failed: the next start of the daemon undoes it again.
        tracing::error!(workspace = %workspace.id, %left, "a failed creation could not be undone");
        return settle(workspace, Phase::Crashed, Some(left.to_text())).await;
    }
    network::leave(workspace).await;
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
        // Not recorded as crashed: the record of the machine is what finds it again.
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
