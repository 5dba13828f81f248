use hivekeep_protocol::{ReadFile, ReadFileReply, ToGuest, limits::INITIAL_CREDIT_BYTES};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::{Link, call::CallTerms, calls::Slot, error::LinkError, inbox::Exchange};

/// Window of a large file: bytes that may arrive while the sink's disk is busy.
pub(super) const WINDOW: u32 = 4 * INITIAL_CREDIT_BYTES;

impl Link {
    /// Copies a byte range of a guest's file into `sink`, and flushes it. `on_progress` gets the
    /// number of bytes written so far.
    ///
    /// A slow sink holds back this call alone. Without a `limit` the guest decides how much it
    /// sends: give one where the sink's space matters. After an error the sink may hold a part.
    ///
    /// # Errors
    /// See [`Link::ask`]; [`LinkError::Sink`]; [`LinkError::Miscounted`] when the guest sends more
    /// than the limit or another number than it reports.
    pub async fn download(
        &self,
        path: &str,
        offset: u64,
        limit: Option<u64>,
        mut sink: impl AsyncWrite + Send + Unpin,
        wait: CallTerms,
        mut on_progress: impl FnMut(u64) + Send,
    ) -> Result<ReadFileReply, LinkError> {
        let core = self.core();
        let request = ReadFile { path: path.to_owned(), offset, limit };
        let mut call = core
            .open(ToGuest::ReadFile(request), Exchange::Download, Slot::Ordinary, &wait)
            .await?;
        if limit.is_none_or(|limit| limit > u64::from(INITIAL_CREDIT_BYTES)) {
            call.widen(WINDOW);
        }
        let mut written = 0u64;
        loop {
            let taken = call.turn(&wait).await?;
            for chunk in &taken.chunks {
                let content = chunk.content();
                let after = written + content.len() as u64;
                if let Some(limit) = limit.filter(|limit| after > *limit) {
                    return Err(LinkError::Miscounted { told_bytes: limit, passed_bytes: after });
                }
                let wrote = call.run(&wait, sink.write_all(content)).await?;
                wrote.map_err(LinkError::Sink)?;
                written = after;
                call.consumed(content.len());
                on_progress(written);
            }
            if let Some(reply) = taken.reply {
                let done = core.typed::<ReadFile>(reply)?;
                if done.sent_bytes != written {
                    return Err(LinkError::Miscounted {
                        told_bytes: done.sent_bytes,
                        passed_bytes: written,
                    });
                }
                call.run(&wait, sink.flush()).await?.map_err(LinkError::Sink)?;
                return Ok(done);
            }
        }
    }
}
