//! Protocol of one workspace's actor: its messages, one enum for each feature.
//!
//! The types know nothing of that actor, nor of the state that workspaces share: the directory holds an
//! address for them, and each feature sends its own.

mod prepare;
mod snapshots;

use std::collections::BTreeMap;

use hivekeep_kernel::{CallCx, SessionId, ToolCall, ToolError};
use hivekeep_link::{Link, LinkChange, LinkToken};
use hivekeep_machine::{MachineExit, MachineHandle, ProcessId};
use hivekeep_ports::TaskHints;
use hivekeep_protocol::{GuestEvent, TaskResultsReply};
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot, watch},
    time::Instant,
};

pub(crate) use prepare::{Golden, PrepareMsg, PrepareRequest, PreparedState, Setup};
pub(crate) use snapshots::{MergeMsg, MergeOutcome, NotMerged, SnapshotMsg, SnapshotRequest};

use crate::{
    activity::Activity,
    claims::Claims,
    commands::api::{Exec, ExecResult},
    link_state::LinkState,
    phase::Phase,
};

/// A standstill that is asked for, or its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standstill {
    /// The machine stands still with its memory.
    Halted,
    /// The same with the memory on the disk, where it can be.
    Saved,
    /// The machine goes on.
    Over,
}

/// Answer to whoever asked.
pub(crate) type StandstillReply = oneshot::Sender<Result<(), ToolError>>;

/// Messages to a workspace.
pub enum Msg {
    /// A routed call.
    Tool(ToolCall),
    /// News of the workspace's own work.
    Work(WorkMsg),
    /// Making and removing the workspace, on behalf of its manager.
    Lifecycle(LifecycleMsg),
    /// News of the machine's process.
    Machine(MachineMsg),
    /// News of the link into the guest.
    Link(LinkMsg),
    /// Requests to the guest, for calls that name several workspaces.
    Guest(GuestMsg),
    /// Requests about the guest's tasks.
    Tasks(TaskMsg),
    /// Requests about snapshots.
    Snapshots(SnapshotMsg),
    /// Requests of a merge of layers.
    Merge(MergeMsg),
    /// Parking and waking.
    Park(ParkMsg),
    /// The end by lifetime.
    Lifetime(LifetimeMsg),
    /// Changes of the owner.
    Owner(OwnerMsg),
    /// Requests of the pool to one of its machines.
    Pooled(PooledMsg),
    /// Requests of `workspace_prepare`.
    Prepare(PrepareMsg),
}

/// Wraps messages of features.
macro_rules! wrapped {
    ($($variant:ident: $message:ty;)+) => {
        $(impl From<$message> for Msg {
            fn from(message: $message) -> Self {
                Self::$variant(message)
            }
        })+
    };
}

wrapped! {
    Tool: ToolCall;
    Work: WorkMsg;
    Lifecycle: LifecycleMsg;
    Machine: MachineMsg;
    Link: LinkMsg;
    Guest: GuestMsg;
    Tasks: TaskMsg;
    Snapshots: SnapshotMsg;
    Merge: MergeMsg;
    Park: ParkMsg;
    Lifetime: LifetimeMsg;
    Owner: OwnerMsg;
    Pooled: PooledMsg;
    Prepare: PrepareMsg;
}

/// News of work beside the mailbox.
pub enum WorkMsg {
    /// Records became durable; answered when they are taken up.
    Recorded(oneshot::Sender<()>),
    /// An activity came to its end.
    Finished(Activity),
    /// A change of phase came to its end.
    Settled(Phase, Option<String>),
}

/// Making, stopping and removing a workspace on behalf of its manager, and taking its machine up again.
pub enum LifecycleMsg {
    /// Make the machine for the first time.
    Create(Box<CallCx>, oneshot::Sender<Result<u64, ToolError>>),
    /// Stop the machine for the daemon's own stop.
    Stop(oneshot::Sender<()>),
    /// Remove what a failed creation left.
    Forget,
    /// Nobody will ask for the creation: undo the plan.
    Abandon,
    /// Restart a crashed machine, by policy.
    RestartDue,
    /// A machine that was left because it did not answer answers now.
    Answers(ProcessId),
}

/// News of a machine's process.
pub enum MachineMsg {
    /// A machine was launched; its record is under way.
    Launched(Box<MachineHandle>),
    /// A machine runs: watch it and keep a link into it. The token is the one in a copied memory,
    /// until the guest has its own.
    Attach(Box<MachineHandle>, Option<LinkToken>, oneshot::Sender<watch::Receiver<LinkState>>),
    /// Stop watching the machine: its end is expected. The answer is the machine's handle.
    Detach(oneshot::Sender<Option<Box<MachineHandle>>>),
    /// The machine's process ended.
    Exited(MachineExit),
    /// The process of a recorded machine that no child watches ended.
    LeftEnded(ProcessId, MachineExit),
    /// The machine is halted for want of room on the host's disk.
    DiskFull(ProcessId),
}

/// News of the link into the guest.
pub enum LinkMsg {
    /// The link changed.
    Changed(LinkChange),
    /// The guest knows its own token from now on.
    OwnToken,
    /// Event of the guest.
    Event(GuestEventIn),
}

/// Event that came over a link.
pub struct GuestEventIn {
    /// Number of the workspace's link that the event came over.
    pub(crate) links: u64,
    pub(crate) event: GuestEvent,
    /// Permit for room in the mailbox: another event may come when this one was handled.
    pub(crate) _room: OwnedSemaphorePermit,
}

/// Requests to the guest.
pub enum GuestMsg {
    /// Ask for the link into the guest, for a call that names several workspaces.
    Enter(Box<CallCx>, oneshot::Sender<Result<Link, ToolError>>),
    /// Run a command on behalf of a call that names several workspaces.
    Exec(Box<ExecRequest>),
    /// A job was started: have an actor follow it.
    FollowJobs,
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

/// Messages of a park or a wake, and of the timer of idle workspaces.
pub enum ParkMsg {
    /// The park is over, one way or the other.
    Ended,
    /// Ask whether anybody still wants the machine to be awake.
    StillWanted(oneshot::Sender<bool>),
    /// The wake is over: milliseconds that it took, or `None` if nobody wanted it any more.
    Woken(Result<Option<u64>, ToolError>),
    /// Check whether the workspace was idle for long enough to be parked.
    LookIdle,
    /// The guest has no tasks: park the workspace, if nothing was wanted of it since this time.
    ParkIdle(Instant),
    /// Begin or end a standstill for the owner.
    StandStill(SessionId, Standstill, StandstillReply),
    /// A pause, or its end, is over; the error if it failed.
    Turned(Option<ToolError>),
}

/// The end by lifetime.
pub enum LifetimeMsg {
    /// The workspace's lifetime is over, as the timer finds.
    Over,
    /// A step of the end is done, or failed.
    Tried(Option<ToolError>),
}

/// Changes of the owner.
pub enum OwnerMsg {
    /// Change the owner.
    Adopt(Adopt),
    /// A take-over came to its end.
    Adopted,
}

/// A request to take a workspace over.
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

/// Requests of the pool to one of its machines.
pub enum PooledMsg {
    /// Hand this machine over to a session.
    Claim(Box<Claim>),
    /// Rehearse what a claim and a first command will do.
    Rehearse(oneshot::Sender<Result<(), ToolError>>),
    /// Remove the machine; refused when it was claimed.
    Discard(oneshot::Sender<Result<(), ToolError>>),
}

/// A request to have a machine of the pool.
pub struct Claim {
    /// Plan of the claimed workspace, with name and quota.
    pub(crate) claims: Claims,
    /// The claims come back with what was wrong with the machine.
    pub(crate) reply: oneshot::Sender<Result<(), Box<(Claims, ToolError)>>>,
}

/// Requests about the guest's tasks.
pub enum TaskMsg {
    /// Ask for access to the guest of a running workspace.
    Access {
        /// Variables of a task.
        env: BTreeMap<String, String>,
        /// The access, or why there is none.
        reply: oneshot::Sender<Result<GuestAccess, ToolError>>,
    },
    /// Ask for cached results beyond a number, which the guest sent without being asked.
    Cached {
        /// The number.
        after: u64,
        /// Most results in the answer.
        limit: u32,
        /// The results; `None` if the guest has to be asked.
        reply: oneshot::Sender<Option<TaskResultsReply>>,
    },
    /// Results are durable elsewhere: the guest need not send them again.
    Acknowledged {
        /// The tasks.
        task_ids: Vec<String>,
        /// Answered when the cache has dropped the results: access to tell the guest, or why there is none.
        reply: oneshot::Sender<Result<GuestAccess, ToolError>>,
    },
    /// Ask for the hints that tell when to look for results.
    Hints(oneshot::Sender<TaskHints>),
}

/// Access to a guest, for requests about tasks.
pub struct GuestAccess {
    /// The link, now or soon.
    pub(crate) link_state: watch::Receiver<LinkState>,
    /// The workspace's environment, overridden by the task's own.
    pub(crate) env: Vec<(String, String)>,
}
