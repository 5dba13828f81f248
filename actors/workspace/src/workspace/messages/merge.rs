//! Messages of a merge of layers to its workspace.

use hivekeep_kernel::ToolError;
use tokio::sync::oneshot;

use crate::snapshots::Merge;

/// Requests of a merge's work to the mailbox.
pub enum MergeMsg {
    /// Begin, if there is something to merge; the answer is a receiver of the outcome.
    Begin(oneshot::Sender<Result<Outcome, NotMerged>>),
    /// Ask for the next two layers to merge.
    Next(oneshot::Sender<Option<Merge>>),
    /// Ask whether the finished merge may be recorded. If so, nothing else begins until it is recorded.
    May(oneshot::Sender<bool>),
    /// The work is over.
    Ended,
}

/// Receiver of the number of merges that were made.
pub(in crate::workspace) type Outcome = oneshot::Receiver<Result<usize, ToolError>>;

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
