//! Upgraded connections: bytes both ways, until both sides or either's connection ends.

use std::sync::Arc;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Size of the buffer of each direction.
const BUFFER_BYTES: usize = 16 * 1024;

/// Upgraded connections of a door, counted and ended with it.
#[derive(Debug, Clone)]
pub(crate) struct Tunnels {
    places: Arc<Semaphore>,
    inside: TaskTracker,
    end: CancellationToken,
}

impl Tunnels {
    /// At most so many at once, until the token fires.
    pub(crate) fn new(most: usize, inside: TaskTracker, end: CancellationToken) -> Self {
        Self { places: Arc::new(Semaphore::new(most)), inside, end }
    }

    /// A place for one more, if there is one.
    pub(super) fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.places.clone().try_acquire_owned().ok()
    }

    /// Carries bytes between both sides once they have switched.
    pub(super) fn carry(&self, client: OnUpgrade, port: OnUpgrade, place: OwnedSemaphorePermit) {
        let carrying = async move {
            let _place = place;
            let (client, port) = match tokio::try_join!(client, port) {
                Ok(both) => both,
                Err(error) => return tracing::debug!(%error, "an upgrade failed"),
            };
            let (mut client, mut port) = (TokioIo::new(client), TokioIo::new(port));
            let copied = tokio::io::copy_bidirectional_with_sizes(
                &mut client,
                &mut port,
                BUFFER_BYTES,
                BUFFER_BYTES,
            );
            if let Err(error) = copied.await {
                tracing::debug!(%error, "an upgraded connection broke");
            }
        };
        let end = self.end.clone();
        self.inside.spawn(async move {
            let _ended = end.run_until_cancelled(carrying).await;
        });
    }
}
