//! Durable timer of volumes: each time it looks, it goes by what the records say.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{Context, Entity, Fault};

use crate::volumes::VolumeService;

/// How often expiries and unused mounts are looked for. Times are given in hours.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Removes volumes whose time is over and unmounts those that nothing uses. It is told nothing.
pub(crate) struct Expiry;

impl Entity for Expiry {
    type Msg = ();
    type Seed = Arc<VolumeService>;

    async fn start(service: Arc<VolumeService>, me: Context<()>) -> Result<Self, Fault> {
        let _detached = me.workers.clone().spawn(async move {
            // Keeps the address: without one the actor would end.
            let _me = me;
            loop {
                service.tend(Utc::now()).await;
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        Ok(Self)
    }

    fn handle(&mut self, (): ()) -> Result<(), Fault> {
        Ok(())
    }
}
