//! Actor of the machine's process: tells the workspace that the process ended, or that the machine stands
//! still for want of room on the host.

pub(crate) mod attach;
pub(crate) mod boot;
pub(crate) mod bring_up;
pub(crate) mod identity;
pub(crate) mod images;
pub(crate) mod link;
pub(crate) mod take_down;

use std::{path::PathBuf, sync::Arc, time::Duration};

use hivekeep_kernel::{Address, Context, Entity, Fault, Room};
use hivekeep_machine::{Driver, MachineHandle};
use tokio::sync::watch;

use crate::{
    link_state::LinkState,
    messages::{MachineMsg, Msg},
};

/// How often the machine's memory on the host is measured.
const MEASURE_EVERY: Duration = Duration::from_secs(5);

/// How often a machine whose guest does not answer is checked for a full disk.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Arguments of one incarnation of the actor.
#[derive(Clone)]
pub(crate) struct Args {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) handle: MachineHandle,
    pub(crate) workspace: Address<Msg>,
    pub(crate) link_state: watch::Receiver<LinkState>,
    pub(crate) room: Room,
    /// Folder of the machine's disk.
    pub(crate) disks: PathBuf,
}

/// A running machine. The actor gets no messages; it only watches.
pub(crate) struct Machine;

impl Entity for Machine {
    type Msg = ();
    type Args = Args;

    async fn start(args: Args, me: Context<()>) -> Result<Self, Fault> {
        let _detached = me.workers.spawn(mind_its_disk(args.clone()));
        let Args { driver, handle, workspace, .. } = args;
        let this = me.clone();
        let (meter, metered, probe) = (driver.clone(), handle.clone(), me.address.probe().clone());
        let _detached = me.workers.spawn(async move {
            while let Ok(usage) = meter.usage(&metered).await {
                probe.set_machine_memory(usage.rss_bytes);
                tokio::time::sleep(MEASURE_EVERY).await;
            }
        });
        let _detached = me.workers.spawn(async move {
            let exit = driver.watch(&handle).await;
            let _workspace_gone = workspace.send(MachineMsg::Exited(exit).into());
            this.stop("the machine's process ended");
        });
        Ok(Self)
    }

    fn handle(&mut self, (): ()) -> Result<(), Fault> {
        Ok(())
    }
}

/// Watches for a full disk: QEMU stops a machine whose write finds no room on the host, and says so when
/// asked. A guest that answers runs, so only silent ones are asked about: QEMU serves one client at a
/// time. The machine is resumed once there is room above the floor.
async fn mind_its_disk(args: Args) {
    let Args { driver, handle, workspace, mut link_state, room, disks } = args;
    let Some(snapshots) = driver.snapshots() else { return };
    let silent = |link_state: &LinkState| !matches!(link_state, LinkState::Up(_));
    while link_state.wait_for(silent).await.is_ok() {
        tokio::time::sleep(LOOK_EVERY).await;
        let answers = !silent(&link_state.borrow());
        if answers || !snapshots.is_disk_full(&handle).await.unwrap_or(false) {
            continue;
        }
        let _workspace_gone = workspace.send(MachineMsg::DiskFull(handle.process).into());
        if room.shortage(&disks).is_some() {
            continue;
        }
        if let Err(error) = snapshots.resume(&handle).await {
            tracing::warn!(machine = %handle.workspace, %error, "a machine does not go on");
        }
    }
}
