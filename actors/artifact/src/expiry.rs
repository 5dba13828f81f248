//! Durable timer of artifacts: each time it looks, it goes by what their files say.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{Context, Entity, Fault};

use crate::Artifacts;

/// How often expiries are looked for. Times are given in hours, and what has expired is not found
/// before it is removed.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Removes artifacts whose time is over. It is told nothing.
pub(crate) struct ArtifactExpiry;

impl Entity for ArtifactExpiry {
    type Msg = ();
    type Seed = Arc<Artifacts>;

    async fn start(artifacts: Arc<Artifacts>, me: Context<()>) -> Result<Self, Fault> {
        let _detached = me.workers.clone().spawn(async move {
            // Keeps the address: without one the actor would end.
            let _me = me;
            loop {
                artifacts.expire(Utc::now()).await;
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        Ok(Self)
    }

    fn handle(&mut self, (): ()) -> Result<(), Fault> {
        Ok(())
    }
}
