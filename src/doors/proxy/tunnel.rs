//! Upgraded connections: bytes both ways, until both sides or either's connection ends, or nothing passes for long.

use std::time::Duration;

use hivekeep_kernel::{PoolFull, PoolPlace, SharedPool, WorkspaceId};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Notify,
};
use tokio_util::{io::InspectReader, sync::CancellationToken, task::TaskTracker};

/// Size of the buffer of each direction.
const BUFFER_BYTES: usize = 16 * 1024;
/// Time in which nothing passes either way; then a connection ends. Programs that keep theirs open say something
/// every minute or so.
const IDLE: Duration = Duration::from_secs(3_600);

/// Upgraded connections of a door, counted by the workspaces that they lead to, and ended with the door.
#[derive(Debug, Clone)]
pub(crate) struct Tunnels {
    places: SharedPool<WorkspaceId>,
    inside: TaskTracker,
    end: CancellationToken,
}

impl Tunnels {
    /// At most so many at once, as the option says, until the token fires.
    pub(crate) fn new(
        (option, most): (&'static str, usize),
        inside: TaskTracker,
        end: CancellationToken,
    ) -> Self {
        Self { places: SharedPool::new(option, most), inside, end }
    }

    /// A place for one more to a workspace.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn place(&self, to: WorkspaceId) -> Result<PoolPlace<WorkspaceId>, PoolFull> {
        self.places.take(to)
    }

    /// Carries bytes between both sides once they have switched.
    pub(super) fn carry(&self, client: OnUpgrade, port: OnUpgrade, place: PoolPlace<WorkspaceId>) {
        let carrying = async move {
            let _place = place;
            match tokio::try_join!(client, port) {
                Ok((client, port)) => copy(TokioIo::new(client), TokioIo::new(port)).await,
                Err(error) => tracing::debug!(%error, "an upgrade failed"),
            }
        };
        let end = self.end.clone();
        self.inside.spawn(async move {
            let _ended = end.run_until_cancelled(carrying).await;
        });
    }
}

/// Copies both ways, until both have ended or one has broken, or nothing came for long.
async fn copy<C, P>(client: C, port: P)
where
    C: AsyncRead + AsyncWrite + Unpin,
    P: AsyncRead + AsyncWrite + Unpin,
{
    let came = Notify::new();
    let mut client = InspectReader::new(client, |_: &[u8]| came.notify_one());
    let mut port = InspectReader::new(port, |_: &[u8]| came.notify_one());
    let copied = tokio::io::copy_bidirectional_with_sizes(
        &mut client,
        &mut port,
        BUFFER_BYTES,
        BUFFER_BYTES,
    );
    let idle = async { while tokio::time::timeout(IDLE, came.notified()).await.is_ok() {} };
    tokio::select! {
        copied = copied => if let Err(error) = copied {
            tracing::debug!(%error, "an upgraded connection broke");
        },
        () = idle => tracing::debug!("an upgraded connection was idle for too long"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_when_nothing_passes_for_long_and_not_while_one_side_speaks() {
        let ((mut client, near), (far, mut port)) = (duplex(64), duplex(64));
        let copying = tokio::spawn(copy(near, far));
        for _ in 0..3 {
            tokio::time::sleep(IDLE - Duration::from_secs(1)).await;
            port.write_all(b"x").await.expect("it is open");
            assert_eq!(client.read_u8().await.expect("it comes"), b'x');
        }
        assert!(!copying.is_finished());
        copying.await.expect("it ends by itself");
        assert_eq!(client.read(&mut [0]).await.expect("closed"), 0);
    }
}
