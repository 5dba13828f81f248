//! Handle of a merge of layers that runs beside the mailbox.

use tokio_util::sync::CancellationToken;

/// Merge of layers under way.
pub(in crate::workspace) struct Merger {
    pub(super) wanted: CancellationToken,
    pub(super) ended: CancellationToken,
}

impl Merger {
    /// Cancels the merge, without waiting for its end.
    pub(in crate::workspace) fn cancel(&self) {
        self.wanted.cancel();
    }

    /// Cancels the merge; the future resolves once it writes no more records.
    pub(in crate::workspace) fn end(&self) -> impl Future<Output = ()> + Send + 'static {
        self.wanted.cancel();
        self.ended.clone().cancelled_owned()
    }
}
