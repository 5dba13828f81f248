//! `snapshot` with action `create`.

use std::{path::PathBuf, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{CallCx, Layer, LayerId, Reply, SnapshotId, ToolError, fault_point};
use hivekeep_link::{CallTerms, Link};
use hivekeep_machine::{Isolation, MachineHandle, SaveRequest};
use hivekeep_protocol::{Quiesce, Thaw};
use serde_json::json;

use crate::{
    activity::Activity,
    codes,
    handle::WorkspaceHandle,
    link_state::LinkState,
    machine::{boot::memory_folder, bring_up, identity::has_no_volumes, images::images, take_down},
    messages::WorkMsg,
    phase::{Phase, Want, no_snapshots},
    records::{Planned, Record},
    snapshot::api::SnapshotResult,
    snapshots::{Artifact, DiskLayers, MadeSnapshot, Making, SnapshotMemory, SnapshotNode, files},
    state::Workspace,
};

/// Longest name of a snapshot.
const MAX_NAME: usize = 128;

/// Most frozen layers of a disk. Each is a file that a machine has open and looks through to read
/// what was never written above it. Deletions leave layers behind until the next stop.
const MAX_LAYERS: usize = 100;
/// Time for the guest to write its cache to its disk.
const SYNC_PATIENCE: Duration = Duration::from_secs(60);
/// Longest time that the guest's writes are held back.
const MAX_FREEZE: Duration = Duration::from_secs(30);
/// Time for the guest to answer a thaw.
const THAW_PATIENCE: Duration = Duration::from_secs(5);

/// `snapshot` with action `create`.
///
/// # Errors
/// When the name is taken, the workspace is busy, or it has no memory to include.
pub(super) fn snapshot_create(
    state: &mut Workspace,
    cx: &CallCx,
    name: String,
    include_memory: bool,
) -> Result<Reply<SnapshotResult>, ToolError> {
    let making = plan_snapshot(state, name, include_memory)?;
    // A machine that crashed left what it had written, as a power cut does.
    let disk_synced = matches!(state.status.phase, Phase::Running | Phase::Stopped);
    let (workspace, plan, cx) = (state.handle.clone(), state.ledger.plan.clone(), cx.clone());
    let volumes: Vec<_> = plan.volumes.iter().map(|one| one.volume.to_string()).collect();
    state.status.activity = Activity::Snapshotting;
    let made = state.to_its_end(async move {
        let made = make(&workspace, &plan, making, &cx).await;
        let _actor_gone = workspace.actor.send(WorkMsg::Finished(Activity::Snapshotting).into());
        made
    });
    Ok(Reply::later(async move {
        let MadeSnapshot { node, pause_ms } = made.await?;
        Ok(SnapshotResult {
            snapshot_id: Some(node.id),
            name: Some(node.name),
            has_memory: Some(node.memory.is_some()),
            memory_bytes: node.memory.map(|memory| memory.bytes),
            created_at: Some(node.at),
            disk_synced: Some(disk_synced),
            pause_ms,
            volumes_left_out: (!volumes.is_empty()).then_some(volumes),
            ..Default::default()
        })
    }))
}

pub(super) fn plan_snapshot(
    state: &mut Workspace,
    name: String,
    include_memory: bool,
) -> Result<Making, ToolError> {
    let want = Want::Snapshot { memory: include_memory };
    state.situation().undisturbed(want)?;
    check_name(&name)?;
    may_snapshot(state, &name, include_memory)?;
    let live = matches!(state.status.phase, Phase::Running | Phase::Paused);
    Ok(making(state, name, include_memory, live))
}

/// Plan of a snapshot made now; with `live`, of a machine that runs or is paused.
pub(crate) fn making(state: &Workspace, name: String, include_memory: bool, live: bool) -> Making {
    let plan = &state.ledger.plan;
    let top = state.ledger.disk.top;
    let handle = state.ledger.handle().filter(|_| live).cloned();
    let node = SnapshotNode {
        id: SnapshotId::new(),
        name,
        parent: state.ledger.snapshots.at,
        layers: Vec::new(),
        memory: include_memory.then(|| SnapshotMemory { bytes: 0, token: plan.token.clone() }),
        jobs: state.ledger.jobs.clone(),
        at: Utc::now(),
        by_backup: false,
    };
    Making {
        node,
        frozen: top.unwrap_or_else(LayerId::new),
        top: LayerId::new(),
        disk: state.ledger.disk.clone(),
        base: state.ledger.base.clone(),
        first: top.is_none().then(|| take_down::folders(&state.handle).disk()),
        machine: handle.map(|handle| (handle, state.link.now())),
        paused: state.status.phase == Phase::Paused,
    }
}

fn may_snapshot(state: &Workspace, name: &str, include_memory: bool) -> Result<(), ToolError> {
    if state.ledger.plan.spec.isolation != Isolation::Vm {
        return Err(ToolError::new(
            Layer::Machine,
            codes::SNAPSHOT_UNSUPPORTED,
            "a sandbox's disk is a folder of the host, which cannot be frozen",
        )
        .next("make the workspace with isolation `vm`"));
    }
    if let Some(taken) = state.ledger.snapshots.find(name) {
        return Err(ToolError::new(
            Layer::Actor,
            hivekeep_kernel::codes::SNAPSHOT_EXISTS,
            format!("a snapshot `{name}` exists"),
        )
        .next("choose another name, or delete that one first")
        .detail("snapshot_id", taken.id.to_string()));
    }
    let most = state.handle.shared.options.max_snapshots_per_workspace;
    if state.ledger.snapshots.len() >= most {
        return Err(ToolError::new(
            Layer::Quota,
            hivekeep_kernel::codes::TOO_MANY_SNAPSHOTS,
            format!("the workspace has its {most} snapshots"),
        )
        .next("delete some, or raise workspace.max_snapshots_per_workspace")
        .detail("max_snapshots_per_workspace", most));
    }
    if state.ledger.disk.layers.len() >= MAX_LAYERS {
        let message = format!("the workspace's disk has {MAX_LAYERS} layers");
        return Err(ToolError::new(Layer::Quota, codes::TOO_MANY_LAYERS, message)
            .next("call workspace_stop: layers that deleted snapshots left are merged then")
            .detail("max_layers", MAX_LAYERS));
    }
    if include_memory {
        has_no_volumes(
            &state.ledger.plan,
            "a machine with volumes has no snapshot with memory: QEMU cannot save its devices",
        )?;
    }
    state.status.phase.on(Want::Snapshot { memory: include_memory }).map(drop)
}

fn check_name(name: &str) -> Result<(), ToolError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    Err(ToolError::invalid("name must be 1 to 128 of A-Z, a-z, 0-9, ., _ and -"))
}

/// Makes the snapshot; on failure the workspace goes on as before.
pub(crate) async fn make(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    making: Making,
    cx: &CallCx,
) -> Result<MadeSnapshot, ToolError> {
    let Making { mut node, frozen, top, first, disk, base, machine, paused } = making;
    workspace.shared.daemon.room.admit(&workspace.shared.folders.layers)?;
    let wanted = Record::SnapshotWanted { node: Box::new(node.clone()), frozen, top, paused };
    workspace.note(wanted).await?;
    fault_point!("snapshot.after_intent");
    let layer = |layer| Artifact::Layer(layer).path(&workspace.shared.folders);
    let saved = async {
        if let Some(first) = &first {
            files::link(first.clone(), layer(frozen)).await?;
        }
        // A top that no start has begun yet is part of this snapshot all the same.
        files::begin(layer(frozen), plan.spec.disk_gb).await?;
        let Some((handle, link_state)) = &machine else { return Ok((None, None)) };
        save(
            workspace,
            plan,
            handle,
            link_state,
            Saving { node: &node, disk: &disk, base, top, paused },
            cx,
        )
        .await
    };
    let outcome: Result<_, ToolError> = saved.await;
    fault_point!("snapshot.after_save");
    let (memory_bytes, pause_ms) = match outcome {
        Ok(saved) => saved,
        Err(error) => {
            let handle = machine.as_ref().map(|(handle, _)| handle);
            let top = layer(top);
            let left = bring_up::settle_failed(workspace, plan, &disk, top, paused, handle).await;
            return Err(match left {
                Ok(()) => error,
                Err(left) => error.detail("not_settled", left.to_text()),
            });
        }
    };
    let has_memory = node.memory.is_some();
    let event = (
        "snapshot.created",
        json!({ "snapshot": node.name, "has_memory": has_memory, "pause_ms": pause_ms }),
    );
    workspace.commit(vec![Record::SnapshotMade { memory_bytes }], Some(event)).await?;
    fault_point!("snapshot.after_made");
    if let Some(first) = first {
        files::unlink(first).await;
    }
    if let (Some(memory), Some(bytes)) = (&mut node.memory, memory_bytes) {
        memory.bytes = bytes;
    }
    Ok(MadeSnapshot { node, pause_ms })
}

struct Saving<'m> {
    node: &'m SnapshotNode,
    disk: &'m DiskLayers,
    base: Option<PathBuf>,
    top: LayerId,
    paused: bool,
}

/// Saves a machine that runs or is paused; returns the bytes of its memory and the pause in ms.
async fn save(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    handle: &MachineHandle,
    link_state: &LinkState,
    saving: Saving<'_>,
    cx: &CallCx,
) -> Result<(Option<u64>, Option<u64>), ToolError> {
    let Saving { node, disk, base, top, paused } = saving;
    let driver = workspace.shared.driver(plan.spec.isolation)?;
    let snapshots = driver.snapshots().ok_or_else(no_snapshots)?;
    let with_memory = node.memory.is_some();
    let memory_into = with_memory.then(|| memory_folder(workspace, node.id));
    let mut own = take_down::machine_plan(workspace, plan)?;
    own.disk = take_down::disk_files(workspace, disk);
    own.images = images(workspace, plan, base, cx).await?.0;
    let new_top = Artifact::Layer(top).path(&workspace.shared.folders);
    cx.progress.report(0.0, Some(2.0), "the guest writes its cache to its disk");
    // A paused machine keeps its cache: its memory has it, and its disk alone is as after a power
    // cut, which `disk_synced` says.
    let quiet = match paused {
        true => None,
        false => Some(Quiet::begin(link_state, (!with_memory).then_some(MAX_FREEZE), cx).await?),
    };
    cx.progress.report(1.0, Some(2.0), "saving");
    let saved = snapshots.save(handle, &own, &SaveRequest { new_top, memory_into }).await;
    let quieted = match quiet {
        Some(quiet) => quiet.end().await,
        None => Ok(()),
    };
    let saved = saved?;
    quieted?;
    cx.progress.report(2.0, Some(2.0), "saved");
    Ok((saved.memory.map(|memory| memory.ram_bytes), Some(saved.pause_ms)))
}

/// A guest whose disk holds all that was written.
pub(super) struct Quiet {
    link: Link,
    frozen_for: Option<(Duration, tokio::time::Instant)>,
}

impl Quiet {
    /// Syncs, and holds back writes for at most `freeze`.
    pub(crate) async fn begin(
        link_state: &LinkState,
        freeze: Option<Duration>,
        cx: &CallCx,
    ) -> Result<Self, ToolError> {
        let (LinkState::Up(link) | LinkState::Unresponsive(link)) = link_state else {
            let message = format!("the guest cannot be reached: {}", link_state.word());
            return Err(ToolError::new(Layer::Link, codes::GUEST_UNREACHABLE, message).retryable());
        };
        let freeze_ms = freeze.and_then(|freeze| u32::try_from(freeze.as_millis()).ok());
        let wait = CallTerms::at_most(SYNC_PATIENCE.min(cx.remaining()));
        let quiesced =
            link.ask(Quiesce { freeze_ms }, wait).await.map_err(hivekeep_link::link_error)?;
        if quiesced.frozen != freeze.is_some() {
            return Err(ToolError::new(
                Layer::Guest,
                codes::GUEST_NOT_FROZEN,
                "the guest's root file system could not be frozen",
            )
            .next("workspace_logs shows the console; a snapshot with memory needs no freezing"));
        }
        let frozen_for = freeze.map(|freeze| (freeze, tokio::time::Instant::now()));
        Ok(Self { link: link.clone(), frozen_for })
    }

    /// Lets writes go on. A guest that cannot be reached thaws by itself.
    ///
    /// # Errors
    /// `snapshot_torn` when the guest may have written meanwhile.
    pub(crate) async fn end(self) -> Result<(), ToolError> {
        let Some((freeze, since)) = self.frozen_for else { return Ok(()) };
        let held = since.elapsed() < freeze;
        if let Err(error) = self.link.ask(Thaw, CallTerms::at_most(THAW_PATIENCE)).await {
            tracing::warn!(%error, "a guest could not be told to thaw; it does so by itself");
        }
        if held {
            return Ok(());
        }
        Err(ToolError::new(
            Layer::Machine,
            codes::SNAPSHOT_TORN,
            "the guest's disk was not quiet for as long as saving took",
        )
        .next("try again when the host is less busy, or use include_memory")
        .retryable())
    }
}
