//! Messages to the actor of one workspace, in types that know nothing of that actor.

mod merge;
mod prepare;
mod tasks;

use hivekeep_kernel::{CallCx, SessionId, SnapshotId, ToolCall, ToolError};
use hivekeep_link::{Link, LinkChange, LinkToken};
use hivekeep_machine::{MachineExit, MachineHandle, ProcessId};
use hivekeep_protocol::GuestEvent;
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot, watch},
    time::Instant,
};

pub(super) use merge::{MergeMsg, NotMerged, Outcome};
pub(crate) use prepare::{Golden, PrepareMsg, PrepareRequest, PreparedState, Setup};
pub(crate) use tasks::{GuestAccess, TaskMsg};

use super::{link_state::LinkState, snapshot::MadeSnapshot};
use crate::{
    activity::Activity,
    api::execution::{Exec, ExecResult},
    claims::Claims,
    fork_source::ForkSource,
    phase::Phase,
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
    Prepare(PrepareMsg),
    /// Of a backup.
    Backup(BackupMsg),
    /// Of layers that become one.
    Merge(MergeMsg),
    /// Make a snapshot with memory on behalf of a call that forks it.
    Snapshot(Box<SnapshotRequest>),
    /// What do forks of a snapshot begin from?
    ForkSource {
        /// Who asks; must own this workspace.
        session: SessionId,
        /// Name of the snapshot.
        snapshot: String,
        /// The answer.
        reply: oneshot::Sender<Result<ForkSource, ToolError>>,
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
    Link(LinkChange),
    /// News from the guest.
    GuestEvent(GuestEventIn),
    /// Of the guest's tasks.
    Tasks(TaskMsg),
    /// Its lifetime is over, as the timer finds it.
    LifetimeOver,
    /// A step of its end is done, or failed.
    EndTried(Option<ToolError>),
    /// Of a park or a wake.
    Park(ParkMsg),
    /// Has it been idle for long enough to be parked?
    LookIdle,
    /// It has no tasks: park it, if nothing was wanted of it since then.
    ParkIdle(Instant),
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

/// What the work of a park or a wake tells.
pub enum ParkMsg {
    /// The park is over, one way or the other.
    Ended,
    /// Does anybody still want it to be awake?
    StillWanted(oneshot::Sender<bool>),
    /// The wake is over: milliseconds that it took, or `None` if nobody wanted it any more.
    Woken(Result<Option<u64>, ToolError>),
}

/// A wish to take a workspace over.
pub struct Adopt {
    /// Whether it may be another user's: an operator asks.
    pub(crate) of_any_user: bool,
    /// The new owner.
    pub(crate) by: SessionId,
    /// Take it from a session that still exists.
    pub(crate) force: bool,
    /// `Ok(None)`: it was the caller's already; `Ok(Some(forced))` otherwise.
    pub(crate) reply: oneshot::Sender<Result<Option<bool>, ToolError>>,
}

/// A wish to have a machine of the pool.
pub struct Claim {
    /// What it shall be, with name and quota.
    pub(crate) claims: Claims,
    /// The claims come back with what was wrong with the machine.
    pub(crate) reply: oneshot::Sender<Result<(), Box<(Claims, ToolError)>>>,
}

/// A command on behalf of a call that names several workspaces.
pub struct ExecRequest {
    /// The call.
    pub(crate) cx: CallCx,
    /// Its session, which must own this workspace too.
    pub(crate) session: SessionId,
    /// What to run.
    pub(crate) input: Exec,
    /// The outcome.
    pub(crate) reply: oneshot::Sender<Result<ExecResult, ToolError>>,
}

/// A snapshot with memory on behalf of a call that forks it at once.
pub struct SnapshotRequest {
    /// The call.
    pub(crate) cx: CallCx,
    /// Its session, which must own this workspace.
    pub(crate) session: SessionId,
    /// Name of the snapshot to be.
    pub(crate) name: String,
    /// The outcome.
    pub(crate) reply: oneshot::Sender<Result<MadeSnapshot, ToolError>>,
}

/// What a backup asks.
pub enum BackupMsg {
    /// Make a snapshot of the disk; the answer names it.
    Freeze {
        /// Its name.
        name: String,
        /// The outcome.
        reply: oneshot::Sender<Result<SnapshotId, ToolError>>,
    },
    /// The backup needs it no more.
    Release {
        /// Which.
        snapshot: SnapshotId,
        /// Answered when it is gone.
        reply: oneshot::Sender<Result<(), ToolError>>,
    },
}

/// An event that was told over a link.
pub struct GuestEventIn {
    /// Which link of the workspace's it was.
    pub(super) links: u64,
    pub(super) event: GuestEvent,
    /// Another one may come when this one was handled.
    pub(super) _room: OwnedSemaphorePermit,
}
