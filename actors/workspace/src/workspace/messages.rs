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

/// Messages to a workspace.
pub enum Msg {
    /// A routed call.
    Tool(ToolCall),
    /// Records became durable; answered when they are taken up.
    Recorded(oneshot::Sender<()>),
    /// Make the machine for the first time.
    Create(CallCx, oneshot::Sender<Result<u64, ToolError>>),
    /// A machine was launched; its record is under way.
    Launched(Box<MachineHandle>),
    /// A machine runs: watch it and keep a link into it. The token is the one in a copied memory,
    /// until the guest has its own.
    Attach(Box<MachineHandle>, Option<LinkToken>, oneshot::Sender<watch::Receiver<LinkState>>),
    /// The guest knows its own token from now on.
    OwnToken,
    /// An activity came to its end.
    Finished(Activity),
    /// Request of `workspace_prepare`.
    Prepare(PrepareMsg),
    /// Request of a backup.
    Backup(BackupMsg),
    /// Request of a merge of layers.
    Merge(MergeMsg),
    /// Make a snapshot with memory on behalf of a call that forks it.
    Snapshot(Box<SnapshotRequest>),
    /// Ask for the source that forks of a snapshot begin from.
    ForkSource {
        /// Session that asks; must own this workspace.
        session: SessionId,
        /// Name of the snapshot.
        snapshot: String,
        /// The answer.
        reply: oneshot::Sender<Result<ForkSource, ToolError>>,
    },
    /// Stop watching the machine: its end is expected. The answer is the machine's handle.
    Detach(oneshot::Sender<Option<Box<MachineHandle>>>),
    /// A change of phase came to its end.
    Settled(Phase, Option<String>),
    /// A job was started: have an actor follow it.
    FollowJobs,
    /// The machine's process ended.
    Exited(MachineExit),
    /// The process of a recorded machine that no child watches ended.
    LeftEnded(ProcessId, MachineExit),
    /// The machine is halted for want of room on the host's disk.
    DiskFull(ProcessId),
    /// A machine that was left because it did not answer answers now.
    Answers(ProcessId),
    /// The link changed.
    Link(LinkChange),
    /// Event of the guest.
    GuestEvent(GuestEventIn),
    /// Request about the guest's tasks.
    Tasks(TaskMsg),
    /// The workspace's lifetime is over, as the timer finds.
    LifetimeOver,
    /// A step of the end by lifetime is done, or failed.
    EndTried(Option<ToolError>),
    /// Message of the work of a park or a wake.
    Park(ParkMsg),
    /// Check whether the workspace was idle for long enough to be parked.
    LookIdle,
    /// The guest has no tasks: park the workspace, if nothing was wanted of it since this time.
    ParkIdle(Instant),
    /// Change the owner.
    Adopt(Adopt),
    /// A take-over came to its end.
    Adopted,
    /// Ask for the link into the guest, for a call that names several workspaces.
    Enter(CallCx, oneshot::Sender<Result<Link, ToolError>>),
    /// Run a command on behalf of a call that names several workspaces.
    Exec(Box<ExecRequest>),
    /// Stop the machine for the daemon's own stop.
    Stop(oneshot::Sender<()>),
    /// Hand this machine of the pool over to a session.
    Claim(Claim),
    /// Rehearse what a claim and a first command will do.
    Rehearse(oneshot::Sender<Result<(), ToolError>>),
    /// Remove a machine of the pool; refused when it was claimed.
    Discard(oneshot::Sender<Result<(), ToolError>>),
    /// Remove what a failed creation left.
    Forget,
    /// Nobody will ask for the creation: undo the plan.
    Abandon,
    /// Restart a crashed machine, by policy.
    RestartDue,
}

impl From<ToolCall> for Msg {
    fn from(call: ToolCall) -> Self {
        Self::Tool(call)
    }
}

/// Messages of the work of a park or a wake.
pub enum ParkMsg {
    /// The park is over, one way or the other.
    Ended,
    /// Ask whether anybody still wants the machine to be awake.
    StillWanted(oneshot::Sender<bool>),
    /// The wake is over: milliseconds that it took, or `None` if nobody wanted it any more.
    Woken(Result<Option<u64>, ToolError>),
}

/// A wish to take a workspace over.
pub struct Adopt {
    /// Whether the workspace may be another user's: an operator asks.
    pub(crate) of_any_user: bool,
    /// The new owner.
    pub(crate) by: SessionId,
    /// Take the workspace from a session that still exists.
    pub(crate) force: bool,
    /// `Ok(None)`: the workspace was the caller's already; `Ok(Some(forced))` otherwise.
    pub(crate) reply: oneshot::Sender<Result<Option<bool>, ToolError>>,
}

/// A wish to have a machine of the pool.
pub struct Claim {
    /// Plan of the claimed workspace, with name and quota.
    pub(crate) claims: Claims,
    /// The claims come back with what was wrong with the machine.
    pub(crate) reply: oneshot::Sender<Result<(), Box<(Claims, ToolError)>>>,
}

/// A command on behalf of a call that names several workspaces.
pub struct ExecRequest {
    /// The call.
    pub(crate) cx: CallCx,
    /// Session of the call, which must own this workspace too.
    pub(crate) session: SessionId,
    /// Command to run.
    pub(crate) input: Exec,
    /// The outcome.
    pub(crate) reply: oneshot::Sender<Result<ExecResult, ToolError>>,
}

/// A snapshot with memory on behalf of a call that forks it at once.
pub struct SnapshotRequest {
    /// The call.
    pub(crate) cx: CallCx,
    /// Session of the call, which must own this workspace.
    pub(crate) session: SessionId,
    /// Name of the snapshot to be.
    pub(crate) name: String,
    /// The outcome.
    pub(crate) reply: oneshot::Sender<Result<MadeSnapshot, ToolError>>,
}

/// Requests of a backup.
pub enum BackupMsg {
    /// Make a snapshot of the disk; the answer names it.
    Freeze {
        /// Name of the snapshot.
        name: String,
        /// The outcome.
        reply: oneshot::Sender<Result<SnapshotId, ToolError>>,
    },
    /// Delete the snapshot: the backup needs it no more.
    Release {
        /// The snapshot.
        snapshot: SnapshotId,
        /// Answered when the snapshot is gone.
        reply: oneshot::Sender<Result<(), ToolError>>,
    },
}

/// Event that came over a link.
pub struct GuestEventIn {
    /// Number of the workspace's link that the event came over.
    pub(super) links: u64,
    pub(super) event: GuestEvent,
    /// Permit for room in the mailbox: another event may come when this one was handled.
    pub(super) _room: OwnedSemaphorePermit,
}
