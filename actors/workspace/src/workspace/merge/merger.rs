//! A handle on merging that goes on beside the mailbox.

use tokio_util::sync::CancellationToken;

/// Merging that goes on.
pub(in crate::workspace) struct Merger {
    pub(super) wanted: CancellationToken,
    pub(super) ended: CancellationToken,
}

impl Merger {
    /// It is given up soon.
    pub(in crate::workspace) fn cancel(&self) {
        self.wanted.cancel();
    }

    /// Gives it up; the answer resolves once it writes no record any more.
    pub(in crate::workspace) fn end(&self) -> impl Future<Output = ()> + Send + 'static {
        self.wanted.cancel();
        self.ended.clone().cancelled_owned()
    }
}
