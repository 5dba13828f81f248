//! Content of files on its way to the guest and from it, and operations of the file engine.

use std::io::Cursor;

use bytes::BufMut;
use hivekeep_protocol::limits::{DATA_CHUNK_BYTES, INITIAL_CREDIT_BYTES};
use hivekeep_protocol::{
    FileOperationDone, GuestRequest, ReadFile, ReadFileReply, Stream, ToGuest, WriteFileReply,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::Link;
use crate::call::{CallTerms, OpenCall};
use crate::calls::Slot;
use crate::error::{LinkError, Violation};
use crate::inbox::{Exchange, Inbox, Reply};

impl Link {
    /// Writes `size_bytes` of `source`, the size that the request announces, to a file of the guest,
    /// which replaces the file in one step once everything is there; on any error the old file stays.
    /// `on_progress` gets the number of bytes passed to the link, at most the call's credit (1 MiB)
    /// ahead of the guest.
    ///
    /// # Errors
    /// See [`Link::ask`]; [`LinkError::SourceSize`] when the source is shorter or longer;
    /// [`LinkError::Source`] when it fails. Both are returned once the guest has removed the
    /// partial file, unless `wait` is over before. After [`LinkError::Deadline`],
    /// [`LinkError::Cancelled`] with an unconfirmed end or [`LinkError::Down`] the file may be the
    /// old or the new one.
    pub async fn upload<R: GuestRequest<Reply = WriteFileReply>>(
        &self,
        request: R,
        size_bytes: u64,
        mut source: impl AsyncRead + Send + Unpin,
        wait: CallTerms,
        on_progress: impl FnMut(u64) + Send,
    ) -> Result<WriteFileReply, LinkError> {
        let core = self.core();
        let request = request.into_wire();
        let mut call = core.open(request, Exchange::Upload, Slot::Ordinary, &wait).await?;
        let reply = match send(&mut call, size_bytes, &mut source, &wait, on_progress).await {
            Ok(Some(early)) => early,
            Ok(None) => call.reply(&wait).await?,
            Err(error) => {
                if matches!(error, LinkError::SourceSize { .. } | LinkError::Source(_)) {
                    call.withdraw(&wait).await;
                }
                return Err(error);
            }
        };
        let written = core.typed::<R>(reply)?;
        if written.bytes != size_bytes {
            let told_bytes = written.bytes;
            return Err(LinkError::Miscounted { told_bytes, passed_bytes: size_bytes });
        }
        Ok(written)
    }
}

/// Event that an upload waits for between two chunks.
enum Go {
    /// The guest has answered already (it cannot take the file).
    Answered(Reply),
    /// Number of bytes that may be sent.
    Send(u64),
}

/// Sends the content and its end. Returns a reply that came before that.
pub(super) async fn send(
    call: &mut OpenCall,
    size_bytes: u64,
    source: &mut (impl AsyncRead + Send + Unpin),
    wait: &CallTerms,
    mut on_progress: impl FnMut(u64) + Send,
) -> Result<Option<Reply>, LinkError> {
    let mut sent = 0;
    while sent < size_bytes {
        let want = (size_bytes - sent).min(DATA_CHUNK_BYTES as u64);
        let allowed = match call.until(wait, |inbox| go(inbox, want)).await? {
            Go::Answered(reply) => return Ok(Some(reply)),
            Go::Send(bytes) => bytes,
        };
        // At most a chunk, so the conversion is exact.
        let payload = read_chunk(call, source, allowed as usize, wait).await?;
        let content = (payload.len() - 1) as u64;
        if content < allowed {
            return Err(LinkError::SourceSize { size_bytes, read_bytes: sent + content });
        }
        queue(call, wait, Some(payload)).await?;
        sent += content;
        on_progress(sent);
    }
    let beyond = read_chunk(call, source, 1, wait).await?;
    if beyond.len() > 1 {
        return Err(LinkError::SourceSize { size_bytes, read_bytes: sent });
    }
    queue(call, wait, None).await?;
    Ok(None)
}

fn go(inbox: &mut Inbox, want: u64) -> Option<Go> {
    if let Some(reply) = inbox.take_reply() {
        return Some(Go::Answered(reply));
    }
    let bytes = inbox.take_credit(want);
    (bytes > 0).then_some(Go::Send(bytes))
}

/// Payload of a data frame with `len` bytes of the source, fewer only at its end.
async fn read_chunk(
    call: &mut OpenCall,
    source: &mut (impl AsyncRead + Send + Unpin),
    len: usize,
    wait: &CallTerms,
) -> Result<Vec<u8>, LinkError> {
    let mut payload = Vec::with_capacity(len + 1);
    payload.push(Stream::Content as u8);
    while payload.len() < len + 1 {
        let missing = len + 1 - payload.len();
        let mut rest = (&mut payload).limit(missing);
        let read = call.run(wait, source.read_buf(&mut rest)).await?;
        if read.map_err(LinkError::Source)? == 0 {
            break;
        }
    }
    Ok(payload)
}

/// Queues a chunk, or with `None` the end, behind what is queued already.
async fn queue(
    call: &mut OpenCall,
    wait: &CallTerms,
    payload: Option<Vec<u8>>,
) -> Result<(), LinkError> {
    let (core, id) = (call.shared(), call.id());
    let queued = call
        .run(wait, async {
            match payload {
                Some(payload) => core.outbox.data(id, payload).await,
                None => core.outbox.end(id).await,
            }
        })
        .await?;
    if queued { Ok(()) } else { Err(core.down_error()) }
}

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

    /// Has the guest run an encoded operation of the file engine, which `request` announces; returns the
    /// encoded outcome, which is not looked at here.
    ///
    /// # Errors
    /// See [`Link::ask`]; [`LinkError::Miscounted`] when the outcome has more than `max_bytes`, or
    /// another size than the guest reports.
    pub async fn run_file_operation<R: GuestRequest<Reply = FileOperationDone>>(
        &self,
        request: R,
        operation: Vec<u8>,
        max_bytes: u64,
        wait: CallTerms,
    ) -> Result<Vec<u8>, LinkError> {
        let core = self.core();
        let operation_bytes = operation.len() as u64;
        let request = request.into_wire();
        let mut call = core.open(request, Exchange::Both, Slot::Ordinary, &wait).await?;
        let mut source = Cursor::new(operation);
        if let Some(early) = send(&mut call, operation_bytes, &mut source, &wait, |_| {}).await? {
            // The guest cannot have run an operation that it has not received.
            core.typed::<R>(early)?;
            core.close(Violation::WrongReply.into());
            return Err(core.down_error());
        }
        drop(source);
        let mut outcome = Vec::new();
        loop {
            let taken = call.turn(&wait).await?;
            for chunk in &taken.chunks {
                let content = chunk.content();
                let passed_bytes = (outcome.len() + content.len()) as u64;
                if passed_bytes > max_bytes {
                    return Err(LinkError::Miscounted { told_bytes: max_bytes, passed_bytes });
                }
                outcome.extend_from_slice(content);
                call.consumed(content.len());
            }
            if let Some(reply) = taken.reply {
                let told_bytes = core.typed::<R>(reply)?.outcome_bytes;
                let passed_bytes = outcome.len() as u64;
                if told_bytes != passed_bytes {
                    return Err(LinkError::Miscounted { told_bytes, passed_bytes });
                }
                return Ok(outcome);
            }
        }
    }
}
