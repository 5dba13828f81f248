//! State of one workspace's actor, and the steps that all its handlers share.

use std::{collections::HashMap, sync::Arc};

use futures::future::BoxFuture;
use hivekeep_kernel::{
    Address, CallCx, Children, Context, JobId, Owned, SessionId, ToolError, WorkspaceId,
    supervise::RestartCounter, workers::Workers,
};
use hivekeep_link::LinkToken;
use hivekeep_machine::{MachineHandle, ProcessId};
use tokio::sync::{oneshot, watch};
use tokio_util::task::TaskTracker;

use super::{LinkState, ending::Ending, merge::Merger, messages::Msg, waiting::Sleeping};
use crate::{
    activity::{Activity, Situation},
    handle::WorkspaceHandle,
    job,
    ledger::Ledger,
    phase::{Phase, Want},
    shared::Shared,
    snapshots,
    tasks::{Pace, ResultCache},
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
pub struct Seed {
    /// Id of the workspace.
    pub id: WorkspaceId,
    /// State that all workspaces share.
    pub shared: Arc<Shared>,
    /// Manager that is told when the workspace is gone, and of each phase of a pool machine.
    pub(crate) manager: Arc<dyn WorkspaceManager>,
}

/// Actor of one workspace.
pub struct Workspace {
    pub(super) me: Context<Msg>,
    pub(super) handle: WorkspaceHandle,
    pub(super) manager: Arc<dyn WorkspaceManager>,
    /// The durable state as the last message of a commit found it: the same all through a handler.
    pub(super) ledger: Ledger,
    pub(super) phase: Phase,
    /// Why the workspace crashed or failed.
    pub(super) reason: Option<String>,
    pub(super) children: Children,
    pub(super) machine: Option<MachineHandle>,
    /// A launched machine whose record is under way. A start that is given up meanwhile leaves it here.
    pub(super) unrecorded: Option<Box<MachineHandle>>,
    /// The machine that was last seen to end; its record may be under way.
    pub(super) ended: Option<ProcessId>,
    pub(super) jobs: HashMap<JobId, Address<job::Msg>>,
    pub(super) link_state: watch::Sender<LinkState>,
    /// Changes when the guest's tasks may have changed.
    pub(super) task_hints: watch::Sender<u64>,
    /// Results that the guest sent without being asked.
    pub(super) results: ResultCache,
    /// Number of times that the link came or went.
    pub(super) links: u64,
    pub(super) pace: Pace,
    /// Secret of the link that the guest accepts.
    pub(super) token: watch::Sender<LinkToken>,
    /// Work under way on disk and machine.
    pub(super) activity: Activity,
    /// Held by changes of forwards that are under way.
    pub(super) forwarding: Arc<()>,
    /// An adoption is under way.
    pub(super) adopting: bool,
    /// Unrecorded state of the end by lifetime.
    pub(super) ending: Ending,
    /// Calls that wait for the machine to be awake.
    pub(super) sleeping: Sleeping,
    /// Merge of layers in the background, until another phase ends it.
    pub(super) merger: Option<Merger>,
    /// Work of calls. A clone held by work keeps that work alive past the actor.
    pub(super) ops: Workers,
    /// Removals of files that nobody needs any more, which the destruction waits for.
    pub(super) removals: TaskTracker,
    pub(super) crashes: RestartCounter,
}

impl Workspace {
    /// Takes up the durable state, and removes the files that are no longer needed. A workspace
    /// that is being forgotten stays as it was.
    pub(super) fn take_up(&mut self) {
        let shared = self.handle.shared.clone();
        let Some(ledger) = shared.logs.state(self.handle.id) else { return };
        self.ledger = ledger;
        let recorded = self.ledger.handle().map(|handle| handle.process);
        self.unrecorded.take_if(|machine| recorded == Some(machine.process));
        if self.ledger.plan.pool.is_none() {
            // The claim is durable: the workspace is no longer the pool's.
            self.finished(Activity::Claiming);
        }
        let free = shared.ref_counts.replace(self.handle.id, self.ledger.artifacts());
        if !free.is_empty() {
            let work = async move { snapshots::files::remove(&shared.folders, free).await };
            let _detached = self.removals.spawn(work);
        }
        self.sync();
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn authorize_session(&self, session: SessionId) -> Result<(), ToolError> {
        // A machine of the pool has no owner; the pool's own session operates it.
        let pools = self.ledger.plan.pool.is_some() && self.ledger.plan.owner == session;
        if self.ledger.owner == Some(session) || pools {
            return Ok(());
        }
        Err(ToolError::not_owner())
    }

    /// State that decides which wishes are allowed.
    pub(crate) fn situation(&self) -> Situation {
        Situation {
            phase: self.phase,
            activity: self.activity,
            forwarding: Arc::strong_count(&self.forwarding) > 1,
            unfinished: self.ledger.change.is_some(),
            adopting: self.adopting,
        }
    }

    /// The phase that a wish leads to.
    ///
    /// # Errors
    /// Those of [`Situation::on`].
    pub(crate) fn on(&self, want: Want) -> Result<Phase, ToolError> {
        self.situation().on(want)
    }

    /// Starts work that goes on to its end, even if this actor ends or nobody waits.
    pub(super) fn to_its_end<T, W>(
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

    /// Ends an activity, unless another one goes on by now.
    pub(super) fn finished(&mut self, activity: Activity) {
        if self.activity == activity {
            self.activity = Activity::Idle;
        }
    }
}

/// Only the owner's session operates a workspace.
impl Owned for Workspace {
    fn authorize(&self, cx: &CallCx) -> Result<(), ToolError> {
        self.authorize_session(cx.session)
    }
}
