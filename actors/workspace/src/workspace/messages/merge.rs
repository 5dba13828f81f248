//! Messages of a merge of layers to its workspace.

use hivekeep_kernel::ToolError;
use tokio::sync::oneshot;

use crate::snapshots::Merge;

/// What the work asks of the mailbox.
pub enum MergeMsg {
    /// Begin, if there is something to do: the end of it is told.
    Begin(oneshot::Sender<Result<Outcome, NotMerged>>),
    /// Which are the next?
    Next(oneshot::Sender<Option<Merge>>),
    /// They are made one. If nothing stands against it, nothing else goes on until it is recorded.
    May(oneshot::Sender<bool>),
    /// The work is over.
    Ended,
}

/// How many merges were made.
pub(in crate::workspace) type Outcome = oneshot::Receiver<Result<usize, ToolError>>;

/// Why layers are left as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotMerged {
    /// There are none to be merged.
    Nothing,
    /// Another workspace has them in its chain.
    Needed,
    /// A machine has them open.
    Runs,
    /// Others are being merged, and these come next.
    UnderWay,
    /// Something else goes on.
    Busy,
}

impl NotMerged {
    /// For the caller of a deletion.
    pub(in crate::workspace) fn words(self) -> &'static str {
        match self {
            Self::Nothing => "no layer was left over that stands beside another one",
            Self::Needed => "forks need the layers that were left over",
            Self::Runs => "the layers that were left over are merged when the workspace is stopped",
            Self::UnderWay => "layers are being merged; those that were left over come next",
            Self::Busy => "something else goes on; it is done after the next stop",
        }
    }
}
