//! Journal's place in the supervision tree.
//!
//! The journal is a thread that no supervisor sees; this actor stands for it.
//! Handles on a journal that stopped refuse everything for good, and the whole
//! tree holds such handles. So its end ends the tree: the daemon exits, and its
//! next start recovers from the disk, which alone knows what was written.

use hivekeep_kernel::{Context, Entity, Fault};
use hivekeep_store::{Journal, StopReason};

/// The actor.
pub(super) struct JournalActor;

impl Entity for JournalActor {
    type Msg = StopReason;
    type Seed = Journal;

    async fn start(journal: Journal, me: Context<StopReason>) -> Result<Self, Fault> {
        let address = me.address.clone();
        let _detached = me.workers.spawn(async move {
            let stopped = journal.stopped().await;
            // Nobody there: the tree is ending already.
            let _ = address.send(stopped);
        });
        Ok(Self)
    }

    fn handle(&mut self, stopped: StopReason) -> Result<(), Fault> {
        match stopped {
            StopReason::Closed => Ok(()),
            StopReason::Poisoned { cause } => {
                Err(Fault::new(format!("the journal stopped: {cause}")))
            }
        }
    }
}
