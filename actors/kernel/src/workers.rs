//! Background tasks of an actor, run beside its mailbox.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

/// Workers of one incarnation of an actor. When the last handle held by the actor is dropped, its
/// workers are dropped too: nothing goes on acting for an actor that is gone.
#[derive(Debug, Clone)]
pub struct Workers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    tracker: TaskTracker,
    end: CancellationToken,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl Default for Workers {
    fn default() -> Self {
        Self(Arc::new(Inner { tracker: TaskTracker::new(), end: CancellationToken::new() }))
    }
}

impl Workers {
    /// Starts work in the current span.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        let end = self.0.end.clone();
        // In a box, so that tokio's task is compiled once for each type of result and not of work.
        let work: BoxFuture<'static, T> = Box::pin(work);
        let work = async move { end.run_until_cancelled(work).await };
        self.0.tracker.spawn(work.in_current_span())
    }

    /// Number of workers now running.
    pub fn running(&self) -> usize {
        self.0.tracker.len()
    }

    /// Cancels all workers at their next await.
    pub fn abort_all(&self) {
        self.0.end.cancel();
    }
}
