//! The root supervisor: the daemon's own actors, then those of its families.

use std::sync::Arc;

use hivekeep_kernel::{
    Address, Backoff, Census, ChildEnd, Children, Context, Entity, Fault, GiveUp, Restart,
    RestartPolicy,
};
use hivekeep_registry::{Registry, RegistryArgs, Sessions, SessionsArgs};
use hivekeep_runtime::Child;
use hivekeep_store::{Journal, StopReason};

/// A journal that stopped ends the daemon; its next start recovers.
const JOURNAL: RestartPolicy = RestartPolicy {
    restart: Restart::Always,
    max_restarts: 0,
    window_secs: 1,
    backoff: Backoff { initial_ms: 0, max_ms: 0 },
    give_up: GiveUp::Escalate,
};
/// Nobody restarts the root but the service manager.
const ROOT: RestartPolicy = RestartPolicy::TEMPORARY;

/// Names of the places, as `hivekeep ps` shows them.
const PATH: &str = "root";

/// Addresses of the root and the daemon's own actors. Made before the actors, so that all can be
/// wired to each other whatever starts first.
#[derive(Clone)]
pub(super) struct Places {
    pub(super) root: Address<()>,
    pub(super) journal: Address<<JournalActor as Entity>::Msg>,
    pub(super) registry: Address<<Registry as Entity>::Msg>,
    pub(super) sessions: Address<<Sessions as Entity>::Msg>,
}

impl Places {
    pub(super) fn new(census: &Census) -> Self {
        let place =
            |name: &'static str, policy| census.probe(&format!("{PATH}/{name}"), name, policy);
        Self {
            root: Address::vacant(census.probe(PATH, "root", ROOT)),
            journal: Address::vacant(place("journal", JOURNAL)),
            registry: Address::vacant(place("registry", RestartPolicy::ESSENTIAL)),
            sessions: Address::vacant(place("sessions", RestartPolicy::ESSENTIAL)),
        }
    }

    /// True for the path of the root or of one of its children.
    pub(super) fn first_rank(&self, path: &str) -> bool {
        path.split('/').count() <= 2
    }
}

/// Start arguments of the children.
#[derive(Clone)]
pub(super) struct Args {
    pub(super) places: Places,
    pub(super) census: Census,
    pub(super) journal: Journal,
    pub(super) registry: RegistryArgs,
    pub(super) sessions: SessionsArgs,
    /// Children that belong to families, in the order of the families.
    pub(super) families: Arc<[Child]>,
}

/// The root supervisor.
pub(super) struct Root(Children);

impl Entity for Root {
    type Msg = ();
    type Args = Args;

    async fn start(args: Args, me: Context<()>) -> Result<Self, Fault> {
        let Args { places, census, journal, registry, sessions, families } = args;
        let mut children = Children::new(PATH, census, me.cell);
        children.start_at::<JournalActor>(&places.journal, journal)?;
        children.start_at::<Registry>(&places.registry, registry)?;
        children.start_at::<Sessions>(&places.sessions, sessions)?;
        families.iter().try_for_each(|child| child.start(&mut children))?;
        Ok(Self(children))
    }

    fn handle(&mut self, (): ()) -> Result<(), Fault> {
        Ok(())
    }

    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        self.0.handle_end(end).map(drop)
    }
}

/// Journal's place in the supervision tree.
///
/// The journal is a thread that no supervisor sees; this actor stands for it.
/// Handles on a journal that stopped refuse everything for good, and the whole
/// tree holds such handles. So its end ends the tree: the daemon exits, and its
/// next start recovers from the disk, which alone knows what was written.
pub(super) struct JournalActor;

impl Entity for JournalActor {
    type Msg = StopReason;
    type Args = Journal;

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
