//! Actor of one workspace: decides what may happen; workers do it and record it in the log.
//!
//! # States
//!
//! Clients see a [`Phase`]. A handler checks each wish against the table in [`crate::activity`]
//! and, if it is allowed, moves the phase at once: `Stopped` is `Starting` before anything is
//! started, so that the next wish is judged by what is under way. The work runs beside the mailbox
//! and ends with [`Msg::Settled`], which has its outcome. So `workspace_info` answers, and a kill
//! works, while a command of ten minutes runs.
//!
//! ```text
//!  wish ──▶ Situation::on ──▶ phase, activity ──▶ worker ──▶ records ──▶ the world ──▶ records
//!               │ refused                            │           (intent)              (fact)
//!               ▼                                    └──────▶ Settled, Finished ──▶ phase, activity
//!             answer
//! ```
//!
//! # Changes of state
//!
//! - The **phase** moves by wishes ([`Workspace::on`]), by the ends of their work, by the end of the
//!   machine's process ([`Msg::Exited`]), and by a host's disk that has no room ([`Msg::DiskFull`]).
//! - The **activity** begins in the handler of a wish that has disk or machine to itself, and ends with
//!   [`Msg::Finished`] or, for a machine that is taken up, with the phase `Starting`.
//! - The **durable state** moves with [`Msg::Recorded`] alone: a handler sees one state all through.
//!   Workers commit through a [`WorkspaceHandle`] and go on when this actor has taken the state up.
//! - The **link's state** is watched by all who want to reach the guest; a child of this actor keeps it.
//! - Messages that need the guest of a parked machine are held back, wake it once, and are judged again
//!   after that (`workspace/sleeping.rs`).
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
mod boot;
mod bring_up;
mod claim;
mod describe;
mod destroy;
mod ending;
pub(crate) mod entry_point;
pub(crate) mod env;
pub(crate) mod exec;
mod files;
mod first_link;
mod fork_source;
mod git;
mod guest_events;
mod halt;
mod identity;
mod images;
pub(crate) mod jobs;
mod lifetime;
mod link_state;
mod merge;
mod messages;
mod network;
mod park;
mod policy;
mod port_url;
pub(crate) mod prepare;
mod recover;
mod rewind;
mod sleeping;
mod snapshot;
mod state;
mod status;
mod take_down;
mod tasks;
mod transfer;
pub(crate) mod user;
mod volumes;
mod waiting;
mod wake;

use std::sync::Arc;

use hivekeep_kernel::{
    ChildEnd, Children, Context, Entity, Fault, children::ChildOutcome, serve,
    supervise::RestartCounter, workers::Workers,
};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use bring_up::internal_cx;
pub(crate) use images::image_name;
pub(crate) use link_state::{LinkState, usable};
pub(crate) use messages::{
    Adopt, BackupMsg, Claim, ExecRequest, GuestAccess, Msg, ParkMsg, SnapshotRequest, TaskMsg,
};
pub(crate) use state::{Seed, Workspace, WorkspaceManager};

use self::{ending::Ending, waiting::Sleeping};
use crate::{
    activity::Activity,
    handle::WorkspaceHandle,
    phase::Phase,
    tasks::{Pace, ResultCache},
    tools,
};

impl Entity for Workspace {
    type Msg = Msg;
    type Seed = Seed;

    async fn start(seed: Seed, me: Context<Msg>) -> Result<Self, Fault> {
        let Seed { id, shared, manager } = seed;
        let ledger = shared.logs.begin(id).await.map_err(|error| Fault::new(error.to_text()))?;
        let children =
            Children::new(me.address.probe().path(), shared.daemon.census.clone(), me.cell.clone());
        let crashes = RestartCounter::new(shared.options.machine_policy());
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
            ending: Ending::default(),
            sleeping: Sleeping::default(),
            merger: None,
            ops: Workers::default(),
            removals: TaskTracker::new(),
            crashes,
        };
        workspace.recover();
        Ok(workspace)
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        let Some(message) = self.hold_back(message) else { return Ok(()) };
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
            Msg::Finished(activity) => {
                self.finished(activity);
                self.wake_if_wanted();
            }
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
            Msg::LifetimeOver => self.lifetime_over(),
            Msg::EndTried(error) => self.end_tried(error),
            Msg::Adopt(adopt) => self.adopt(adopt),
            Msg::Adopted => {
                self.adopting = false;
                self.wake_if_wanted();
            }
            Msg::Park(news) => self.park_news(news),
            Msg::LookIdle => self.look_idle(),
            Msg::ParkIdle(asked_at) => self.park_idle(asked_at),
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

    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        match self.children.handle_end(end)? {
            ChildOutcome::GaveUp { name, reason } => {
                self.handle.publish(
                    "actor.gave_up",
                    serde_json::json!({ "actor": name, "reason": reason }),
                );
            }
            ChildOutcome::Gone { name, .. } => {
                if let Ok(job) = name.parse() {
                    self.jobs.remove(&job);
                }
            }
            ChildOutcome::Restarting { .. } | ChildOutcome::Stranger => {}
        }
        Ok(())
    }
}
