//! The machine's process as an actor: its end is a message to the workspace.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{Address, Entity, Fault, Me};

use crate::{
    driver::{Driver, MachineHandle},
    workspace,
};

/// How often the machine's memory on the host is measured.
const MEASURE_EVERY: Duration = Duration::from_secs(5);

/// What an incarnation is made from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) handle: MachineHandle,
    pub(crate) workspace: Address<workspace::Msg>,
}

/// A machine that runs. It is not told anything: it watches.
pub(crate) struct Machine;

impl Entity for Machine {
    type Msg = ();
    type Seed = Seed;

    async fn start(seed: Seed, me: Me<()>) -> Result<Self, Fault> {
        let Seed { driver, handle, workspace } = seed;
        let this = me.clone();
        let (meter, metered, probe) = (driver.clone(), handle.clone(), me.address.probe().clone());
        let _detached = me.workers.spawn(async move {
            while let Ok(memory) = meter.memory(&metered).await {
                probe.set_machine_memory(memory.rss_bytes);
                tokio::time::sleep(MEASURE_EVERY).await;
            }
        });
        let _detached = me.workers.spawn(async move {
            let exit = driver.watch(&handle).await;
            let _workspace_gone = workspace.send(workspace::Msg::Exited(exit));
            this.stop("the machine's process ended");
        });
        Ok(Self)
    }

    fn handle(&mut self, (): ()) -> Result<(), Fault> {
        Ok(())
    }
}
