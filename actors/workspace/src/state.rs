//! State of one workspace's actor, in parts that know nothing of each other, and the steps that all
//! its handlers share.

pub(crate) mod status;
pub(crate) mod waiting;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use hivekeep_kernel::{
    CallCx, Children, Context, Owned, SessionId, ToolError, WorkspaceId, workers::Workers,
};
use hivekeep_link::Link;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use self::{
    status::{LifetimeEnd, WatchedMachine, WorkspaceStatus},
    waiting::Sleeping,
};
use crate::{
    activity::{Activity, Situation},
    handle::WorkspaceHandle,
    job::Jobs,
    ledger::Ledger,
    link_state::GuestLink,
    messages::Msg,
    phase::{MachineProcess, Phase, Want},
    shared::Shared,
    snapshots::{self, Merger},
    tasks::TaskNews,
};

/// Manager of all workspaces, as one workspace reports to it.
pub(crate) trait WorkspaceManager: Send + Sync {
    /// The workspace has removed itself. Resolves when its name is free again.
    fn gone(&self, id: WorkspaceId) -> BoxFuture<'static, ()>;
    /// Reports the phase of a machine of the pool.
    fn phase(&self, id: WorkspaceId, phase: Phase);
}

/// Arguments of one incarnation of the actor.
#[derive(Clone)]
pub struct Args {
    /// Id of the workspace.
    pub id: WorkspaceId,
    /// State that all workspaces share.
    pub shared: Arc<Shared>,
    /// Manager that is told when the workspace is gone, and of each phase of a pool machine.
    pub(crate) manager: Arc<dyn WorkspaceManager>,
}

/// Actor of one workspace.
pub struct Workspace {
    pub(crate) me: Context<Msg>,
    pub(crate) handle: WorkspaceHandle,
    pub(crate) manager: Arc<dyn WorkspaceManager>,
    /// The durable state as the last message of a commit found it: the same all through a handler.
    pub(crate) ledger: Ledger,
    pub(crate) status: WorkspaceStatus,
    pub(crate) children: Children,
    pub(crate) machine: WatchedMachine,
    pub(crate) link: GuestLink,
    pub(crate) jobs: Jobs,
    pub(crate) tasks: TaskNews,
    /// Unrecorded state of the end by lifetime.
    pub(crate) ending: LifetimeEnd,
    /// Calls that wait for the machine to be awake.
    pub(crate) sleeping: Sleeping,
    /// Merge of layers in the background, until another phase ends it.
    pub(crate) merger: Option<Merger>,
    /// Work of calls. A clone held by work keeps that work alive past the actor.
    pub(crate) ops: Workers,
    /// Removals of files that nobody needs any more, which the destruction waits for.
    pub(crate) removals: TaskTracker,
}

impl Workspace {
    /// A workspace as its records say, before anything was looked at.
    pub(super) fn new(me: Context<Msg>, args: Args, ledger: Ledger) -> Self {
        let Args { id, shared, manager } = args;
        let census = shared.daemon.census.clone();
        let children = Children::new(me.address.probe().path(), census, me.cell.clone());
        let machine = WatchedMachine::new(shared.options.machine_policy());
        let link = GuestLink::new(ledger.plan.token.clone());
        let handle = WorkspaceHandle { id, shared, actor: me.address.clone() };
        let sleeping = Sleeping::of(&ledger);
        Self {
            me,
            handle,
            manager,
            ledger,
            status: WorkspaceStatus::new(),
            children,
            machine,
            link,
            jobs: Jobs::default(),
            tasks: TaskNews::default(),
            ending: LifetimeEnd::default(),
            sleeping,
            merger: None,
            ops: Workers::default(),
            removals: TaskTracker::new(),
        }
    }

    /// Takes up the durable state, and removes the files that are no longer needed. A workspace
    /// that is being forgotten stays as it was.
    pub(super) fn take_up(&mut self) {
        let shared = self.handle.shared.clone();
        let Some(ledger) = shared.logs.state(self.handle.id) else { return };
        self.ledger = ledger;
        self.machine.recorded(&self.ledger);
        if self.ledger.plan.pool.is_none() {
            // The claim is durable: the workspace is no longer the pool's.
            self.status.finished(Activity::Claiming);
        }
        let free = shared.ref_counts.replace(self.handle.id, self.ledger.artifacts());
        if !free.is_empty() {
            let work = async move { snapshots::files::remove(&shared.folders, free).await };
            let _detached = self.removals.spawn(work);
        }
        self.sync();
    }

    pub(crate) fn authorize_session(&self, session: SessionId) -> Result<(), ToolError> {
        // A machine of the pool has no owner; the pool's own session operates it.
        let pools = self.ledger.plan.pool.is_some() && self.ledger.plan.owner == session;
        if self.ledger.owner == Some(session) || pools {
            return Ok(());
        }
        Err(ToolError::not_owner())
    }

    /// State that decides which requests are allowed.
    pub(crate) fn situation(&self) -> Situation {
        self.status.situation(self.ledger.change.is_some())
    }

    /// The phase that a request leads to.
    ///
    /// # Errors
    /// Those of [`Situation::on`].
    pub(crate) fn on(&self, want: Want) -> Result<Phase, ToolError> {
        self.situation().on(want)
    }

    /// Waits for a link, for a call that may be made now.
    ///
    /// # Errors
    /// When the workspace does not run.
    pub(crate) fn guest(
        &self,
        cx: &CallCx,
    ) -> Result<impl Future<Output = Result<Link, ToolError>> + Send + use<>, ToolError> {
        self.on(Want::Guest)?;
        let patience = Duration::from_secs(self.handle.shared.options.link_wait_secs);
        Ok(self.link.reach(cx, patience))
    }

    /// Starts work that goes on to its end, even if this actor ends or nobody waits.
    pub(crate) fn to_its_end<T, W>(
        &self,
        work: W,
    ) -> impl Future<Output = Result<T, ToolError>> + Send + use<T, W>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, ToolError>> + Send + 'static,
    {
        let (done, outcome) = oneshot::channel();
        let ops = self.ops.clone();
        let _detached = self.ops.spawn(async move {
            let _keeps_the_work_alive = ops;
            let _asker_gone = done.send(work.await);
        });
        async move { outcome.await.map_err(|_| ToolError::internal("the work ended"))? }
    }

    pub(crate) fn process(&self) -> MachineProcess {
        self.machine.process(&self.ledger)
    }

    /// Idle seconds after which the workspace is parked by itself; `None`: never.
    pub(crate) fn parks_after_secs(&self) -> Option<u64> {
        let options = &self.handle.shared.options;
        let secs = self.ledger.idle_park_secs.unwrap_or(options.park_after_idle_secs);
        (secs > 0 && self.ledger.plan.pool.is_none()).then_some(secs)
    }

    /// Phase of the workspace without a machine.
    pub(crate) fn at_rest(&self) -> Phase {
        if self.ledger.parked.is_some() { Phase::Parked } else { Phase::Stopped }
    }

    pub(crate) fn set_phase(&mut self, phase: Phase) {
        self.status.phase = phase;
        if let (Some(merger), true) = (&self.merger, phase != Phase::Stopped) {
            merger.cancel();
        }
        self.sync();
        if self.ledger.plan.pool.is_some() {
            self.manager.phase(self.handle.id, phase);
        }
    }

    /// Brings the card and the word in `hivekeep ps` up to date.
    pub(crate) fn sync(&self) {
        let (phase, process) = (self.status.phase, self.process());
        self.me.address.probe().set_state(self.status.word(process));
        let (owner, user) = (self.ledger.owner, self.ledger.user);
        let parks_when_idle = phase == Phase::Running && self.parks_after_secs().is_some();
        let (plan, lifetime) = (&self.ledger.plan, self.ledger.lifetime);
        self.handle.shared.directory.update(self.handle.id, |card| {
            card.phase = phase;
            card.owner = owner;
            card.user = user;
            card.process = process;
            card.lifetime = lifetime;
            card.parks_when_idle = parks_when_idle;
            if card.pool.is_some() && plan.pool.is_none() {
                card.name.clone_from(&plan.name);
                card.planned_by = plan.owner;
                card.pool = None;
                card.fork_of = None;
                card.created_at = plan.at;
                card.labels = Arc::new(plan.labels.clone());
            }
        });
    }
}

/// Only the owner's session operates a workspace.
impl Owned for Workspace {
    fn authorize(&self, cx: &CallCx) -> Result<(), ToolError> {
        self.authorize_session(cx.session)
    }
}
