//! The actor of one workspace: it decides, workers act, and the log remembers.
//!
//! # States
//!
//! Clients see a [`Phase`]. The handler of a wish judges it by the table in [`crate::activity`] and, if
//! that lets it pass, moves the phase at once: `Stopped` is `Starting` before anything is started, so
//! that the next wish is judged by what is under way. The work runs beside the mailbox and ends with
//! [`Msg::Settled`], which says what came of it. So `workspace_info` answers, and a kill works, while a
//! command of ten minutes runs.
//!
//! ```text
//!  wish ──▶ Situation::on ──▶ phase, activity ──▶ worker ──▶ records ──▶ the world ──▶ records
//!               │ refused                            │           (intent)              (fact)
//!               ▼                                    └──────▶ Settled, Finished ──▶ phase, activity
//!             answer
//! ```
//!
//! # Who moves what
//!
//! - The **phase** moves by wishes ([`Workspace::on`]), by the ends of their work, by the end of the
//!   machine's process ([`Msg::Exited`]), and by a host's disk that has no room ([`Msg::DiskFull`]).
//! - The **activity** begins in the handler of a wish that has disk or machine to itself, and ends with
//!   [`Msg::Finished`] or, for a machine that is taken up, with the phase `Starting`.
//! - The **durable state** moves with [`Msg::Recorded`] alone: a handler sees one state all through.
//!   Workers commit through a [`WorkspaceHandle`] and go on when this actor has taken the state up.
//! - The **link's state** is watched by all who want to reach the guest; a child of this actor keeps it.
//!
//! # What can fail
//!
//! - A start, a stop or a recovery can leave a process of the machine. The workspace is `Crashed` then,
//!   the record of the machine stays, and the next start or stop ends that process first
//!   (`workspace/status.rs`).
//! - This actor can end at any place. Work that was ordered and must be brought to its end goes on, as
//!   it holds the actor's workers; the next incarnation begins with the log's state and makes true
//!   what was acknowledged (`workspace/recover.rs`).
//! - The daemon can end at any place. Then the intents that have no fact behind them are settled by the
//!   next start of the workspace, or undone.

mod adoption;
mod attach;
mod backup;
mod bring_up;
mod claim;
mod describe;
mod destroy;
mod env;
mod exec;
mod files;
mod fork_source;
mod git;
mod guest_events;
mod halt;
mod identity;
mod jobs;
mod link_state;
mod merge;
mod network;
mod policy;
pub(crate) mod prepare;
mod recover;
mod rewind;
mod snapshot;
mod status;
mod take_down;
mod tasks;
mod transfer;

use std::sync::Arc;

use futures::future::BoxFuture;
use hivekeep_kernel::{
    Address, CallCx, ChildNews, Children, Context, Entity, Fault, JobId, Layer, Owned, SessionId,
    ToolCall, ToolError, WorkspaceId, children::Outcome, serve, supervise::Meter, workers::Workers,
};
use hivekeep_link::{Link, LinkNews, LinkToken};
use hivekeep_machine::{MachineExit, MachineHandle, ProcessId};
use tokio::sync::{oneshot, watch};

pub(crate) use adoption::Adopt;
pub(crate) use backup::BackupMsg;
pub(crate) use bring_up::unknown_image;
pub(crate) use claim::Claim;
pub(crate) use exec::ExecRequest;
pub(crate) use fork_source::SnapshotRequest;
pub(crate) use link_state::{LinkState, usable};
pub(crate) use tasks::{GuestAccess, TaskMsg};

use crate::{
    activity::{Activity, Situation},
    codes,
    handle::WorkspaceHandle,
    job,
    ledger::Ledger,
    phase::{Phase, Want},
    shared::Shared,
    snapshots,
    tasks::{Pace, ResultCache},
    tools,
};

/// What a workspace can be told.
pub enum Msg {
    /// A routed call.
    Tool(ToolCall),
    /// Records became durable; answered when they are taken up.
    Recorded(oneshot::Sender<()>),
    /// Make the machine for the first time.
    Create(CallCx, oneshot::Sender<Result<u64, ToolError>>),
    /// A machine was launched; its record is under way.
    Launched(Box<MachineHandle>),
    /// A machine runs: keep it and a link into it. The token is that of a copy of another
    /// machine's memory, until it has become itself.
    Attach(Box<MachineHandle>, Option<LinkToken>, oneshot::Sender<watch::Receiver<LinkState>>),
    /// The guest knows its own token from now on.
    OwnToken,
    /// An activity came to its end.
    Finished(Activity),
    /// Of `workspace_prepare`.
    Prepare(prepare::PrepareMsg),
    /// Of a backup.
    Backup(BackupMsg),
    /// Of layers that become one.
    Merge(merge::MergeMsg),
    /// Make a snapshot with memory on behalf of a call that forks it.
    Snapshot(Box<SnapshotRequest>),
    /// What do forks of a snapshot begin from?
    ForkSource {
        /// Who asks; must own this workspace.
        session: SessionId,
        /// Name of the snapshot.
        snapshot: String,
        /// The answer.
        reply: oneshot::Sender<Result<crate::fork_source::ForkSource, ToolError>>,
    },
    /// Let go of the machine: its end is expected. Answers which one it was.
    Detach(oneshot::Sender<Option<Box<MachineHandle>>>),
    /// A change of phase came to its end.
    Settled(Phase, Option<String>),
    /// A job was started: have an actor follow it.
    FollowJobs,
    /// The machine's process ended.
    Exited(MachineExit),
    /// The process of a recorded machine that nobody keeps ended.
    LeftEnded(ProcessId, MachineExit),
    /// This machine stands still for want of room on the host.
    DiskFull(ProcessId),
    /// A machine that was left for not answering answers.
    Answers(ProcessId),
    /// News of the link.
    Link(LinkNews),
    /// News from the guest.
    GuestEvent(guest_events::GuestEventIn),
    /// Of the guest's tasks.
    Tasks(TaskMsg),
    /// Take over.
    Adopt(Adopt),
    /// A take-over came to its end.
    Adopted,
    /// The way into the guest, for a call that names several workspaces.
    Enter(CallCx, oneshot::Sender<Result<Link, ToolError>>),
    /// Run a command on behalf of a call that names several workspaces.
    Exec(Box<ExecRequest>),
    /// Stop the machine for the daemon's own stop.
    Stop(oneshot::Sender<()>),
    /// Become somebody's.
    Claim(Claim),
    /// Do once what a claim and a first command will do.
    Rehearse(oneshot::Sender<Result<(), ToolError>>),
    /// Remove a machine that is the pool's; refused when it is somebody's.
    Discard(oneshot::Sender<Result<(), ToolError>>),
    /// Remove what a failed creation left.
    Forget,
    /// Nobody will ask for the creation: undo the plan.
    Abandon,
    /// Try a crashed machine again, by policy.
    RestartDue,
}

impl From<ToolCall> for Msg {
    fn from(call: ToolCall) -> Self {
        Self::Tool(call)
    }
}

/// The actor of all workspaces, as one of them tells it of itself.
pub(crate) trait Manager: Send + Sync {
    /// The workspace has removed itself. Resolves when its name is free again.
    fn gone(&self, id: WorkspaceId) -> BoxFuture<'static, ()>;
    /// The phase of a machine of the pool.
    fn phase(&self, id: WorkspaceId, phase: Phase);
}

/// What an incarnation is made from.
#[derive(Clone)]
pub struct Seed {
    /// Which workspace.
    pub id: WorkspaceId,
    /// What it works with.
    pub shared: Arc<Shared>,
    /// Told when it is gone, or the pool's.
    pub(crate) manager: Arc<dyn Manager>,
}

/// A workspace.
pub struct Workspace {
    me: Context<Msg>,
    handle: WorkspaceHandle,
    manager: Arc<dyn Manager>,
    /// The durable state as the last message of a commit found it: the same all through a handler.
    ledger: Ledger,
    phase: Phase,
    /// Why it crashed or failed.
    reason: Option<String>,
    children: Children,
    machine: Option<MachineHandle>,
    /// A machine whose record is under way. A start that is given up meanwhile leaves it.
    unrecorded: Option<Box<MachineHandle>>,
    /// The machine that was last seen to end; its record may be under way.
    ended: Option<ProcessId>,
    jobs: std::collections::HashMap<JobId, Address<job::Msg>>,
    link_state: watch::Sender<LinkState>,
    /// Moves when the guest's tasks may have changed.
    task_hints: watch::Sender<u64>,
    /// Results that its guest told without being asked.
    results: ResultCache,
    /// How often its link came or went.
    links: u64,
    pace: Pace,
    /// What the guest takes for its link's secret.
    token: watch::Sender<LinkToken>,
    /// What goes on with disk and machine.
    activity: Activity,
    /// Held by changes of forwards that are under way.
    forwarding: Arc<()>,
    /// An adoption is under way.
    adopting: bool,
    /// Layers are being merged in the background, until another phase ends that.
    merger: Option<merge::Merger>,
    /// Calls' work. A clone held by work keeps that work alive past the actor.
    ops: Workers,
    crashes: Meter,
}

impl Entity for Workspace {
    type Msg = Msg;
    type Seed = Seed;

    async fn start(seed: Seed, me: Context<Msg>) -> Result<Self, Fault> {
        let Seed { id, shared, manager } = seed;
        let ledger = shared.logs.begin(id).await.map_err(|error| Fault::new(error.to_text()))?;
        let children =
            Children::new(me.address.probe().path(), shared.daemon.census.clone(), me.cell.clone());
        let crashes = Meter::new(shared.options.machine_policy());
        let handle = WorkspaceHandle { id, shared, actor: me.address.clone() };
        let (link_state, _) = watch::channel(LinkState::Absent);
        let (token, _) = watch::channel(ledger.plan.token.clone());
        let mut workspace = Self {
            me,
            handle,
            manager,
            ledger,
            phase: Phase::Creating,
            reason: None,
            children,
            machine: None,
            unrecorded: None,
            ended: None,
            jobs: Default::default(),
            link_state,
            task_hints: watch::channel(0).0,
            results: ResultCache::default(),
            links: 0,
            pace: Pace::default(),
            token,
            activity: Activity::Idle,
            forwarding: Arc::default(),
            adopting: false,
            merger: None,
            ops: Workers::default(),
            crashes,
        };
        workspace.recover();
        Ok(workspace)
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Tool(call) => {
                let ops = self.ops.clone();
                serve::serve(self, tools::OF_WORKSPACE, &ops, call);
            }
            Msg::Recorded(taken_up) => {
                self.take_up();
                let _asker_gone = taken_up.send(());
            }
            Msg::Create(cx, reply) => self.create(cx, reply),
            Msg::Launched(handle) => self.unrecorded = Some(handle),
            Msg::Attach(handle, token, reply) => {
                self.attach(*handle, token)?;
                let _asker_gone = reply.send(self.link_state.subscribe());
            }
            Msg::Detach(reply) => {
                self.detach("told to let go of the machine");
                let recorded = || self.ledger.handle().cloned().map(Box::new);
                let handle = self.unrecorded.take().or_else(recorded);
                let _asker_gone = reply.send(handle);
            }
            Msg::OwnToken => drop(self.token.send_replace(self.ledger.plan.token.clone())),
            Msg::Finished(activity) => self.finished(activity),
            Msg::Prepare(ask) => self.preparation(ask),
            Msg::Backup(ask) => self.backup(ask),
            Msg::Merge(ask) => self.merging(ask),
            Msg::Snapshot(request) => self.snapshot_for(*request),
            Msg::ForkSource { session, snapshot, reply } => {
                let _asker_gone = reply.send(self.fork_source(session, &snapshot));
            }
            Msg::Settled(phase, reason) => self.settle(phase, reason)?,
            Msg::FollowJobs => self.follow_jobs()?,
            Msg::Exited(exit) => self.machine_exited(exit),
            Msg::LeftEnded(process, exit) => self.left_ended(process, &exit),
            Msg::DiskFull(process) => self.disk_full(process),
            Msg::Answers(process) => self.answers(process),
            Msg::Link(news) => self.link_news(news)?,
            Msg::GuestEvent(event) => self.guest_event(event),
            Msg::Tasks(ask) => self.task_ask(ask),
            Msg::Adopt(adopt) => self.adopt(adopt),
            Msg::Adopted => self.adopting = false,
            Msg::Enter(cx, reply) => self.enter(&cx, reply),
            Msg::Exec(request) => self.exec_for(*request),
            Msg::Stop(done) => self.stop_for_daemon(done),
            Msg::Claim(wish) => self.claim(wish),
            Msg::Rehearse(done) => self.rehearse(done),
            Msg::Discard(done) => self.discard(done),
            Msg::Forget if self.phase == Phase::Failed => self.undo("workspace.forgotten"),
            Msg::Abandon if self.phase == Phase::Creating => self.undo("workspace.create_undone"),
            Msg::Forget | Msg::Abandon => {}
            Msg::RestartDue => self.restart_due(),
        }
        Ok(())
    }

    fn child(&mut self, news: ChildNews) -> Result<(), Fault> {
        match self.children.hear(news)? {
            Outcome::GaveUp { name, reason } => {
                self.handle.publish(
                    "actor.gave_up",
                    serde_json::json!({ "actor": name, "reason": reason }),
                );
            }
            Outcome::Gone { name, .. } => {
                if let Ok(job) = name.parse() {
                    self.jobs.remove(&job);
                }
            }
            Outcome::Restarting { .. } | Outcome::Stranger => {}
        }
        Ok(())
    }
}

impl Workspace {
    /// Takes up what is durable, and removes the files that nobody needs after it. One that is being
    /// forgotten stays as it was.
    fn take_up(&mut self) {
        let shared = self.handle.shared.clone();
        let Some(ledger) = shared.logs.state(self.handle.id) else { return };
        self.ledger = ledger;
        let recorded = self.ledger.handle().map(|handle| handle.process);
        self.unrecorded.take_if(|machine| recorded == Some(machine.process));
        if self.ledger.plan.pool.is_none() {
            // It is somebody's now, as far as it was the pool's.
            self.finished(Activity::Claiming);
        }
        let free = shared.ref_counts.replace(self.handle.id, self.ledger.artifacts());
        if !free.is_empty() {
            let work = async move { snapshots::files::remove(&shared.folders, free).await };
            let _detached = self.ops.spawn(work);
        }
        self.sync();
    }

    /// What it is doing.
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    fn authorize_session(&self, session: SessionId) -> Result<(), ToolError> {
        // What the pool keeps nobody owns; the pool's own session operates it.
        let pools = self.ledger.plan.pool.is_some() && self.ledger.plan.owner == session;
        if self.ledger.owner == Some(session) || pools {
            return Ok(());
        }
        let whose = if self.ledger.owner.is_some() { "another session" } else { "nobody" };
        let message = format!("workspace `{}` belongs to {whose}", self.ledger.plan.name);
        Err(ToolError::new(Layer::Policy, codes::NOT_OWNER, message)
            .next("workspace_adopt takes over a workspace whose session is gone"))
    }

    /// Everything that decides what may be asked of it.
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
    /// As [`Situation::on`].
    pub(crate) fn on(&self, want: Want) -> Result<Phase, ToolError> {
        self.situation().on(want)
    }

    /// Starts work that goes on to its end, whether or not this actor does and anybody waits.
    fn to_its_end<T, W>(
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
    fn finished(&mut self, activity: Activity) {
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
