//! Actor that does one thing again and again, and is told nothing.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use hivekeep_kernel::{Context, Entity, Fault};

/// Work of a [`Periodic`], and the time from its end to its next begin.
#[derive(Clone)]
pub(crate) struct PeriodicWork {
    pub(crate) every: Duration,
    pub(crate) work: Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
}

/// See [`Mounted::periodic`](crate::Mounted::periodic).
pub(crate) struct Periodic;

impl Entity for Periodic {
    type Msg = ();
    type Seed = PeriodicWork;

    async fn start(seed: PeriodicWork, me: Context<()>) -> Result<Self, Fault> {
        let _detached = me.workers.clone().spawn(async move {
            // Keeps the address: without one the actor would end.
            let _me = me;
            loop {
                (seed.work)().await;
                tokio::time::sleep(seed.every).await;
            }
        });
        Ok(Self)
    }

    fn handle(&mut self, (): ()) -> Result<(), Fault> {
        Ok(())
    }
}
