//! Quota of the files in the transfer directory, all together.
//!
//! The files are measured by a walk when a download begins, and downloads add what they write. Others
//! put files there and take them away, so a measure soon becomes stale.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hivekeep_kernel::{Layer, ToolError, lock};
use tokio::io::AsyncWrite;

use crate::codes;

/// Greatest age of a measure when a download begins.
const FRESH: Duration = Duration::from_secs(10);

/// Limit of the transfer directory, and the bytes used. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct TransferQuota {
    most_bytes: u64,
    used: Arc<Mutex<Used>>,
}

#[derive(Debug, Default)]
struct Used {
    bytes: u64,
    measured: Option<Instant>,
    /// All bytes that downloads ever wrote: those written during a walk are added to its result.
    written: u64,
}

impl TransferQuota {
    pub(crate) fn of_mb(most_mb: u64) -> Self {
        Self { most_bytes: most_mb << 20, used: Arc::default() }
    }

    /// Whether a download may begin. Blocks.
    ///
    /// # Errors
    /// `transfer_dir_full`.
    pub(crate) fn admit(&self, root: &Path) -> Result<(), ToolError> {
        let Used { measured, written, .. } = *lock(&self.used);
        if measured.is_none_or(|at| at.elapsed() > FRESH) {
            // The walk is not under the lock: running downloads take it for each chunk.
            let found = taken_below(root);
            let mut used = lock(&self.used);
            used.bytes = found + (used.written - written);
            used.measured = Some(Instant::now());
        }
        if lock(&self.used).bytes < self.most_bytes { Ok(()) } else { Err(self.full()) }
    }

    /// A sink whose bytes count against the quota.
    pub(crate) fn counting<S>(&self, sink: S) -> Counting<S> {
        Counting { sink, quota: self.clone() }
    }

    /// Discards the measure: counted files may be gone. The next download measures.
    pub(crate) fn forget(&self) {
        lock(&self.used).measured = None;
    }

    pub(crate) fn full(&self) -> ToolError {
        let message =
            format!("the transfer directory would hold more than {} MiB", self.most_bytes >> 20);
        ToolError::new(Layer::Quota, codes::TRANSFER_DIR_FULL, message)
            .next("remove files from it, or raise workspace.transfer_max_total_mb")
            .detail("most_bytes", self.most_bytes)
    }

    fn take(&self, bytes: usize) -> io::Result<()> {
        let mut used = lock(&self.used);
        let after = used.bytes + bytes as u64;
        if after > self.most_bytes {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        used.bytes = after;
        used.written += bytes as u64;
        Ok(())
    }
}

/// Whether an error is this quota's refusal, and not that of a file system with quotas.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::QuotaExceeded && error.raw_os_error().is_none()
}

/// Bytes of all files below a folder. Follows no link; files that vanish meanwhile count nothing.
fn taken_below(root: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let (mut bytes, mut todo) = (0, vec![PathBuf::from(root)]);
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => todo.push(entry.path()),
                Ok(meta) => bytes += meta.blocks() * 512,
                Err(_) => {}
            }
        }
    }
    bytes
}

/// Sink that counts what is written, and refuses what exceeds the quota.
pub(crate) struct Counting<S> {
    pub(crate) sink: S,
    quota: TransferQuota,
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counting<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.sink).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = wrote {
            self.quota.take(count)?;
        }
        wrote
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.sink).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.sink).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn downloads_together_take_no_more_than_there_may_be() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(dir.path().join("below")).expect("made");
        std::fs::write(dir.path().join("below/old"), vec![1; 1 << 20]).expect("written");
        let quota = TransferQuota::of_mb(2);
        quota.admit(dir.path()).expect("room for one more MiB");
        let mut sinks = [quota.counting(Vec::new()), quota.counting(Vec::new())];
        for sink in &mut sinks {
            sink.write_all(&[0; 400 << 10]).await.expect("fits");
        }
        let error = sinks[0].write_all(&[0; 400 << 10]).await.expect_err("too much");
        assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);

        // Full, until somebody takes the old file away.
        std::fs::write(dir.path().join("new"), vec![1; 1 << 20]).expect("written");
        quota.forget();
        let refused = quota.admit(dir.path()).expect_err("full");
        assert_eq!(refused.code, "transfer_dir_full");
        std::fs::remove_file(dir.path().join("below/old")).expect("removed");
        quota.forget();
        quota.admit(dir.path()).expect("room again");
    }
}
