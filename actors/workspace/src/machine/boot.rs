//! A boot with one retry: from a plan to a guest that answers, one recorded step after the other.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use hivekeep_kernel::{CallCx, Layer, SnapshotId, ToolError, fault_point};
use hivekeep_link::{Link, LinkToken};
use hivekeep_machine::{
    Driver, Isolation, MachineHandle, MachinePlan, ParkRequest, SnapshotFolder,
};
use serde_json::json;
use tokio::sync::watch;

use crate::{
    codes,
    handle::WorkspaceHandle,
    ledger::Ledger,
    link_state::LinkState,
    machine::{
        identity,
        images::{DiskBase, images},
        take_down,
    },
    messages::{LinkMsg, MachineMsg},
    network::lease,
    phase::no_snapshots,
    records::{ParkPlan, Planned, Record},
    snapshots::{Artifact, DiskLayers},
};

/// Most of the console that an error shows, in characters.
const CONSOLE_CHARS: usize = 1_000;

/// Starting point of a boot: disk and memory.
pub(crate) struct Start {
    /// The base of the disk, once it is made.
    pub(crate) base: Option<PathBuf>,
    /// Layers over the base.
    pub(crate) disk: DiskLayers,
    /// Memory to go on from, if any.
    pub(crate) memory: Option<StartMemory>,
    /// Whether the workspace's plan is the recorded intent of this start.
    pub(crate) planned: bool,
}

impl Start {
    /// Start from the workspace's own disk, without memory.
    pub(crate) fn of(ledger: &Ledger) -> Self {
        let (base, disk) = (ledger.base.clone(), ledger.disk.clone());
        Self { base, disk, memory: None, planned: false }
    }
}

/// Memory that a machine begins with.
#[derive(Clone)]
pub(crate) enum StartMemory {
    /// Memory of a snapshot, and the link token in it; the guest gets its own identity afterwards.
    Copy(SnapshotId, LinkToken),
    /// The workspace's own memory, as it was parked.
    Own(ParkPlan),
}

/// A machine that is up; the caller has yet to record it.
pub(crate) struct Up {
    pub(crate) boot_time_ms: u64,
}

impl Up {
    pub(crate) fn record(&self) -> Record {
        Record::Up { boot_time_ms: self.boot_time_ms, at: chrono::Utc::now() }
    }
}

/// Starts the machine, a second time when its kernel dies in the boot. Legal while no machine runs.
///
/// QEMU's emulator was seen to lose a race with a guest's kernel that patches its own code, once in
/// hundreds or thousands of boots
/// (<http://www.uwsg.indiana.edu/hypermail/linux/kernel/2307.0/03869.html>); nothing has run in the
/// machine by then. A machine that starts from memory has no boot to repeat.
pub(crate) async fn bring_up(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    mut start: Start,
    cx: &CallCx,
) -> Result<Up, ToolError> {
    let begun = Instant::now();
    let error = match boot(workspace, plan, &mut start, cx, begun).await {
        Err(BootError::Ended(error)) if plan.spec.isolation == Isolation::Vm => error,
        outcome => return outcome.map_err(ToolError::from),
    };
    if start.memory.is_some() || workspace.shared.may_start().is_err() {
        return Err(error);
    }
    tracing::warn!(workspace = %workspace.id, %error, "the machine ended in its boot: again");
    // Above the last reported step: progress numbers must ascend.
    cx.progress.report(2.5, Some(4.0), "the machine ended in its boot; starting it again");
    let console = error.details.get("console_end").and_then(|text| text.as_str());
    let console = console.map(|text| (workspace.shared.daemon.redact)(text));
    let data = json!({ "name": plan.name, "reason": error.message, "console_end": console });
    workspace.publish("workspace.boot_repeated", data);
    take_down::kill_machine(workspace, plan).await?;
    if start.planned {
        // The plan is the intent of one machine only.
        workspace.note(Record::StartWanted).await?;
    }
    boot(workspace, plan, &mut start, cx, begun).await.map_err(ToolError::from)
}

/// Starts the machine and configures its guest by the plan. Keeps the disk's base in `start`, for
/// another attempt.
async fn boot(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    start: &mut Start,
    cx: &CallCx,
    begun: Instant,
) -> Result<Up, BootError> {
    let step = |n: u32, what: &str| cx.progress.report(n.into(), Some(4.0), what);
    let driver = workspace.shared.driver(plan.spec.isolation)?;

    step(0, "preparing the disk");
    let mut machine = take_down::machine_plan(workspace, plan)?;
    let (images, made) = images(workspace, plan, start.base.clone(), cx).await?;
    machine.images = images;
    machine.disk = take_down::disk_files(workspace, &start.disk);
    fault_point!("start.before_prepare");
    let prepared = async { driver.prepare(&machine).await.map_err(ToolError::from) };
    let mounted = workspace.shared.mounted(plan);
    let wakes = matches!(start.memory, Some(StartMemory::Own(_)));
    let ((lease, nic), mounts, ()) =
        tokio::try_join!(lease::interface(workspace, plan, wakes), mounted, prepared)?;
    (machine.nic, machine.volumes) = (nic, mounts);
    fault_point!("start.after_prepare");

    step(1, "starting the machine");
    // The plan is the intent of the first start.
    if !start.planned {
        workspace.note(Record::StartWanted).await?;
    }
    fault_point!("start.after_intent");
    let token = match &start.memory {
        Some(StartMemory::Copy(_, token)) => Some(token.clone()),
        Some(StartMemory::Own(_)) | None => None,
    };
    let memory = start.memory.as_ref();
    let handle = launch(workspace, driver.as_ref(), &machine, memory, made.clone()).await?;
    start.base = made.map(|made| made.base).or(start.base.take());
    fault_point!("start.after_launched");

    step(2, "waiting for the guest");
    let patience = Duration::from_secs(10);
    let (copy, stands) = (token.is_some(), wakes || token.is_some());
    let attached = |reply| MachineMsg::Attach(handle.clone(), token, reply).into();
    let mut link_state = workspace.actor.ask(patience, attached).await.map_err(ToolError::from)?;
    if wakes {
        // From here on the disk changes, and the parked memory no longer matches it.
        workspace.note(Record::Woken).await?;
        fault_point!("wake.after_woken");
    }
    if stands {
        let snapshots = driver.snapshots().ok_or_else(no_snapshots)?;
        snapshots.resume(&handle).await.map_err(ToolError::from)?;
    }
    let boot = Duration::from_secs(workspace.shared.options.boot_timeout_secs);
    let settled = async { Ok(lease::settled(workspace, lease, &handle).await?) };
    let linked = first_link(workspace, driver.as_ref(), &mut link_state, boot);
    let (link, lease) = tokio::try_join!(linked, settled)?;

    step(3, "configuring the guest");
    let itself = async {
        if copy || (plan.fork.is_some() && start.planned) {
            identity::reidentify(&link, plan).await?;
            workspace.actor.send(LinkMsg::OwnToken.into())?;
        }
        if !copy {
            let grow = plan.spec.isolation == Isolation::Vm && !stands;
            identity::configure(&link, plan, grow).await?;
        }
        identity::mount(&link, plan).await
    };
    let unplugged = stands.then_some((driver.as_ref(), handle.as_ref()));
    tokio::try_join!(itself, lease::configure(lease, &link, unplugged))?;
    if wakes {
        lease::stays_awake(workspace, driver.as_ref(), &handle).await?;
    }
    let boot_time_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    step(4, "running");
    Ok(Up { boot_time_ms })
}

/// Starts the machine's process and records it, with the base of a disk that is made with it.
async fn launch(
    workspace: &WorkspaceHandle,
    driver: &dyn Driver,
    machine: &MachinePlan,
    memory: Option<&StartMemory>,
    made: Option<DiskBase>,
) -> Result<Box<MachineHandle>, ToolError> {
    let launched = match memory {
        None => driver.launch(machine).await?,
        Some(memory) => {
            let snapshots = driver.snapshots().ok_or_else(no_snapshots)?;
            match memory {
                StartMemory::Copy(snapshot, _) => {
                    snapshots.launch_from(machine, &memory_folder(workspace, *snapshot)).await?
                }
                StartMemory::Own(park_plan) => {
                    snapshots.wake(machine, &park_request(workspace, *park_plan)).await?
                }
            }
        }
    };
    fault_point!("start.after_launch");
    let handle = Box::new(launched.handle);
    // Sent at once: whoever gives the start up from here on has to end the machine, also before the
    // actor has its record.
    let _gone = workspace.actor.send(MachineMsg::Launched(handle.clone()).into());
    let made = made.map(|DiskBase { base, defaults }| Record::DiskMade { base, defaults });
    let record = Record::Launched { handle: handle.clone(), limits: launched.limits };
    if let Err(error) = workspace.commit(made.into_iter().chain([record]).collect(), None).await {
        // No record names the machine, so nobody else would end it before the next start.
        driver.kill(&handle).await?;
        return Err(error);
    }
    Ok(handle)
}

/// Folder of a snapshot's memory.
pub(crate) fn memory_folder(workspace: &WorkspaceHandle, id: SnapshotId) -> SnapshotFolder {
    SnapshotFolder::new(Artifact::Memory(id).path(&workspace.shared.folders))
}

/// Folders of a park's memory and of the memory it is based on.
pub(crate) fn park_request(workspace: &WorkspaceHandle, park_plan: ParkPlan) -> ParkRequest {
    ParkRequest {
        into: memory_folder(workspace, park_plan.park),
        base: park_plan.base.map(|base| memory_folder(workspace, base)),
    }
}

/// A boot whose guest did not answer.
pub(super) enum BootError {
    /// The machine ended by itself before its guest had answered.
    Ended(ToolError),
    /// Any other failure.
    Other(ToolError),
}

impl From<ToolError> for BootError {
    fn from(error: ToolError) -> Self {
        Self::Other(error)
    }
}

impl From<BootError> for ToolError {
    fn from(error: BootError) -> Self {
        match error {
            BootError::Ended(error) | BootError::Other(error) => error,
        }
    }
}

/// Waits until the guest answers, for `boot` at most.
///
/// # Errors
/// `boot_failed` and `boot_timeout`, with the end of the guest's console in the details.
async fn first_link(
    workspace: &WorkspaceHandle,
    driver: &dyn Driver,
    link_state: &mut watch::Receiver<LinkState>,
    boot: Duration,
) -> Result<Link, BootError> {
    let decided = link_state.wait_for(|link_state| {
        matches!(
            link_state,
            LinkState::Up(_)
                | LinkState::Refused(_)
                | LinkState::Gone(_)
                | LinkState::Unresponsive(_)
        )
    });
    let mut ended = false;
    let error = match tokio::time::timeout(boot, decided).await {
        Ok(Ok(link_state)) => match &*link_state {
            LinkState::Up(link) | LinkState::Unresponsive(link) => return Ok(link.clone()),
            other => {
                ended = matches!(other, LinkState::Gone(_));
                let message = format!("the guest did not come up: {}", other.word());
                ToolError::new(Layer::Machine, codes::BOOT_FAILED, message)
                    .next("workspace_logs shows the console and the hypervisor's messages")
            }
        },
        Ok(Err(_)) => {
            return Err(ToolError::internal("the workspace's actor ended in the boot").into());
        }
        Err(_) => {
            let message = format!("no answer from the guest within {} s", boot.as_secs());
            ToolError::new(Layer::Machine, codes::BOOT_TIMEOUT, message)
                .next(
                    "workspace_logs shows the console; workspace.boot_timeout_secs sets the limit",
                )
                .retryable()
        }
    };
    let error = match driver.logs(&take_down::folders(workspace)).await {
        Ok(logs) => error.detail("console_end", end(&logs.console)),
        // The failure of the boot is what counts; workspace_logs says why its logs are unreadable.
        Err(_) => error,
    };
    Err(if ended { BootError::Ended(error) } else { BootError::Other(error) })
}

/// The last lines of a console. A guest prints what it likes: clients escape it.
fn end(console: &str) -> String {
    let skipped = console.chars().count().saturating_sub(CONSOLE_CHARS);
    let end: String = console.chars().skip(skipped).collect();
    match end.split_once('\n') {
        Some((_cut, whole)) if skipped > 0 && !whole.is_empty() => whole.to_owned(),
        _ => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_console_is_of_whole_lines_where_it_has_some() {
        assert_eq!(end("booting\nfailed\n"), "booting\nfailed\n");
        let long = format!("{}\nlast\n", "x".repeat(CONSOLE_CHARS));
        assert_eq!(end(&long), "last\n");
        assert_eq!(end(&"é".repeat(2 * CONSOLE_CHARS)).chars().count(), CONSOLE_CHARS);
    }
}
