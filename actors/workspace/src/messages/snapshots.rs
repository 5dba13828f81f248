//! Messages about snapshots, and of merges of the layers that deleted ones left.

use hivekeep_kernel::{CallCx, SessionId, SnapshotId, ToolError};
use tokio::sync::oneshot;

use crate::{
    claims::ForkSource,
    snapshots::{MadeSnapshot, Merge},
};

/// Requests about snapshots.
pub enum SnapshotMsg {
    /// Make a snapshot with memory on behalf of a call that forks it.
    Make(Box<SnapshotRequest>),
    /// Ask for the source that forks of a snapshot begin from.
    ForkSource {
        /// Session that asks; must own this workspace.
        session: SessionId,
        /// Name of the snapshot.
        snapshot: String,
        /// The answer.
        reply: oneshot::Sender<Result<ForkSource, ToolError>>,
    },
    /// Make a snapshot of the disk for a backup; the answer names it.
    Freeze {
        /// Name of the snapshot.
        name: String,
        /// The outcome.
        reply: oneshot::Sender<Result<SnapshotId, ToolError>>,
    },
    /// Delete the snapshot of a backup, which needs it no more.
    Release {
        /// The snapshot.
        snapshot: SnapshotId,
        /// Answered when the snapshot is gone.
        reply: oneshot::Sender<Result<(), ToolError>>,
    },
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

/// Requests of a merge's work to the mailbox.
pub enum MergeMsg {
    /// Begin, if there is something to merge; the answer is a receiver of the outcome.
    Begin(oneshot::Sender<Result<MergeOutcome, NotMerged>>),
    /// Ask for the next two layers to merge.
    Next(oneshot::Sender<Option<Merge>>),
    /// Ask whether the finished merge may be recorded. If so, nothing else begins until it is recorded.
    May(oneshot::Sender<bool>),
    /// The work is over.
    Ended,
}

/// Receiver of the number of merges that were made.
pub(crate) type MergeOutcome = oneshot::Receiver<Result<usize, ToolError>>;

/// Reasons why layers are not merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotMerged {
    /// There are no layers to merge.
    Nothing,
    /// Another workspace has the layers in its chain.
    Needed,
    /// A machine has the layers open.
    Runs,
    /// Other layers are being merged, and these come next.
    UnderWay,
    /// Other work is under way.
    Busy,
}

impl NotMerged {
    /// Text for the caller of a deletion.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Nothing => "no layer was left over that stands beside another one",
            Self::Needed => "forks need the layers that were left over",
            Self::Runs => "the layers that were left over are merged when the workspace is stopped",
            Self::UnderWay => "layers are being merged; those that were left over come next",
            Self::Busy => "something else goes on; it is done after the next stop",
        }
    }
}
